"""Whether a hint says of an entry what its record says.

A hint comes from the leader and is not looked into again: a bug there, or a frame of somebody else,
would put messages into queues that they do not belong to. So a follower reads one record of each
span and compares; a hint that is wrong of one is believed of none. Pure.
"""

from typing import TYPE_CHECKING

from store.layout import FLAG_NOT_INDEXED, tags_code
from store.write.hints import ALIKE, LOOKED_INTO

if TYPE_CHECKING:
    from store.dispatch.read_back import ReadBack
    from store.ports import KeySink
    from store.write.hints import DispatchHint, Run


def claim_about(hint: "DispatchHint", number: int) -> "tuple[Run, int] | None":
    """Return the run that entry ``number`` of a hint is in, and its number there.

    None: the hint does not describe it, and dispatch reads it in any case.
    """
    for run in hint.runs:
        if number < run.entries:
            return None if run.kind == LOOKED_INTO else (run, number)
        number -= run.entries
    return None


def agrees(
    hint: "DispatchHint", claim: "tuple[Run, int]", record: "ReadBack", keys: "KeySink | None"
) -> bool:
    """Tell whether the hint says of an entry what its record says.

    ``keys``: the index, if there is one; then the hash of a single key is compared, too.
    """
    run, number = claim
    _, _, queue_id, offset, flags, _, topic, text, _, _ = record
    if run.kind == ALIKE:
        queue, place = run.queue, (run.queue_offset + number, run.code)
    else:
        queue, place = run.queues[number], (run.queue_offsets[number], run.codes[number])
    if flags & FLAG_NOT_INDEXED or hint.queues[queue] != (topic, queue_id):
        return False
    if place != (offset, tags_code(text) if b"TAGS\x01" in text else 0):
        return False
    return keys is None or not hint.has_keys or _has_its_key(run, number, record, keys)


def _has_its_key(run: "Run", number: int, record: "ReadBack", keys: "KeySink") -> bool:
    """Tell whether the hashes of a message are those that the hint has; several are not sought."""
    physical, _, _, _, flags, stored, topic, text, _, _ = record
    if run.counts is not None:
        return True
    said = [(run.hashes[number], physical, run.stored)] if run.hashes else []
    return keys.rows_of([(topic, text, physical, stored, flags)]) == said

"""Searching the index by the hash of a key, newest file first, as RocketMQ does.

What it returns are guesses: another key may have the same hash, so the caller looks at the message.
Damage in a file ends its chain: numbers must fall along a chain, and offsets lie within the file.
Source: spec/disk.md 5.4; RocketMQ IndexService.queryOffset, IndexFile.selectPhyOffset.
"""

from typing import TYPE_CHECKING, NamedTuple

from store.index.codec import FIRST_ENTRY, key_hash
from store.index.file import DamagedIndex, IndexFile

if TYPE_CHECKING:
    from collections.abc import Set

    from store.index.key_index import KeyIndex


class Span(NamedTuple):
    """Store times wanted, ms, both included."""

    begin: int
    end: int


class Found(NamedTuple):
    """Physical offsets that may be what is asked for, newest first, each once."""

    physicals: list[int]
    last_timestamp: int
    """Of the newest message in the index, ms."""
    last_physical: int


def search(
    index: "KeyIndex",
    key: tuple[bytes, bytes],
    limit: int,
    span: Span,
    steps: int,
    without: "Set[int]" = frozenset(),
) -> Found:
    """Return messages of ``key`` (topic, key), at most ``limit``, looking at ``steps`` entries.

    ``without``: physical offsets that are left out. Errors: `OSError`; `FatalError`.
    """
    index.take_in()
    files = index.files
    if not files:
        return Found([], 0, 0)
    value = key_hash(*key)
    physicals: dict[int, None] = {}
    for file in reversed(files):
        if _overlaps(file, span) and file.count > FIRST_ENTRY:
            try:
                steps = _follow(index, file, value, (limit, steps, span, without), physicals)
            except DamagedIndex as error:
                index.note_damage(file, error)
        if file.begin_timestamp < span.begin or len(physicals) >= limit or steps <= 0:
            break
    return Found(list(physicals), files[-1].end_timestamp, files[-1].end_physical)


def _overlaps(file: IndexFile, span: Span) -> bool:
    first, last = file.begin_timestamp, file.end_timestamp
    return span.begin <= last and span.end >= first


def _follow(
    index: "KeyIndex",
    file: IndexFile,
    value: int,
    limits: "tuple[int, int, Span, Set[int]]",
    physicals: dict[int, None],
) -> int:
    """Follow one chain; return how many steps are left."""
    limit, steps, (begin, end), without = limits
    handles = index.handles
    slots = file.layout.slots
    slot = value % slots
    number = file.newest(handles, value)
    while number > 0 and steps > 0 and len(physicals) < limit:
        steps -= 1
        found, physical, seconds, previous = file.entry(handles, number)
        if seconds < 0 or not file.begin_physical <= physical <= file.end_physical:
            raise DamagedIndex(f"{file.path}: entry {number} is no entry")
        if found % slots != slot:
            raise DamagedIndex(f"{file.path}: entry {number} is in the chain of another slot")
        time = file.begin_timestamp + seconds * 1000
        if found == value and begin <= time <= end and physical not in without:
            physicals[physical] = None
        if time < begin:
            break
        if previous >= number:
            raise DamagedIndex(f"{file.path}: entry {number} names entry {previous} before it")
        number = previous
    return steps

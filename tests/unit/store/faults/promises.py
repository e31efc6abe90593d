"""What a start on damaged files may end in. The model of the promises in docs/testing.md.

A broker on its own that was stopped cleanly, and whose files were damaged then, either

1. *refuses*: a `FatalError` that names a file of the store, and for the log a place in it, or
2. *serves*: what can be read is what was written, each message at its queue offset, offsets without
   a gap, from the first one on. What is damaged in the middle of the log is a *hole*: reading it
   says DAMAGED, in a plain log LOST, the log of the broker has named file and offset, and what lies
   behind it is whole.
   With peers a hole is filled (`test_damaged_group`); alone it stays, and a broker that has to
   dispatch it again stands before it: reads go on, sends are refused.
3. Something at the end may be missing only if ``checkpoint`` of the log, which says how far it is
   synced, was lost as well. Then it is a beginning of the log that is served, and the cut is told.

A plain log, in RocketMQ's format, knows less of itself, and so do we of it:

- a message has a CRC of its body, not of its topic, properties and the like: where the log itself
  was damaged these may be wrong unseen, bodies never are;
- nothing says where it began, and how far it was written but the log itself: without its first
  files it begins later, as after their expiry; without its last message it ends earlier, and says
  so. What lies behind a damage is never cut off (`store.plain.recovery`): that start is refused;
- there is no peer: what has to be dispatched again and is damaged is a refusal, too.
"""

import logging
import re
from contextlib import contextmanager, suppress

from ledgermq.runtime.errors import FatalError
from tests.unit.store.faults.crashes import check_keys
from tests.unit.store.faults.damage import disk_of
from tests.unit.store.faults.world import ROOT, SEGMENT, Cluster, check, no_hang

PLACE = re.compile(
    r"offset[ =]\d+|has \d+ bytes|expected a file at \d+| is missing|is not a regular file"
    r"|\[Errno \d+\]|is not a multiple of"
)
HOLES = ("event=corruption", "event=message_not_found")
REPAIR_MS = 2_000
START_MS = 2_500
"""Virtual; a broker that is not writable then will not be."""


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.found = []

    def emit(self, record):
        self.found.append(record.getMessage())

    def has(self, *words):
        return any(all(word in line for word in words) for line in self.found)


@contextmanager
def logged():
    handler, root = Lines(), logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler
    finally:
        root.removeHandler(handler)


def check_start(files, sent, damages, *, raft=True):
    """Start on damaged files and say what became of it: ``refused``, ``whole``, ``holes``...

    Errors: `AssertionError` for all that the model forbids, and whatever the broker raises.
    """
    files = dict(files)
    touched = []
    for damage in damages:
        if files:
            touched += damage.befall(files)
    with no_hang(), logged() as lines:
        cluster = Cluster({"n0": disk_of(files)}, raft=raft)
        try:
            error = cluster.start(limit_ms=START_MS)
            if error is not None:
                return check_refusal(error)
            return check_service(cluster, sent, touched, lines)
        finally:
            with suppress(FatalError):
                cluster.close()


def check_refusal(error, root=ROOT):
    if not isinstance(error, FatalError) or "a bug" in error.message:
        raise error
    assert error.exit_code in (2, 3), error
    assert str(root) in error.message, error
    if re.search(r"/(data|index|commitlog)/\d{20}", error.message):
        assert PLACE.search(error.message), error
    return "refused"


def check_service(cluster, sent, touched, lines):
    is_log_touched = any("/commitlog/" in path for path in touched)
    cluster.heads_may_differ = not cluster.raft and is_log_touched
    found = cluster.read()
    if lines.has("event=queue_corruption", "file=", "offset="):
        check(found, sent, acknowledged=False, heads_may_differ=cluster.heads_may_differ)
        cluster.run_for(REPAIR_MS)  # a queue is made again from the log, whatever it was
        found = cluster.read()
    if found is None:
        return check_refusal(cluster.error())
    check(found, sent, acknowledged=False, heads_may_differ=cluster.heads_may_differ)
    seen = {(*place, offset) for place, queue in found.items() for offset in queue}
    holes = {
        (*place, offset)
        for place, queue in found.items()
        for offset, message in queue.items()
        if message is None
    }
    is_mute = not cluster.is_writable()
    if holes or is_mute:
        told = HOLES if cluster.heads_may_differ else HOLES[:1]
        assert any(lines.has(what, "file=", "offset=") for what in told), lines.found
    if cluster.heads_may_differ:
        return check_plain(cluster, sent, seen, touched, lines)
    for place, queue in found.items():
        assert min(queue, default=0) == 0, f"{place} begins at {min(queue)}"
    assert seen <= sent.acknowledged.keys(), "invented"
    missing = sent.acknowledged.keys() - seen
    if missing and not is_mute:
        assert any(path.endswith("/checkpoint") for path in touched), (touched, missing)
        cut = min(sent.acknowledged[place][0] for place in missing)
        assert all(sent.acknowledged[place][0] < cut for place in seen), "no beginning of the log"
    if not missing and not is_mute and not any("/config/" in path for path in touched):
        check_state(cluster, sent)
    if not missing and not holes and not is_mute:
        # A query by key needs the index, and each entry with its header and its place.
        needed = (f"{ROOT}/index", f"{ROOT}/dledger-", f"{ROOT}/commitlog/")
        is_whole = not any(part in path for path in touched for part in needed)
        check_keys(cluster, found, whole=is_whole)
    outcome = "mute" if is_mute else "cut" if missing else "whole"
    return f"{outcome} with holes" if holes else outcome


def check_plain(cluster, sent, seen, touched, lines):
    """Judge what is missing from a plain log that was damaged itself."""
    begin, end = cluster.log().first_position, cluster.log().end_position
    missing = {
        place
        for place in sent.acknowledged.keys() - seen
        if begin <= sent.acknowledged[place][0] < end
        and segment_of(sent.acknowledged[place][0]) not in touched
    }
    assert not missing, "the files that hold them are sound"
    last = max(physical for physical, _ in sent.acknowledged.values())
    if end <= last:
        assert lines.has("event=commit_log_cut") or lines.has("ahead_of_the_log"), lines.found
    return "cut" if end <= last else "begins later" if begin else "whole"


def segment_of(position):
    return f"{ROOT}/commitlog/{position - position % SEGMENT:020}"


def check_state(cluster, sent):
    """Compare the consumer offset that the state records set."""
    offset = cluster.brokers["n0"].tables.offsets.query("TOOLS_CONSUMER", "OFFSET_MOVED_EVENT", 0)
    assert offset == len(sent.states) - 1, (offset, len(sent.states))

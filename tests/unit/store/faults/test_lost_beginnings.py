"""RocketMQ's queues that lost their first units, where the log has lost its beginning, too."""

import pytest

from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.recovery import foreign_queues
from tests.unit.store.faults.damage import disk_of, image
from tests.unit.store.faults.world import QUEUE_FILE, ROOT, SEGMENT, Cluster
from tests.unit.store.offline import stores

FIRST = 25
"""Offset of each queue's first message in the log; 19 follow, the last ones in a second file."""
UNITS = QUEUE_FILE // 20
assert (stores.SEGMENT, stores.QUEUE_FILE) == (SEGMENT, QUEUE_FILE)


def left_behind(*, clean, first=FIRST):
    """Return the files, and the bodies of each queue; after a crash all is dispatched again."""
    store = stores.PlainStore(first_position=7 * SEGMENT, queue_base=first)
    files = {
        f"{ROOT}/{path}": data
        for path, data in store.files().items()
        if not path.startswith(("index/", "config/"))
    }
    if not clean:
        files[f"{ROOT}/abort"] = b""
        del files[f"{ROOT}/checkpoint"]
    bodies = {}
    for message in store.records:
        bodies.setdefault((message.topic, message.queue_id), []).append(message.body)
    return files, bodies


def path_of(start, topic="t0"):
    return f"{ROOT}/consumequeue/{topic}/0/{start:020}"


def read_after_a_start(files, first=FIRST):
    """Return the bodies of each queue, and at which offset each begins."""
    cluster = Cluster({"n0": disk_of(files)}, raft=False)
    try:
        assert cluster.start() is None
        assert cluster.put("t0", 0, b"new") is not None
        found = {key: queue for key, queue in cluster.read().items() if queue}
    finally:
        cluster.close()
    assert found["t0", 0].popitem()[1].body == b"new"
    assert {min(queue) for queue in found.values()} == {first}
    return {key: [message.body for message in queue.values()] for key, queue in found.items()}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("is_small", [True, False])
@pytest.mark.parametrize("kept", [0, 2, FIRST - UNITS - 1])
def test_units_of_zeros(monkeypatch, kept, is_small, clean):
    """What is kept of them is of messages that the log has no more."""
    if not is_small:
        monkeypatch.setattr(foreign_queues, "SMALL_LOG_BYTES", 0)
    files, bodies = left_behind(clean=clean)
    units = files[path_of(QUEUE_FILE)][: 20 * kept]
    files[path_of(QUEUE_FILE)] = units.ljust(QUEUE_FILE, b"\0")
    del files[path_of(2 * QUEUE_FILE)]
    assert read_after_a_start(files) == bodies


def test_units_of_zeros_that_end_each_start_are_seen(monkeypatch):
    with planted(BY_TESTS["lost-units-are-fatal"]), pytest.raises(AssertionError):
        test_units_of_zeros(monkeypatch, 2, is_small=False, clean=False)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kept", [b"", bytes(QUEUE_FILE)])
def test_a_first_file_that_is_gone(clean, kept):
    files, bodies = left_behind(clean=clean)
    del files[path_of(QUEUE_FILE)]
    if kept:  # nothing is left at all
        files[path_of(2 * QUEUE_FILE)] = kept
    assert read_after_a_start(files) == bodies


def read_of_a_large_log(monkeypatch, *, clean):
    """All that a queue had is gone, but for the name of a file; its messages lie far back."""
    monkeypatch.setattr(foreign_queues, "SMALL_LOG_BYTES", 0)
    monkeypatch.setattr(foreign_queues, "PROBED", 0)
    files, bodies = left_behind(clean=clean)
    del files[path_of(QUEUE_FILE)]
    files[path_of(2 * QUEUE_FILE)] = bytes(QUEUE_FILE)
    return read_after_a_start(files) == bodies


@pytest.mark.parametrize("clean", [True, False])
def test_a_name_that_no_unit_bears_out_is_not_believed(monkeypatch, clean):
    assert read_of_a_large_log(monkeypatch, clean=clean)
    with planted(BY_TESTS["name-of-a-file-believed"]), pytest.raises(AssertionError):
        read_of_a_large_log(monkeypatch, clean=clean)


def test_messages_before_the_first_unit_that_are_taken_for_known_are_seen():
    with planted(BY_TESTS["beginnings-not-looked-up"]), pytest.raises(AssertionError):
        test_a_first_file_that_is_gone(clean=False, kept=b"")


def test_what_is_gone_with_the_log_is_not_looked_for():
    files, bodies = left_behind(clean=True)
    units = files[path_of(QUEUE_FILE)]
    old = units[20 * (FIRST - UNITS) :][:20]  # of a message that the log has no more
    files[path_of(QUEUE_FILE, "idle")] = (bytes(8) + old[8:]).ljust(QUEUE_FILE, b"\0")
    cluster = Cluster({"n0": disk_of(files)}, raft=False)
    try:
        assert cluster.start() is None
        assert cluster.store().reader.max_offset("idle", 0) == UNITS + 1, "it counts on"
    finally:
        cluster.close()
    assert read_after_a_start(files) == bodies


def counted_by_a_name(*, clean):
    """Start twice over a queue whose only file is zeros; return where it ends each time."""
    files, _ = left_behind(clean=clean)
    files[path_of(QUEUE_FILE, "idle")] = bytes(QUEUE_FILE)
    ends = []
    for _ in range(2):
        cluster = Cluster({"n0": disk_of(files)}, raft=False)
        try:
            assert cluster.start() is None
            ends.append(cluster.store().reader.max_offset("idle", 0))
            cluster.stop()
            files = image(cluster.disks["n0"])
        finally:
            cluster.close()
    return ends


@pytest.mark.parametrize("clean", [True, False])
def test_a_queue_of_which_a_name_is_left_counts_on(clean):
    assert counted_by_a_name(clean=clean) == [UNITS, UNITS]
    with planted(BY_TESTS["counts-from-nothing-again"]):
        assert counted_by_a_name(clean=clean) == [UNITS, 0]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("is_small", [True, False])
def test_the_message_that_a_file_of_zeros_is_named_by_is_read(monkeypatch, is_small, clean):
    """Its unit was not written when the power went: it is to be dispatched yet."""
    if not is_small:
        monkeypatch.setattr(foreign_queues, "SMALL_LOG_BYTES", 0)
        monkeypatch.setattr(foreign_queues, "PROBED", 0)
    files, bodies = left_behind(clean=clean, first=UNITS)
    files[path_of(QUEUE_FILE)] = bytes(QUEUE_FILE)
    assert path_of(2 * QUEUE_FILE) not in files
    assert read_after_a_start(files, UNITS) == bodies

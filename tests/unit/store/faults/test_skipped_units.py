"""A broker on its own takes queues over in which units stand for what is no message."""

import pytest

from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.layout import SKIPPED_BYTES, UNIT
from store.recovery import foreign_queues
from store.recovery.checkpoint import CHECKPOINT_FILE, CLEAN_FILE
from tests.unit.store.faults.damage import disk_of, image
from tests.unit.store.faults.test_old_records import bodies, put, write_old
from tests.unit.store.faults.world import ROOT, SEGMENT, Cluster

ONE_SEGMENT = 16 * SEGMENT
QUEUE = f"{ROOT}/consumequeue/t0/0/{0:020}"


def left_behind(flags):
    """Return the files of a broker with such messages, as RocketMQ would leave them, and the sound.

    The version that stored them put them into queues; the next one has made the queues anew.
    """
    files, sent = {}, None
    for _ in range(2):
        cluster = Cluster({"n0": disk_of(files)}, raft=False, segment_bytes=ONE_SEGMENT)
        try:
            assert cluster.start() is None
            if sent is None:
                sent = write_old(cluster, flags)
                cluster.put_many([("t1", 0, b"another %d" % number, b"") for number in range(3)])
            cluster.stop()
            files = image(cluster.disks["n0"])
        finally:
            cluster.close()
        for name in (CHECKPOINT_FILE, CLEAN_FILE):
            del files[f"{ROOT}/{name}"]
        kept, files = files, {name: files[name] for name in files if "/consumequeue/" not in name}
    return kept, sent


def skipped(files):
    return [unit for unit in UNIT.iter_unpack(files[QUEUE]) if unit[1] == SKIPPED_BYTES]


def taken_over(files):
    """Start over these files; return the queue's messages, and what is left of the files."""
    cluster = Cluster({"n0": disk_of(files)}, raft=False, segment_bytes=ONE_SEGMENT)
    try:
        assert cluster.start() is None
        found = bodies(cluster)
        assert put(cluster, b"new") is not None
        assert bodies(cluster) == [*found, b"new"]
        cluster.stop()
        return found, image(cluster.disks["n0"])
    finally:
        cluster.close()


def look_at_samples(monkeypatch):
    """Have the log pass for a large one."""
    monkeypatch.setattr(foreign_queues, "SMALL_LOG_BYTES", 0)
    monkeypatch.setattr(foreign_queues, "PROBED", 1)


@pytest.mark.parametrize("is_small", [True, False])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("flags", [(0, 0x10, 0), (0x10, 0x10, 0, 0), (0, 0x20, 0, 0x10, 0, 0, 0)])
def test_they_stay(monkeypatch, flags, clean, is_small):
    if not is_small:
        look_at_samples(monkeypatch)
    files, sent = left_behind(flags)
    units = skipped(files)
    assert units
    if not clean:
        files[f"{ROOT}/abort"] = b""
    found, files = taken_over(files)
    assert found == sent
    assert skipped(files) == units


def test_a_queue_that_ends_before_them_is_seen(monkeypatch):
    look_at_samples(monkeypatch)
    files, sent = left_behind((0, 0x10, 0))
    with planted(BY_TESTS["skipped-unit-reaches-far"]), pytest.raises(AssertionError):
        assert taken_over(files)[0] == sent


def test_a_queue_that_is_gone_is_made_again_behind_what_is_no_message():
    files, sent = left_behind((0x10, 0, 0))
    del files[QUEUE]
    assert taken_over(files)[0] == sent


def test_a_queue_that_is_not_looked_for_there_is_seen():
    files, sent = left_behind((0x10, 0, 0))
    del files[QUEUE]
    bug = BY_TESTS["nothing-looked-up-behind-no-message"]
    with planted(bug), pytest.raises(AssertionError):
        assert taken_over(files)[0] == sent

"""Queues are repaired though the log loses its beginning meanwhile, or what one of them needs."""

import pytest

from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.queues import files as queue_files
from store.recovery import repair
from store.results import GetStatus, PutStatus
from tests.unit.store.faults.damage import disk_of
from tests.unit.store.faults.test_queries_of_corruption import MAGIC, corrupt
from tests.unit.store.faults.world import QUEUE_FILE, ROOT, SEGMENT, Cluster

SPARSE = ("t0", "t1")
"""Topics whose queue has three messages at the beginning of the log, and three at its end."""
BLOCK = 60
"""Bytes: three units."""


@pytest.fixture
def plain(monkeypatch):
    """A broker on its own whose repairs look at two messages in a tick."""
    monkeypatch.setattr(queue_files, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(repair, "STEP_ENTRIES", 2)
    cluster = Cluster({"n0": disk_of({})}, raft=False)
    assert cluster.start() is None
    for topic in ("t0", "t0", "t0", "other", "t1", "t1", "t1"):
        assert cluster.put(topic, 0, b"first") is PutStatus.OK
    for number in range(120):
        assert cluster.put("between", 0, b"%d" % number * 30) is PutStatus.OK
    for topic in SPARSE * 3:
        assert cluster.put(topic, 0, b"last") is PutStatus.OK
    cluster.run_for(1_000)
    yield cluster
    cluster.close()


def damage_last_block(cluster, topic):
    """Damage the units of the last three messages, and have that noticed."""
    path = f"{ROOT}/consumequeue/{topic}/0/{0:020}"
    file = cluster.disks["n0"].open(path, size=QUEUE_FILE)
    file.pwrite(BLOCK + 3, (b"?",))
    cluster.store()._queues.by_name[topic, 0].distrust(3)
    assert last_three(cluster, topic) is GetStatus.DAMAGED


def last_three(cluster, topic):
    return cluster.store().reader.get(topic, 0, 3, 32, 1 << 20, None).status


def drop_a_segment(cluster):
    """Let the log begin with its second segment, as retention does."""

    def drop():
        begin = cluster.log().first_position + SEGMENT
        cluster.store().log_start.advance_to(begin)
        assert cluster.log().drop_before(begin) == SEGMENT

    cluster.do(drop)


def after_a_lost_beginning(cluster):
    """Return how a queue is read whose repair was under way as the log lost its beginning."""
    damage_last_block(cluster, "t0")
    cluster.run_for(60)
    drop_a_segment(cluster)
    cluster.run_for(3_000)
    return last_three(cluster, "t0")


def test_a_log_that_begins_anew_is_walked_from_there(plain):
    assert after_a_lost_beginning(plain) is GetStatus.FOUND


def test_the_planted_repair_stays_where_the_log_was(plain):
    with planted(BY_TESTS["repair-stays-where-the-log-was"]):
        assert after_a_lost_beginning(plain) is GetStatus.DAMAGED


def beside_a_damaged_message(cluster):
    """Return how two damaged queues are read, with a message between that nobody can read.

    It lies between the messages of t0, and before all of t1.
    """
    for topic in SPARSE:
        damage_last_block(cluster, topic)
    physical, _ = cluster.sent.acknowledged["other", 0, 0]
    corrupt(cluster, physical + MAGIC)
    cluster.run_for(3_000)
    return [last_three(cluster, topic) for topic in SPARSE]


def test_a_block_whose_messages_nobody_can_find_any_more_holds_up_no_other(plain, caplog):
    assert beside_a_damaged_message(plain) == [GetStatus.DAMAGED, GetStatus.FOUND]
    assert caplog.text.count("event=queue_not_repaired topic=t0 queue=0 units_from=3") == 1


def test_the_planted_repair_waits_for_a_peer(plain):
    with planted(BY_TESTS["repair-waits-for-a-peer-that-is-none"]):
        assert beside_a_damaged_message(plain) == [GetStatus.DAMAGED, GetStatus.DAMAGED]

"""A broker without a Raft group takes groups back that are ahead of what is left of its queues."""

import asyncio

import pytest

from broker.offsets.bounds import ROWS_PER_TURN, OffsetsWithinQueues
from broker.state.consumer_offset import ConsumerOffsetTable
from ledgermq.remoting.protocol.errors import InvalidHeader
from mutants.patches import ALL
from mutants.planting import planted
from sim.inode import PowerLossMode
from store.results import PutStatus
from tests.unit.store.faults.damage import disk_of
from tests.unit.store.faults.world import Cluster

SAVED_MS = 6_000
TOPIC, GROUP = "OFFSET_MOVED_EVENT", "TOOLS_CONSUMER"
"""Offsets of what a broker does not know are removed after a while."""


def table_of(rows):
    table = ConsumerOffsetTable()
    for (topic, group, queue_id), offset in rows.items():
        assert table.commit(group, topic, queue_id, offset)
    table.is_ahead = True
    return table


def test_an_offset_past_the_end_becomes_the_end_and_others_stay():
    table = table_of({("t", "g", 0): 7, ("t", "g", 1): 3, ("u", "h", 0): 2})
    ends = {("t", 0): 5, ("t", 1): 4, ("u", 0): 2}
    assert OffsetsWithinQueues(table, lambda *queue: ends[queue]).start(1) is None
    assert [table.query("g", "t", 0), table.query("g", "t", 1)] == [5, 3]
    assert table.query("h", "u", 0) == 2


def test_how_far_rocketmq_had_come_with_transactions_ends_no_comparison():
    def table_of_rocketmq():
        table = ConsumerOffsetTable()
        table.apply(b'{"RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS":{"0":9},"t@g":{"0":7}}')
        table.is_ahead = True
        return table

    table = table_of_rocketmq()
    assert OffsetsWithinQueues(table, lambda *_queue: 5).start(1) is None
    assert table.query("g", "t", 0) == 5
    assert table.query("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0) == 9
    with planted(ALL["own-progress-ends-the-comparison"]), pytest.raises(InvalidHeader):
        OffsetsWithinQueues(table_of_rocketmq(), lambda *_queue: 5).start(1)


def test_groups_that_say_themselves_where_they_go_on_are_left_there():
    table = table_of({("t", "g", 0): 7})
    table.is_ahead = False
    assert OffsetsWithinQueues(table, lambda *_queue: 1).start(1) is None
    assert table.query("g", "t", 0) == 7


def test_many_offsets_are_compared_in_several_turns():
    count = ROWS_PER_TURN + 1
    table = table_of({(f"t{number}", "g", 0): 9 for number in range(count)})
    rest = OffsetsWithinQueues(table, lambda *_queue: 1).start(1)
    assert table.query("g", f"t{count - 1}", 0) == 9
    asyncio.run(rest)
    assert table.query("g", f"t{count - 1}", 0) == 1


def offset_after_a_loss_of_power():
    """Return how far a group is, and where its queue ends, once the end of the log is gone."""
    cluster = Cluster({"n0": disk_of({})}, raft=False, flush="ASYNC_FLUSH")
    try:
        assert cluster.start() is None
        cluster.put(TOPIC, 0, b"kept")
        cluster.run_for(2 * SAVED_MS)
        cluster.log()._flusher.pass_time = lambda _now_ms: None
        for number in range(4):
            cluster.put(TOPIC, 0, b"lost %d" % number)
        assert (
            cluster.propose(b'{"%s@%s":{"0":5}}' % (TOPIC.encode(), GROUP.encode()), "offset")
            is PutStatus.OK
        )
        cluster.run_for(SAVED_MS)
        cluster.kill()
        cluster.disks["n0"].power_loss(PowerLossMode.LOST)
        assert cluster.start() is None
        broker = cluster.brokers["n0"]
        return broker.tables.offsets.query(GROUP, TOPIC, 0), broker.store.reader.max_offset(
            TOPIC, 0
        )
    finally:
        cluster.kill()
        cluster.close()


def check_no_group_is_ahead():
    offset, end = offset_after_a_loss_of_power()
    assert end < 5
    assert offset == end


def test_a_group_is_not_ahead_of_a_log_that_has_lost_its_end():
    check_no_group_is_ahead()


def test_planted_offsets_ahead_of_the_log_are_found():
    with planted(ALL["ahead-of-a-lost-end"]), pytest.raises(AssertionError):
        check_no_group_is_ahead()

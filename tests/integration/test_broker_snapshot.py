"""A broker drops the beginning of its log; one that comes back empty starts from a snapshot.

All over loopback, with brokers as they are started; segments are small so that many can go.
"""

import asyncio
import json
import shutil

import pytest
import uvloop

from broker.retention.compaction import Compactor
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.message import decode_records
from store.message_store import MessageStore
from store.queues import start as beginning
from store.queues.consume_queue import DamagedUnits
from tests.integration.broker_cluster import cluster, pull_fields, send_fields, until

BODY = b"x" * 900
COMPACT = RequestCode.COMPACT
RAFT_STATUS = 29_001
SEGMENT = 1 << 16
TRANSFER = 29_003


async def send(group, number, topic, count, queue_id=0):
    """Send messages one after the other; return their queue offsets."""
    offsets = []
    for _ in range(count):
        answer = await group.ask(number, 310, BODY, **send_fields(topic, queue_id))
        assert answer.code == 0, answer.remark
        offsets.append(int(answer.ext_fields["queueOffset"]))
    return offsets


async def offsets_of(group, number, topic, queue_id=0):
    """Return the minimum and maximum offset of a queue."""
    found = []
    for code in (31, 30):
        answer = await group.ask(number, code, topic=topic, queueId=queue_id)
        found.append(int(answer.ext_fields["offset"]))
    return tuple(found)


async def status(group, number):
    answer = await group.ask(number, RAFT_STATUS)
    return json.loads(answer.body)


async def compact(group, number, **fields):
    answer = await group.ask(number, COMPACT, **fields)
    assert answer.code == 0, answer.remark
    return json.loads(answer.body)


async def read_all(group, number, topic, offset):
    """Pull a queue to its end; return the offsets of its messages."""
    found = []
    while True:
        answer = await group.ask(number, 11, **pull_fields(topic, offset))
        if answer.code != 0:
            return found, answer
        records = decode_records(answer.body)
        found += [record.queue_offset for record in records]
        offset = int(answer.ext_fields["nextBeginOffset"])


async def take_over(group, number):
    """Hand leadership to a broker as soon as it may have it."""
    node_id = f"n{number}"
    async with asyncio.timeout(20):
        while group.leaders() != [number]:
            leaders = group.leaders()
            if leaders:
                await group.ask(leaders[0], TRANSFER, target=node_id)
            await asyncio.sleep(0.05)


def test_beginning_is_dropped_and_offsets_count_on(tmp_path):
    uvloop.run(drop_and_count_on(tmp_path))


async def drop_and_count_on(tmp_path):
    async with cluster(tmp_path, segment_bytes=SEGMENT) as group:
        await group.leader()
        assert await send(group, 0, "Old", 5) == [0, 1, 2, 3, 4]
        await send(group, 0, "T", 300)
        report = await compact(group, 0, upto=10)
        assert report["dropped_entries"] == 0
        assert report["reason"].startswith("no more was asked for; what is left")
        report = await compact(group, 0)
        assert report["dropped_entries"] > 100, report
        assert "segment" in report["reason"]
        first = (await status(group, 0))["first_index"]
        assert first == report["first_index"]
        # A queue whose every message went keeps counting; its pulls are told where it begins.
        assert await offsets_of(group, 0, "Old") == (5, 5)
        low, high = await offsets_of(group, 0, "T")
        assert (high, low > 100) == (300, True)
        answer = await group.ask(0, 11, **pull_fields("T", 0))
        assert answer.code == 21, "PULL_OFFSET_MOVED"
        assert int(answer.ext_fields["nextBeginOffset"]) == low
        assert (await read_all(group, 0, "T", low))[0] == list(range(low, 300))
        for _ in range(2):
            await group.stop(0)
            await group.start(0)
            await group.leader()
            assert await offsets_of(group, 0, "Old") == (5, 5)
            assert await offsets_of(group, 0, "T") == (low, 300)
        # Even when everything derived from the log is gone from the disk.
        await group.stop(0)
        shutil.rmtree(tmp_path / "n0" / "consumequeue")
        (tmp_path / "n0" / "consumequeue.checkpoint").unlink()
        shutil.rmtree(tmp_path / "n0" / "config")
        await group.start(0)
        await group.leader()
        assert await offsets_of(group, 0, "Old") == (5, 5)
        assert await offsets_of(group, 0, "T") == (low, 300)
        assert await send(group, 0, "Old", 2) == [5, 6]
        assert await send(group, 0, "T", 1) == [300]


@pytest.mark.parametrize("bug", ["no offsets in the image", "state older than what goes"])
def test_planted_bug_is_caught(tmp_path, monkeypatch, bug):
    if bug == "no offsets in the image":
        monkeypatch.setattr(beginning.LogStart, "queue_starts_at", lambda self, position: [])
    else:
        monkeypatch.setattr(MessageStore, "applied", property(lambda self: 10))
        monkeypatch.setattr(Compactor, "_limit", lambda self, upto: (self._node.commit_index, ""))
    with pytest.raises((AssertionError, RemotingError)):
        uvloop.run(drop_and_count_on(tmp_path))


def test_nothing_is_dropped_while_units_of_a_queue_are_damaged(tmp_path, monkeypatch):
    """Where the queue begins could not be told, and the log is what its units are made from."""

    async def scenario():
        async with cluster(tmp_path, segment_bytes=SEGMENT) as group:
            await group.leader()
            await send(group, 0, "T", 300)
            queue = group.brokers[0].store._queues.by_name["T", 0]

            def unknown(_queue, _position):
                raise DamagedUnits(queue, 0)

            with monkeypatch.context() as damaged:
                damaged.setattr(beginning, "offset_at", unknown)
                report = await compact(group, 0)
            assert report["dropped_entries"] == 0
            assert "units of T queue 0" in report["reason"]
            assert "repairing" in report["reason"]
            assert (await read_all(group, 0, "T", 0))[0] == list(range(300))
            assert (await compact(group, 0))["dropped_entries"] > 100

    uvloop.run(scenario())


def test_wiped_broker_comes_back_by_snapshot_under_load_and_leads(tmp_path):
    async def scenario():
        async with cluster(tmp_path, 3, segment_bytes=SEGMENT) as group:
            leader = await group.leader()
            victim = (leader + 1) % 3
            await send(group, leader, "Old", 7, queue_id=2)
            await group.ask(leader, 15, consumerGroup="cg", topic="Old", queueId=2, commitOffset=4)
            offsets = group.brokers[leader].tables.offsets
            await until(lambda: b"cg" in offsets.snapshot(), "the offset is replicated")
            await send(group, leader, "T", 300)
            await group.stop(victim)
            shutil.rmtree(tmp_path / f"n{victim}")
            report = await compact(group, leader)
            assert report["dropped_entries"] > 100, report
            load = asyncio.create_task(send(group, leader, "T", 200))
            await group.start(victim)
            await load
            replica = group.brokers[victim]
            await until(lambda: replica.node.first_index == report["first_index"], "installed")
            end = group.brokers[leader].node.end_index
            await until(lambda: replica.applied_index >= end, "caught up")
            await take_over(group, victim)
            low, high = await offsets_of(group, victim, "T")
            assert (low > 100, high) == (True, 500)
            assert (await read_all(group, victim, "T", low))[0] == list(range(low, 500))
            assert await offsets_of(group, victim, "Old", 2) == (7, 7)
            answer = await group.ask(victim, 14, consumerGroup="cg", topic="Old", queueId=2)
            assert int(answer.ext_fields["offset"]) == 4
            assert await send(group, victim, "Old", 1, queue_id=2) == [7]
            assert await send(group, victim, "T", 1) == [500]
            queues = tmp_path.glob(f"n{victim}/config/topics.json")
            assert replica.tables.topics.snapshot(), list(queues)
            # What it installed survives a restart of its own.
            await group.stop(victim)
            await group.start(victim)
            await until(lambda: group.brokers[victim].applied_index >= end, "back")
            assert group.brokers[victim].store.reader.min_offset("T", 0) == low
            assert group.brokers[victim].store.reader.max_offset("Old", 2) == 8

    uvloop.run(scenario())

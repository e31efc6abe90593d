"""Store and replicated log together: real files, a real event loop, a group of one."""

import asyncio
import errno

import pytest
import uvloop

from dledger.config import DLedgerConfig
from dledger.node import DLedgerNode
from dledger.replicated_log import ReplicatedLog
from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.remoting.protocol.message import decode_records
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from store.config import StoreConfig
from store.message_store import MessageStore
from store.queues.consume_queue import NEW_FILE_WORK
from store.recovery import checkpointer
from store.results import PutStatus
from tests.unit.store.fakes import HOST, FakeClock, FakeDisk, FakeNode, Listener, batch_of, message

DEADLINE_S = 60


class Broker:
    """A node and a store, wired as the broker does it."""

    def __init__(self, root, state_end=0):
        self.listener = Listener()
        self.node = DLedgerNode(
            DLedgerConfig(
                group="g",
                self_id="n0",
                peers={"n0": ""},
                directory=str(root / "dledger-n0"),
                data_segment_bytes=1 << 16,
                index_segment_bytes=32 * 1000,
            )
        )
        self.store = MessageStore(
            StoreConfig(
                directory=str(root),
                store_host=pack_host("127.0.0.1", 10911),
                queue_file_bytes=2000,
                tick_ms=10,
                checkpoint_ms=50,
            ),
            RealDisk(),
            SystemClock(),
            self.listener,
        )
        self.log = ReplicatedLog(self.node)
        self.store.attach(self.log)
        self.log.serve(self.store.log_user)
        self.store.load(state_end)

    async def __aenter__(self):
        await self.node.start(self.log)
        self.store.start()
        async with asyncio.timeout(DEADLINE_S):
            while not self.store.writer.writable:
                await asyncio.sleep(0.005)
        return self

    async def __aexit__(self, *failure):
        await self.store.stop()
        await self.node.stop()

    async def put(self, **fields):
        done = asyncio.get_running_loop().create_future()
        self.store.writer.put(message(**fields), lambda *answer: done.set_result(answer))
        return await asyncio.wait_for(done, DEADLINE_S)

    def read_all(self, topic):
        bodies, offset = [], 0
        while True:
            result = self.store.reader.get(topic, 0, offset, 32, 262_144, None)
            if not result.count:
                return bodies
            bodies += [r.body for r in decode_records(b"".join(result.buffers), check_crc=True)]
            offset = result.next_offset


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_what_was_acknowledged_is_read_after_a_restart(tmp_path, run):
    async def first():
        async with Broker(tmp_path) as broker:
            answers = await asyncio.gather(
                *(broker.put(body=b"%d" % number * 40) for number in range(1500))
            )
            assert [answer[:2] for answer in answers] == [
                (PutStatus.OK, number) for number in range(1500)
            ]
            done = asyncio.get_running_loop().create_future()
            broker.store.writer.propose_state("topics", b"{}", done.set_result)
            assert await done is PutStatus.OK
            batch = asyncio.get_running_loop().create_future()
            broker.store.writer.put_batch(
                batch_of([message(topic="b", body=b"x" * n) for n in (1, 2)]),
                lambda *answer: batch.set_result(answer),
            )
            assert (await batch)[:2] == (PutStatus.OK, 0)
            assert broker.read_all("t") == [b"%d" % number * 40 for number in range(1500)]
            applied = broker.store.applied
            done = []
            broker.store.writer.put(message(), lambda *answer: done.append(answer[0]))
        assert done == [PutStatus.UNKNOWN]
        return broker.listener.states, applied

    async def second(states, applied):
        async with Broker(tmp_path, applied) as broker:
            assert broker.listener.states == []
            found = broker.read_all("t")
            assert found[:1500] == [b"%d" % number * 40 for number in range(1500)]
            assert broker.read_all("b") == [b"x", b"xx"]
            answer = await broker.put(body=b"after")
            assert answer[:2] == (PutStatus.OK, len(found))
        async with Broker(tmp_path) as broker:
            assert broker.listener.states == states

    states, applied = run(first())
    assert [(kind, payload) for _, kind, payload in states] == [("topics", b"{}")]
    run(second(states, applied))


def test_checkpoints_are_written_while_it_runs(tmp_path):
    async def main():
        async with Broker(tmp_path) as broker:
            await broker.put()
            async with asyncio.timeout(DEADLINE_S):
                while broker.store.checkpoints._queues._marks[:1] == ():
                    await asyncio.sleep(0.005)
        assert (tmp_path / "consumequeue.checkpoint").exists()
        assert (tmp_path / "checkpoint").stat().st_size == 4096

    uvloop.run(main())


class FailingDisk(FakeDisk):
    """Says how the sync of a checkpoint fails."""

    failure: Exception | None = None

    def replace(self, path, data):
        if self.failure is not None:
            raise self.failure
        super().replace(path, data)


async def until(condition):
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("failure", "word"),
    [
        (OSError(errno.EIO, "input/output error"), "cannot write a checkpoint"),
        (ZeroDivisionError("a bug"), "a bug in the checkpoint"),
    ],
)
def test_a_checkpoint_that_fails_is_fatal(failure, word):
    async def main():
        fatal, disk, node = [], FailingDisk(), FakeNode()
        store = MessageStore(
            StoreConfig(directory="/s", store_host=HOST, tick_ms=5, checkpoint_ms=1),
            disk, SystemClock(), Listener(), on_fatal=fatal.append,
        )  # fmt: skip
        node.listener = ReplicatedLog(node)
        store.attach(node.listener)
        node.listener.serve(store.log_user)
        store.load()
        store.start()
        node.lead()
        disk.failure = failure
        await until(lambda: fatal)
        assert word in fatal[0].message
        assert fatal[0].exit_code == 3

    asyncio.run(main())


def test_a_checkpoint_that_finds_no_space_is_tried_again():
    async def main():
        disk, node, clock = FailingDisk(), FakeNode(), FakeClock()
        store = MessageStore(
            StoreConfig(directory="/s", store_host=HOST, tick_ms=5, checkpoint_ms=1),
            disk, clock, Listener(),
        )  # fmt: skip
        node.listener = ReplicatedLog(node)
        store.attach(node.listener)
        node.listener.serve(store.log_user)
        store.load()
        disk.failure = OSError(errno.ENOSPC, "no space")
        store.start()
        node.lead()
        for _ in range(3):
            clock.now += 2
            await asyncio.sleep(0.02)
        assert "/s/consumequeue.checkpoint" not in disk.files
        disk.failure = None
        clock.now += 2
        await until(lambda: "/s/checkpoint" in disk.files)
        await store.stop()
        await store.stop()

    asyncio.run(main())


def test_a_checkpoint_waits_until_what_it_holds_is_written():
    async def main():
        disk, node, clock = FakeDisk(), FakeNode(), FakeClock()
        store = MessageStore(
            StoreConfig(
                directory="/s", store_host=HOST, tick_ms=10**6, checkpoint_ms=5,
                flush_queues_max=2 * NEW_FILE_WORK,
            ),
            disk, clock, Listener(),
        )  # fmt: skip
        node.listener = ReplicatedLog(node)
        store.attach(node.listener)
        node.listener.serve(store.log_user)
        store.load()
        store.start()
        node.lead()
        for number in range(5):
            store.writer.put(message(queue_id=number), lambda *answer: None)
        node.commit()
        clock.now += 5
        for _ in range(2):
            store.tick()
            store.writer.put(message(queue_id=0), lambda *answer: None)
            node.commit()
        assert store.checkpoints._queues._syncing is None
        store.tick()
        await until(lambda: store.checkpoints._queues._marks)
        assert [mark.index for mark in store.checkpoints._queues._marks] == [5]
        await store.stop()
        assert [mark.index for mark in store.checkpoints._queues._marks] == [7, 5]

    asyncio.run(main())


def test_a_picture_of_many_queues_is_taken_over_several_ticks(monkeypatch):
    """What comes meanwhile is in some queues and not in others, and changes nothing."""
    monkeypatch.setattr(checkpointer, "PICTURE_QUEUES", 2)

    async def main():
        disk, node, clock = FakeDisk(), FakeNode(), FakeClock()
        config = StoreConfig(directory="/s", store_host=HOST, tick_ms=10**6, checkpoint_ms=5)
        store = MessageStore(config, disk, clock, Listener())
        node.listener = ReplicatedLog(node)
        store.attach(node.listener)
        node.listener.serve(store.log_user)
        store.load()
        store.start()
        node.lead()

        def put_everywhere():
            for number in range(5):
                store.writer.put(message(queue_id=number), lambda *answer: None)
            node.commit()

        put_everywhere()
        clock.now += 5
        for _ in range(2):
            store.tick()
            assert store.checkpoints._queues.is_busy
            assert store.checkpoints._queues._syncing is None
            put_everywhere()
        store.tick()
        await until(lambda: store.checkpoints._queues._marks)
        assert [mark.index for mark in store.checkpoints._queues._marks] == [5]
        again = MessageStore(config, disk, clock, Listener())
        node.listener = ReplicatedLog(node)
        again.attach(node.listener)
        node.listener.serve(again.log_user)
        again.load(node.end_position)
        again.start()
        await until(lambda: again.applied == node.end_position)
        for number in range(5):
            assert again.reader.max_offset("t", number) == 3
            assert again.reader.get("t", number, 0, 9, 10**6, None).count == 3
        await again.stop()
        assert disk.files["/s/consumequeue.clean"]

    asyncio.run(main())

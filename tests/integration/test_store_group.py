"""Three replicas with their stores: the same queues everywhere, through a change of leader."""

import asyncio
import socket

import uvloop

from dledger.config import DLedgerConfig
from dledger.node import DLedgerNode
from dledger.replicated_log import ReplicatedLog
from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from store.config import StoreConfig
from store.message_store import MessageStore
from store.results import PutStatus
from tests.unit.store.fakes import Listener, batch_of, message

DEADLINE_S = 30
NAMES = ("n0", "n1", "n2")


def free_addresses():
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in NAMES]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, ports, strict=True)}


class Replica:
    def __init__(self, root, name, peers):
        self.root = root / name
        self.root.mkdir(exist_ok=True)
        self.listener = Listener()
        self.node = DLedgerNode(
            DLedgerConfig(
                group="g",
                self_id=name,
                peers=peers,
                directory=str(self.root / "dledger"),
                data_segment_bytes=1 << 17,
                index_segment_bytes=32 * 1000,
                tick_ms=10,
            )
        )
        config = StoreConfig(
            directory=str(self.root), store_host=pack_host("127.0.0.1", 1), queue_file_bytes=2000
        )
        self.store = MessageStore(config, RealDisk(), SystemClock(), self.listener)
        self.log = ReplicatedLog(self.node)
        self.store.attach(self.log)
        self.log.serve(self.store.log_user)
        self.store.load()

    async def start(self):
        await self.node.start(self.log)
        self.store.start()

    async def stop(self):
        await self.store.stop()
        await self.node.stop()

    def queues(self):
        folder = self.root / "consumequeue"
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }


async def writable(replicas):
    async with asyncio.timeout(DEADLINE_S):
        while True:
            for replica in replicas:
                if replica.store.writer.writable:
                    return replica
            await asyncio.sleep(0.005)


async def put_many(replica, count):
    answers = []
    finished = asyncio.get_running_loop().create_future()

    def on_answer(*answer):
        answers.append(answer)
        if len(answers) == count:
            finished.set_result(answers)

    for number in range(count):
        replica.store.writer.put(message(topic=f"t{number % 3}", body=b"%d" % number), on_answer)
        if number % 50 == 0:
            await asyncio.sleep(0)
    await asyncio.wait_for(finished, DEADLINE_S)
    return answers


async def put_batches(replica, count, size):
    """Put batches one after the other, without waiting for the answer in between."""
    loop = asyncio.get_running_loop()
    answers = []
    for number in range(count):
        answered = loop.create_future()
        bodies = [b"%d" % (number * size + at) for at in range(size)]
        batch = batch_of([message(topic=f"t{number % 3}", body=body) for body in bodies])
        replica.store.writer.put_batch(batch, lambda *answer, to=answered: to.set_result(answer))
        answers.append(answered)
        await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.gather(*answers), DEADLINE_S)


def test_all_replicas_have_the_same_queues_and_state(tmp_path):
    async def main():
        peers = free_addresses()
        replicas = [Replica(tmp_path, name, peers) for name in NAMES]
        for replica in replicas:
            await replica.start()
        leader = await writable(replicas)
        answers = await put_many(leader, 900)
        assert {answer[0] for answer in answers} == {PutStatus.OK}
        leader.store.writer.propose_state("k", b"1", lambda status: None)
        tail = []
        for _ in range(20):
            leader.store.writer.put(message(topic="t0"), lambda *answer: tail.append(answer[0]))
        await leader.stop()
        assert tail == [PutStatus.UNKNOWN] * 20

        rest = [replica for replica in replicas if replica is not leader]
        second = await writable(rest)
        assert second.store.reader.max_offset("t1", 0) == 300
        answers = await put_many(second, 300)
        assert {answer[0] for answer in answers} == {PutStatus.OK}
        again = Replica(tmp_path, leader.node.self_id, peers)
        await again.start()
        replicas = [*rest, again]
        async with asyncio.timeout(DEADLINE_S):
            while {r.store.applied for r in replicas} != {second.node.end_position}:
                await asyncio.sleep(0.005)
        for replica in replicas:
            await replica.stop()
        return replicas

    replicas = uvloop.run(main())
    expected = replicas[0].queues()
    assert len(expected) >= 3
    assert all(replica.queues() == expected for replica in replicas)
    states = replicas[0].listener.states
    assert all(replica.listener.states == states for replica in replicas)


def test_puts_that_wait_at_a_leader_cut_off_become_unknown(tmp_path):
    """Not failed: whoever leads next may have them; and within one election timeout.

    That is in ticks of the leader: where the process stands still, hardly any pass.
    """

    async def main():
        peers = free_addresses()
        replicas = [Replica(tmp_path, name, peers) for name in NAMES]
        for replica in replicas:
            await replica.start()
        leader = await writable(replicas)
        await put_many(leader, 30)
        for replica in replicas:
            for peer, link in replica.node._transport._links.items():
                if leader.node.self_id in (peer, replica.node.self_id):
                    link.maybe_transport = lambda: None
        answers, ticks = [], []
        state = leader.node._raft.state
        begin = state.tick

        def answered(status, *_):
            answers.append(status)
            ticks.append(state.tick - begin)

        for _ in range(20):
            leader.store.writer.put(message(topic="t0"), answered)
        async with asyncio.timeout(DEADLINE_S):
            while len(answers) < 20:
                await asyncio.sleep(0.002)
        assert answers == [PutStatus.UNKNOWN] * 20
        assert max(ticks) <= 20 + 10, "an election timeout, and what was on its way"
        refused = []
        leader.store.writer.put(message(topic="t0"), lambda *answer: refused.append(answer[0]))
        assert refused == [PutStatus.NOT_LEADER]
        second = await writable([replica for replica in replicas if replica is not leader])
        assert {answer[0] for answer in await put_many(second, 30)} == {PutStatus.OK}
        for replica in replicas:
            await replica.stop()

    uvloop.run(main())


def test_followers_dispatch_by_the_notes_of_their_leader(tmp_path):
    async def main():
        peers = free_addresses()
        replicas = [Replica(tmp_path, name, peers) for name in NAMES]
        for replica in replicas:
            await replica.start()
        leader = await writable(replicas)
        await put_many(leader, 30)  # the first messages of a queue are looked into
        rest = [replica for replica in replicas if replica is not leader]
        await applied(rest, leader.node.commit_index)
        looked_into = {replica: [] for replica in rest}
        for replica in rest:
            watch(replica.node, looked_into[replica])
        await put_batches(leader, 90, 10)
        await applied(rest, leader.node.commit_index)
        for replica in replicas:
            await replica.stop()
        # A span that is sent again, after a stall of this machine, comes without its note.
        assert min(map(len, looked_into.values())) < 450
        assert rest[0].queues() == rest[1].queues() == leader.queues()

    uvloop.run(main())


async def applied(replicas, index):
    async with asyncio.timeout(DEADLINE_S):
        while min(replica.log.index_before(replica.store.applied) for replica in replicas) < index:
            await asyncio.sleep(0.005)


def watch(node, looked_into):
    """Note which entries are read back."""
    walk = node.reader.bodies

    def bodies(*bounds):
        for body in walk(*bounds):
            looked_into.append(body[0])
            yield body

    node.reader.bodies = bodies

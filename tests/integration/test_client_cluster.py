"""The client against real processes: two name servers, a group of three brokers, kills."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from chaos.backends.ports import take_ports
from ledgermq.client import (
    ClientConfig,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    Outcome,
    Producer,
    PullConsumer,
    PushConsumer,
    RemotingError,
    SendFailed,
)

ROOT = Path(__file__).resolve().parents[2]
GROUP = "RaftGroup0"
NODES = ("n0", "n1", "n2")
START_TIMEOUT_S = 60
OFFSETS_REPLICATED_S = 2
"""Brokers write committed offsets to the replicated log once a second."""


class Processes:
    """Two name servers and three brokers on free loopback ports."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        ports = iter(take_ports(8))
        self._namesrv = [next(ports) for _ in range(2)]
        self.listen = {node: next(ports) for node in NODES}
        self._raft = {node: next(ports) for node in NODES}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def namesrv_addrs(self) -> tuple[str, ...]:
        return tuple(f"127.0.0.1:{port}" for port in self._namesrv)

    def start(self) -> None:
        for port in self._namesrv:
            self._spawn(f"namesrv-{port}", "namesrv", "-p", str(port))
        for node in NODES:
            self.start_broker(node)

    def start_broker(self, node: str) -> None:
        peers = ";".join(f"{name}-127.0.0.1:{port}" for name, port in self._raft.items())
        settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": GROUP,
            "namesrvAddr": ";".join(self.namesrv_addrs),
            "listenPort": self.listen[node],
            "brokerIP1": "127.0.0.1",
            "storePathRootDir": self._directory / node,
            "enableDLegerCommitLog": "true",
            "dLegerGroup": GROUP,
            "dLegerSelfId": node,
            "dLegerPeers": peers,
            "flushDiskType": "ASYNC_FLUSH",
            "mappedFileSizeCommitLog": 16 * 1024 * 1024,
        }
        path = self._directory / f"{node}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._spawn(node, "broker", "-c", str(path))

    def node_at(self, addr: str) -> str:
        return next(node for node, port in self.listen.items() if addr.endswith(f":{port}"))

    def may_vote(self, node: str) -> bool:
        """Tell whether a broker of a new group was told that it may: before, two elect nobody."""
        return b" no_more" in (self._directory / f"{node}.log").read_bytes()

    def signal(self, name: str, number: int) -> None:
        os.kill(self._running[name].pid, number)
        if number == signal.SIGKILL:
            self._running.pop(name).wait(timeout=10)

    def stop(self) -> None:
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait(timeout=10)

    def _spawn(self, name: str, module: str, *arguments: str) -> None:
        with (self._directory / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", module, *arguments], cwd=ROOT, stdout=log, stderr=log
            )


@pytest.fixture
def processes(tmp_path):
    running = Processes(tmp_path)
    try:
        running.start()
        yield running
    finally:
        running.stop()


@contextlib.asynccontextmanager
async def started_producer(processes, topic):
    """A running producer, once the group has a leader, all may vote, and the topic exists."""
    config = ClientConfig(namesrv_addrs=processes.namesrv_addrs, group="it-producers")
    async with Producer(config) as producer:
        async with asyncio.timeout(START_TIMEOUT_S):
            while not (await exists(producer, topic) and all(map(processes.may_vote, NODES))):
                await asyncio.sleep(0.1)
        yield producer


async def exists(producer, topic):
    try:
        await producer.create_topic(topic, 4)
        return bool(await producer.fetch_publish_queues(topic))
    except RemotingError:
        return False


class Consumed:
    """A listener that counts bodies."""

    def __init__(self):
        self.bodies = Counter()
        self._changed = asyncio.Event()

    def __call__(self, messages, _context):
        self.bodies.update(message.body for message in messages)
        self._changed.set()
        return ConsumeStatus.CONSUME_SUCCESS

    async def has(self, expected):
        async with asyncio.timeout(20):
            while not expected <= self.bodies.keys():
                self._changed.clear()
                await self._changed.wait()


def push_consumer(processes, topic, listener):
    consumer = PushConsumer(
        ClientConfig(namesrv_addrs=processes.namesrv_addrs, group="it-consumers"),
        listener,
        ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET),
    )
    consumer.subscribe(topic)
    return consumer


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_leader_is_invisible_and_nothing_acknowledged_is_lost(processes, fault):
    async def body():
        consumed, acknowledged = Consumed(), set()
        async with (
            started_producer(processes, "failover") as producer,
            push_consumer(processes, "failover", consumed),
        ):

            async def work(worker):
                for i in range(300):
                    one = b"%d-%d" % (worker, i)
                    await producer.send(Message("failover", one), timeout_ms=30_000)
                    acknowledged.add(one)
                    if worker == 0 and i == 100:
                        leader = producer.routes.master(GROUP)
                        assert leader is not None
                        processes.signal(processes.node_at(leader), fault)

            await asyncio.gather(*[work(worker) for worker in range(8)])
            assert len(acknowledged) == 2_400
            await consumed.has(acknowledged)

    asyncio.run(body())


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_producer_stops_although_no_broker_is_left(processes, fault):
    async def body():
        config = ClientConfig(
            namesrv_addrs=processes.namesrv_addrs,
            group="it-stopped",
            stop_timeout_ms=300,
            send_timeout_ms=60_000,
        )
        producer = Producer(config)
        async with started_producer(processes, "stopped"), producer:
            await producer.send(Message("stopped", b"before"))
            for node in processes.listen:
                processes.signal(node, fault)
            sends = [
                asyncio.ensure_future(producer.send(Message("stopped", b"%d" % i)))
                for i in range(10)
            ]
            await asyncio.sleep(0)
            async with asyncio.timeout(10):
                await producer.stop()
            assert all(send.done() for send in sends)
            failures = await asyncio.gather(*sends, return_exceptions=True)
        assert {type(failure) for failure in failures} == {SendFailed}
        if fault == signal.SIGSTOP:
            assert {failure.outcome for failure in failures} == {Outcome.UNKNOWN}

    asyncio.run(body())


def test_a_group_keeps_its_offsets_when_the_leader_dies(processes):
    async def body():
        first, second = Consumed(), Consumed()
        async with started_producer(processes, "offsets") as producer:
            sent = {b"%d" % i for i in range(40)}
            for one in sorted(sent):
                await producer.send(Message("offsets", one))
            async with push_consumer(processes, "offsets", first):
                await first.has(sent)
            await asyncio.sleep(OFFSETS_REPLICATED_S)
            leader = producer.routes.master(GROUP)
            processes.signal(processes.node_at(leader), signal.SIGKILL)
            await producer.send(Message("offsets", b"last"), timeout_ms=8_000)
            async with push_consumer(processes, "offsets", second):
                await second.has({b"last"})
        assert set(second.bodies) == {b"last"}

    asyncio.run(body())


def test_members_of_a_group_share_a_topic(processes):
    async def body():
        first, second = Consumed(), Consumed()
        async with started_producer(processes, "shared") as producer:
            one = push_consumer(processes, "shared", first)
            two = push_consumer(processes, "shared", second)
            async with one, two:
                async with asyncio.timeout(15):
                    while not shares(one, "shared") == shares(two, "shared") == 2:
                        await asyncio.sleep(0.05)
                sent = {b"%d" % i for i in range(80)}
                for body in sorted(sent):
                    await producer.send(Message("shared", body))
                async with asyncio.timeout(15):
                    while first.bodies.keys() | second.bodies.keys() != sent:
                        await asyncio.sleep(0.05)
        assert sum(first.bodies.values()) == sum(second.bodies.values()) == 40

    asyncio.run(body())


def shares(consumer, topic):
    return sum(queue.topic == topic for queue in consumer.assigned_queues)


def test_the_examples_run(processes):
    async def body():
        async with started_producer(processes, "examples"):
            pass

    asyncio.run(body())
    produced = run_example(processes, "produce.py", "examples", "5")
    assert produced.count("after 1 attempt(s)") == 5
    assert run_example(processes, "pull.py", "examples").endswith("5 messages\n")
    consumed = run_example(processes, "consume.py", "examples", "2")
    assert sorted(line.split(": ")[1] for line in consumed.splitlines()) == [
        f"order {i}" for i in range(5)
    ]


def run_example(processes, name, *arguments):
    result = subprocess.run(
        [sys.executable, f"examples/{name}", ";".join(processes.namesrv_addrs), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=30,
        check=True,
        text=True,
    )
    return result.stdout


def test_pull_reads_batches_and_searches_by_time(processes):
    async def body():
        config = ClientConfig(namesrv_addrs=processes.namesrv_addrs, group="it-readers")
        async with (
            started_producer(processes, "pulled") as producer,
            PullConsumer(config) as reader,
        ):
            batch = [Message("pulled", b"%d" % i, tags="T") for i in range(10)]
            result = await producer.send_batch(batch)
            queue = result.queue
            assert (await reader.min_offset(queue), await reader.max_offset(queue)) == (0, 10)
            pulled = await reader.pull(queue, "T")
            assert [message.body for message in pulled.messages] == [m.body for m in batch]
            ids = [message.message_id() for message in pulled.messages]
            assert ids == result.msg_id.split(",")
            assert (await reader.pull(queue, "other")).messages == []
            stored_ms = pulled.messages[0].store_timestamp
            assert await reader.search_offset(queue, stored_ms) == 0
            assert await reader.search_offset(queue, stored_ms + 60_000) == 10
            await reader.commit_offset(queue, 6)
            assert await reader.fetch_offset(queue) == 6

    asyncio.run(body())

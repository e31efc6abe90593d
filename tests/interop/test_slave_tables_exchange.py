"""Tables between RocketMQ 4.9.7 and ours as master and slave of each other, and reads from slaves.

What the master knows of topics, groups, offsets and delays is in the files of the slave soon; then
the master is killed, and a consumer of ours goes on at the slave, whoever made it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from bench import java
from ledgermq.client import AdminClient, ClientConfig, Message, Producer
from ledgermq.remoting.protocol.tolerant_json import FILE, loads
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from tests.integration.test_slave_reads import Seen, consumer_of, holds, is_true, read_some
from tests.interop.plain_brokers import OurBroker, PlainBroker, Questions, RealBroker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TOPIC, GROUP, QUEUES, COUNT = "orders", "readers", 4, 80
TIMEOUT_S = 240.0
TABLES_S = 100.0


@pytest.fixture(scope="module", params=["4.9.7", "5.3.3"])
def tools(request: pytest.FixtureRequest) -> java.JavaTools:
    try:
        return java.prepare(request.param)
    except java.JavaUnavailableError as error:
        pytest.skip(f"exchange with the real broker skipped: {error}")


def settings(namesrv: str, number: int) -> dict[str, object]:
    return {
        "brokerClusterName": "C",
        "brokerName": "broker-a",
        "brokerId": number,
        "brokerRole": "SLAVE" if number else "ASYNC_MASTER",
        "namesrvAddr": namesrv,
        "mappedFileSizeCommitLog": 1 << 20,
        "mappedFileSizeConsumeQueue": 2000,
        "maxHashSlotNum": 1000,
        "maxIndexNum": 4000,
        "slaveReadEnable": "true",
        "haSendHeartbeatInterval": 500,
    }


class Pair:
    """What the helpers of slave reads need of brokers."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv

    def config(self, group: str, **more: Any) -> ClientConfig:
        return ClientConfig(namesrv_addrs=(self.namesrv,), group=group, **more)


def table(broker: PlainBroker, file: str, name: str) -> Any:
    """Return a table in a file of a broker, empty if there is none."""
    path = broker.store / "config" / file
    return loads(path.read_bytes(), FILE).get(name, {}) if path.exists() else {}


def numbers(row: dict[Any, int]) -> dict[int, int]:
    return {int(key): value for key, value in row.items()}


def are_told(slave: PlainBroker) -> bool:
    """Tell whether the files of a slave say what its master knows."""
    offsets = table(slave, "consumerOffset.json", "offsetTable").get(f"{TOPIC}@{GROUP}", {})
    topic = table(slave, "topics.json", "topicConfigTable").get(TOPIC, {})
    return (
        topic.get("readQueueNums") == QUEUES
        and GROUP in table(slave, "subscriptionGroup.json", "subscriptionGroupTable")
        and numbers(offsets) == dict.fromkeys(range(QUEUES), 10)
        and numbers(table(slave, "delayOffset.json", "offsetTable")).get(1) == 1
    )


async def check(make: Callable[[str, int], PlainBroker]) -> None:
    """Run a pair, fill its master, kill that, and read from the slave."""
    config = NamesrvConfig(listen_port=0, bind_address="127.0.0.1")
    server = NameServer(config, SystemClock(), RealDisk())
    pair = Pair(f"127.0.0.1:{await server.start()}")
    master, slave = make(pair.namesrv, 0), make(pair.namesrv, 1)
    try:
        await asyncio.to_thread(master.__enter__)
        await holds("registered", lambda: is_true(master.address in server.table.broker_addrs()))
        await asyncio.to_thread(slave.__enter__)
        sent = await fill(pair)
        before = await read_some(pair, GROUP, 10)  # type: ignore[arg-type]  # as much as it needs
        deadline = time.monotonic() + TABLES_S
        while not are_told(slave):
            assert time.monotonic() < deadline, "the slave's files do not say what the master knows"
            await asyncio.sleep(0.2)
        async with Questions(slave.address) as ask:
            end = COUNT // QUEUES
            found = [await ask.settled_limits(TOPIC, queue, end) for queue in range(QUEUES)]
            assert found == [(0, end)] * QUEUES
        master.kill()
        seen = Seen()
        async with consumer_of(pair, GROUP, seen):  # type: ignore[arg-type]  # as much as it needs
            rest = sent - before
            await holds("the rest, from the slave", lambda: is_true(set(seen.bodies) == rest))
    finally:
        slave.kill()
        master.kill()
        await server.stop()


async def fill(pair: Pair) -> set[bytes]:
    """Send messages, one of them delayed; return the bodies of a topic."""
    async with AdminClient(pair.config("admin")) as admin:
        await admin.create_topic(TOPIC, QUEUES)
    bodies = {b"%d" % number for number in range(COUNT)}
    async with Producer(pair.config("p", auto_batch=False)) as producer:
        places = Counter[int]()
        for body in sorted(bodies):
            places[(await producer.send(Message(TOPIC, body))).queue.queue_id] += 1
        assert places == dict.fromkeys(range(QUEUES), COUNT // QUEUES)
        await producer.send(Message("later", b"in a second", delay_level=1))
    return bodies


def test_a_slave_of_rocketmq_gets_the_tables_of_our_master(
    tmp_path: Path, tools: java.JavaTools
) -> None:
    def make(namesrv: str, number: int) -> PlainBroker:
        home = tmp_path / f"b{number}"
        if number:
            return RealBroker(tools, home, home / "store", settings(namesrv, number))
        return OurBroker(home, home / "store", settings(namesrv, number))

    asyncio.run(asyncio.wait_for(check(make), TIMEOUT_S))


def test_our_slave_gets_the_tables_of_a_master_of_rocketmq(
    tmp_path: Path, tools: java.JavaTools
) -> None:
    def make(namesrv: str, number: int) -> PlainBroker:
        home = tmp_path / f"b{number}"
        if number:
            return OurBroker(home, home / "store", settings(namesrv, number))
        return RealBroker(tools, home, home / "store", settings(namesrv, number))

    asyncio.run(asyncio.wait_for(check(make), TIMEOUT_S))

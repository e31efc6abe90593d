"""RocketMQ 4.9.7 and ours as master and slave of each other: the logs are the same byte for byte.

Slaves are killed and started again while messages come, masters once; what is compared in the end
are all files of both logs, and the queues that each has made of its own.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import pytest

from bench import java
from tests.interop.plain_brokers import OurBroker, PlainBroker, Questions, RealBroker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.interop

SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 256 * 1024,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "autoCreateTopicEnable": "true",
    "defaultTopicQueueNums": 4,
    "fileReservedTime": 100_000,
    "haSendHeartbeatInterval": 500,
}
QUEUES = 4
ROUND = 400
FOLLOW_S = 40.0


def prepared(version: str) -> java.JavaTools:
    try:
        return java.prepare(version)
    except java.JavaUnavailableError as error:
        pytest.skip(f"exchange with the real broker skipped: {error}")


@pytest.fixture(scope="module")
def tools() -> java.JavaTools:
    return prepared(java.VERSION)


@pytest.fixture(scope="module", params=[java.VERSION, "5.3.3"])
def masters(request: pytest.FixtureRequest) -> java.JavaTools:
    """What masters are made of. A slave of 5.3.3 finds its master by name servers alone.

    `test_slave_tables_exchange` has such ones.
    """
    return prepared(request.param)


def files(store: Path) -> dict[str, bytes]:
    """Return the files of a log in which something is written."""
    found = {path.name: path.read_bytes() for path in sorted((store / "commitlog").glob("0*"))}
    return {name: data for name, data in found.items() if any(data)}


def wait_equal(master: Path, slave: Path) -> None:
    deadline = time.monotonic() + FOLLOW_S
    while files(master) != files(slave):
        assert time.monotonic() < deadline, "the logs differ"
        time.sleep(0.2)


async def write(master: PlainBroker, round_: int) -> None:
    async with Questions(master.address) as ask:
        for number in range(ROUND):
            body = b"%d %d " % (round_, number) * (1 + number * 7 % 90)
            await ask.send("T", number % QUEUES, body, f"KEYS\x01k{round_}-{number}\x02")


async def confirmed(master: PlainBroker) -> None:
    """Wait until our master has a slave that confirms what it has."""
    deadline = time.monotonic() + FOLLOW_S
    async with Questions(master.address) as ask:
        while not any(
            one["confirms"] for one in json.loads((await ask.ask(29_001)).body)["slaves"]
        ):
            assert time.monotonic() < deadline, "no slave confirms"
            await asyncio.sleep(0.1)


async def limits(broker: PlainBroker, end: int) -> list[tuple[int, int]]:
    async with Questions(broker.address) as ask:
        return [await ask.settled_limits("T", queue, end) for queue in range(QUEUES)]


def follow(
    make_master: Callable[[], PlainBroker], make_slave: Callable[[PlainBroker], PlainBroker]
) -> None:
    """Write over three lives of the slave and two of the master, then compare."""
    master = make_master()
    rounds = 0
    with master:
        for _ in range(2):
            slave = make_slave(master)
            with slave:
                asyncio.run(write(master, rounds))
                rounds += 1
                if rounds == 1:
                    wait_equal(master.store, slave.store)
                slave.kill()
            asyncio.run(write(master, rounds))
            rounds += 1
        slave = make_slave(master)
        with slave:
            wait_equal(master.store, slave.store)
            master.stop()
            with master:
                asyncio.run(write(master, rounds))
                rounds += 1
                wait_equal(master.store, slave.store)
                end = rounds * ROUND // QUEUES
                expected = [(0, end)] * QUEUES
                assert asyncio.run(limits(master, end)) == expected
                assert asyncio.run(limits(slave, end)) == expected
                slave.stop()
                master.stop()
    ours, theirs = files(master.store), files(slave.store)
    assert len(ours) > 2
    assert ours == theirs


def of_slave(master: PlainBroker) -> dict[str, object]:
    address = f"127.0.0.1:{master.port + 1}"
    return {**SETTINGS, "brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": address}


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_a_slave_of_rocketmq_follows_our_master(
    tmp_path: Path, tools: java.JavaTools, role: str
) -> None:
    # A synchronous master alone answers 11 meanwhile, which `Questions.send` takes for a refusal.
    settings = {**SETTINGS, "brokerRole": role}
    if role == "SYNC_MASTER":
        with OurBroker(tmp_path / "m", tmp_path / "m/store", settings) as master:
            home = tmp_path / "s"
            # RocketMQ's own default: its first report comes that long after it has connected.
            settings = {**of_slave(master), "haSendHeartbeatInterval": 5_000}
            with RealBroker(tools, home, home / "store", settings) as slave:
                asyncio.run(confirmed(master))
                asyncio.run(write(master, 0))
                wait_equal(master.store, slave.store)
        return
    follow(
        lambda: OurBroker(tmp_path / "m", tmp_path / "m/store", settings),
        lambda master: RealBroker(tools, tmp_path / "s", tmp_path / "s/store", of_slave(master)),
    )


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_our_slave_follows_a_master_of_rocketmq(
    tmp_path: Path, masters: java.JavaTools, role: str
) -> None:
    settings = {**SETTINGS, "brokerRole": role}
    if role == "SYNC_MASTER":
        master = RealBroker(masters, tmp_path / "m", tmp_path / "m/store", settings)
        slave = OurBroker(tmp_path / "s", tmp_path / "s/store", of_slave(master))
        with master, slave:
            asyncio.run(write(master, 0))
            wait_equal(master.store, slave.store)
        return
    follow(
        lambda: RealBroker(masters, tmp_path / "m", tmp_path / "m/store", settings),
        lambda master: OurBroker(tmp_path / "s", tmp_path / "s/store", of_slave(master)),
    )

"""One directory, two brokers in turn: RocketMQ 4.9.7 and ours; nothing is lost on the way.

Both write and both read, after clean stops and after kills. What is read is compared with what was
acknowledged: bodies, queue offsets, physical offsets, consumer offsets.
"""

from __future__ import annotations

import asyncio
import tarfile
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from bench import java
from tests import fixtures
from tests.interop.plain_brokers import OurBroker, PlainBroker, Questions, RealBroker

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.interop

SETTINGS: dict[str, object] = {
    # So small that all roll several times.
    "mappedFileSizeCommitLog": 256 * 1024,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "flushDiskType": "ASYNC_FLUSH",
    "autoCreateTopicEnable": "true",
    "defaultTopicQueueNums": 4,
    "fileReservedTime": 100_000,
}
QUEUES = 4
ROUND = 240
#: RocketMQ writes consumer offsets after ten seconds, then every five.
OFFSETS_S = 11.0


@pytest.fixture(scope="module")
def tools() -> java.JavaTools:
    try:
        return java.prepare()
    except java.JavaUnavailableError as error:
        pytest.skip(f"exchange with the real broker skipped: {error}")


class Stored(NamedTuple):
    """A message that was acknowledged."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes


class Exchange:
    """What all brokers together have acknowledged."""

    def __init__(self) -> None:
        self.stored: list[Stored] = []
        self.places: dict[tuple[str, int, int], int] = {}
        self.offsets: dict[tuple[str, int], int] = {}

    async def write(self, broker: PlainBroker, who: str) -> None:
        async with Questions(broker.address) as ask:
            for number in range(ROUND):
                topic = "shared" if number % 3 else f"of-{who}"
                body = b"%s %d " % (who.encode(), len(self.stored)) * (1 + number * 7 % 90)
                keys = f"KEYS\x01k{len(self.stored)}\x02TAGS\x01t{number % 3}\x02"
                queue_id = number % QUEUES
                offset = await ask.send(topic, queue_id, body, keys)
                self.stored.append(Stored(topic, queue_id, offset, body))
            for queue_id in range(QUEUES):
                offset = sum(1 for m in self.stored if m[:2] == ("shared", queue_id)) // 2
                fields = {"topic": "shared", "consumerGroup": "g", "queueId": queue_id}
                answer = await ask.ask(15, **fields, commitOffset=offset)
                assert answer.code == 0, answer
                self.offsets["shared", queue_id] = offset

    async def check(self, broker: PlainBroker) -> None:
        async with Questions(broker.address) as ask:
            queues: dict[tuple[str, int], list[Stored]] = {}
            for message in self.stored:
                queues.setdefault(message[:2], []).append(message)
            for (topic, queue_id), messages in queues.items():
                limits = await ask.settled_limits(topic, queue_id, len(messages))
                assert limits == (0, len(messages)), (topic, queue_id)
                records = await ask.read_all(topic, queue_id)
                assert [r.queue_offset for r in records] == [m.queue_offset for m in messages]
                assert [r.body for r in records] == [m.body for m in messages]
                for record in records:
                    key = (topic, queue_id, record.queue_offset)
                    place = self.places.setdefault(key, record.physical_offset)
                    assert place == record.physical_offset
                by_id = await ask.ask(33, offset=records[-1].physical_offset)
                assert by_id.code == 0, by_id
            for number in range(0, len(self.stored), 17):
                message = self.stored[number]
                assert message.body in await ask.find(message.topic, f"k{number}"), number
            for (topic, queue_id), offset in self.offsets.items():
                fields = {"topic": topic, "consumerGroup": "g", "queueId": queue_id}
                answer = await ask.ask(14, **fields)
                assert (answer.code, answer.ext_fields.get("offset")) == (0, str(offset)), answer


def run(broker: PlainBroker, exchange: Exchange, who: str, how: str) -> None:
    """Check what is there, write, check again, and end the broker."""
    with broker:

        async def work() -> None:
            await exchange.check(broker)
            await exchange.write(broker, who)
            await exchange.check(broker)

        asyncio.run(work())
        if how == "kill later":
            time.sleep(OFFSETS_S)
        elif how == "kill at once":
            exchange.offsets.clear()
        (broker.stop if how == "stop" else broker.kill)()
    if how == "stop":
        assert not (broker.store / "abort").exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "kill later", "kill at once"])
def test_each_reads_what_the_other_wrote(tools: java.JavaTools, tmp_path: Path, how: str) -> None:
    """Consumer offsets are in files after some seconds: with a kill at once they are not compared.

    RocketMQ writes new topics at once, and so do we, a moment later.
    """
    store = tmp_path / "store"
    exchange = Exchange()
    for turn in range(4):
        who = "real" if turn % 2 else "ours"
        home = tmp_path / f"{turn}-{who}"
        broker: PlainBroker = (
            RealBroker(tools, home, store, SETTINGS)
            if who == "real"
            else OurBroker(home, store, SETTINGS)
        )
        run(broker, exchange, who, how)
    last = OurBroker(tmp_path / "last", store, SETTINGS)
    with last:
        asyncio.run(exchange.check(last))
        last.stop()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clean", "killed"])
def test_a_recorded_directory_goes_to_us_and_back(
    tools: java.JavaTools, tmp_path: Path, name: str
) -> None:
    with tarfile.open(fixtures.store(f"master-4.9.7-{name}")) as archive:
        archive.extractall(tmp_path, filter="data")
    store = tmp_path / "store"
    sizes = {**SETTINGS, "maxHashSlotNum": 100, "maxIndexNum": 400}
    exchange = Exchange()
    for number in range(2):
        run_ours = OurBroker(tmp_path / f"ours{number}", store, sizes)
        run(run_ours, exchange, "ours", "stop")
        real = RealBroker(tools, tmp_path / f"real{number}", store, sizes)
        with real:
            asyncio.run(exchange.check(real))
            asyncio.run(_check_recorded(real))
            real.stop()


async def _check_recorded(broker: PlainBroker) -> None:
    async with Questions(broker.address) as ask:
        missing = set()
        queues = set()
        for line in fixtures.stored_messages("master-4.9.7"):
            if "queue" in line:
                queue = line["queue"]
                queues.add((queue["topic"], queue["queueId"], queue["min"], queue["max"]))
            else:
                missing.add((line["topic"], line["queueId"], line["queueOffset"], line["msgId"]))
        for topic, queue_id, low, high in sorted(queues):
            assert await ask.settled_limits(topic, queue_id, high) == (low, high)
            for record in await ask.read_all(topic, queue_id):
                missing.remove((topic, queue_id, record.queue_offset, record.message_id()))
        assert not missing


@pytest.mark.slow
def test_only_one_of_them_at_a_time(tools: java.JavaTools, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with OurBroker(tmp_path / "ours", store, SETTINGS):
        real = RealBroker(tools, tmp_path / "real", store, SETTINGS)
        with pytest.raises(AssertionError, match="Lock failed"), real:
            pass
    with real:
        late = OurBroker(tmp_path / "late", store, SETTINGS)
        with pytest.raises(AssertionError, match="Stop that broker"), late:
            pass
        assert real.process.poll() is None

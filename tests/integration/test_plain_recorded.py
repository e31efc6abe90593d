"""The stores of a real RocketMQ 4.9.7 master, opened by our broker: nothing is missing.

Each is read as its Java client read it, written to, stopped cleanly or not, and opened again.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import tarfile
import time
from typing import TYPE_CHECKING, Any

import pytest

from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.remoting.protocol.message import MessageExt, decode_records, encode_record
from ledgermq.remoting.protocol.tolerant_json import FILE, loads
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.layout import UNIT
from tests import fixtures
from tests.integration.broker_cluster import until
from tests.integration.plain_broker import Plain, copy_running, plain

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["clean", "killed"]
HOST = pack_host("127.0.0.1", 10911)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recorded")
    for name in NAMES:
        with tarfile.open(fixtures.store(f"master-4.9.7-{name}")) as archive:
            archive.extractall(root / name, filter="data")
    return root


@pytest.fixture(scope="module")
def lines() -> tuple[dict[tuple[str, int], Any], dict[tuple[str, int, int], Any]]:
    """Queues and messages, as the Java client found them."""
    queues, messages = {}, {}
    for line in fixtures.stored_messages("master-4.9.7"):
        if "queue" in line:
            queues[line["queue"]["topic"], line["queue"]["queueId"]] = line["queue"]
        else:
            messages[line["topic"], line["queueId"], line["queueOffset"]] = line
    return queues, messages


Lines = tuple[dict[tuple[str, int], Any], dict[tuple[str, int, int], Any]]


def copied(recorded: Path, tmp_path: Path, name: str) -> Path:
    shutil.copytree(recorded / name / "store", tmp_path / "store")
    return tmp_path / "store"


async def check_all(broker: Plain, lines: Lines, more: int = 0) -> None:
    """Read everything there is; ``more`` messages are ours."""
    queues, messages = lines
    missing = dict(messages)
    for (topic, queue_id), limit in queues.items():
        assert await broker.limits(topic, queue_id) == (limit["min"], limit["max"])
        for record in await broker.read_all(topic, queue_id):
            line = missing.pop((topic, queue_id, record.queue_offset))
            assert record.physical_offset == line["commitLogOffset"]
            assert record.size == line["storeSize"]
            assert record.message_id() == line["msgId"]
            assert record.offset_message_id() == line["offsetMsgId"]
            assert record.content() == base64.b64decode(line["bodyBase64"])
            assert record.store_timestamp == line["storeTimestamp"]
    assert not missing
    bodies = [record.body for record in await broker.read_all("ours", 0)] if more else []
    assert bodies == [b"%d" % number * 50 for number in range(more)]


async def write(broker: Plain, first: int, count: int) -> None:
    for number in range(first, first + count):
        assert await broker.send("ours", 0, b"%d" % number * 50) == number


@pytest.mark.parametrize("name", NAMES)
def test_every_message_is_served_and_what_we_add(
    recorded: Path, lines: Lines, tmp_path: Path, name: str
) -> None:
    store = copied(recorded, tmp_path, name)

    async def main() -> None:
        for times in range(3):
            async with plain(store) as broker:
                assert (store / "abort").exists()
                await check_all(broker, lines, 100 * times)
                await write(broker, 100 * times, 100)
            assert not (store / "abort").exists()

    asyncio.run(main())


@pytest.mark.parametrize("name", NAMES)
def test_messages_are_found_by_id_and_by_time(
    recorded: Path, lines: Lines, tmp_path: Path, name: str
) -> None:
    store = copied(recorded, tmp_path, name)
    queues, messages = lines

    async def main() -> None:
        async with plain(store) as broker:
            for line in list(messages.values())[::25]:
                answer = await broker.ask(33, offset=line["commitLogOffset"])
                assert answer.code == 0
                (record,) = decode_records(answer.body, check_crc=True)
                assert record.offset_message_id() == line["offsetMsgId"]
            for (topic, queue_id), limit in queues.items():
                if limit["max"] == limit["min"]:
                    continue
                of_queue = sorted(
                    (line["queueOffset"], line["storeTimestamp"])
                    for (t, q, _), line in messages.items()
                    if (t, q) == (topic, queue_id)
                )
                earliest = await broker.ask(32, topic=topic, queueId=queue_id)
                assert int(earliest.ext_fields["timestamp"]) == of_queue[0][1]
                for offset, stored in {of_queue[0], of_queue[len(of_queue) // 2], of_queue[-1]}:
                    found = await broker.offset(29, topic=topic, queueId=queue_id, timestamp=stored)
                    # Several may be of that millisecond.
                    assert dict(of_queue)[found] == stored, (topic, queue_id, offset, found)

    asyncio.run(main())


def delays(data: bytes) -> dict[str, int]:
    """Return how far each level of RocketMQ's ``delayOffset.json`` is delivered."""
    table = loads(data, FILE)["offsetTable"]
    assert table
    return {str(level): offset for level, offset in table.items()}


def test_offsets_groups_and_topics_are_taken_over(recorded: Path, tmp_path: Path) -> None:
    store = copied(recorded, tmp_path, "killed")
    before = {
        name: (store / "config" / name).read_bytes()
        for name in ("delayOffset.json", "consumerFilter.json", "topics.json")
    }

    async def main() -> None:
        async with plain(store) as broker:
            query = {"consumerGroup": "cg_push", "topic": "fx_push_d7kpb", "queueId": 1}
            assert await broker.offset(14, **query) == 12
            tables = broker.controller.tables
            assert tables.groups.get("cg_push") is not None
            topic = tables.topics.get("fx_reb_d6pp8")
            assert topic is not None
            assert topic.write_queues == 8
            await broker.ask(15, **query, commitOffset=7)
            await until(lambda: not tables.offsets.has_pending, "a replicated offset")
        assert (store / "config/topics.json.bak").read_bytes() == before["topics.json"]
        async with plain(store) as broker:
            assert await broker.offset(14, **query) == 7

    asyncio.run(main())
    assert (store / "config/consumerFilter.json").read_bytes() == before["consumerFilter.json"]
    assert delays((store / "config/delayOffset.json").read_bytes()) == delays(
        before["delayOffset.json"]
    )
    topics = json.loads((store / "config/topics.json").read_text())["topicConfigTable"]
    assert topics.keys() >= json.loads(before["topics.json"])["topicConfigTable"].keys()


def test_directory_that_was_not_left_cleanly_is_opened_again(
    recorded: Path, lines: Lines, tmp_path: Path
) -> None:
    """A copy of the files of a running broker is what a crash leaves."""
    store = copied(recorded, tmp_path, "clean")

    async def main() -> None:
        for times in range(3):
            crashed = tmp_path / f"crashed{times}"
            async with plain(store) as broker:
                await write(broker, 0, 150)
                if times:
                    await broker.controller.store.checkpoints.write()
                if times > 1:
                    await write(broker, 150, 30)
                copy_running(store, crashed)
            count = 180 if times > 1 else 150
            async with plain(crashed) as broker:
                await check_all(broker, lines, count)
                await write(broker, count, 10)
            async with plain(crashed) as broker:
                await check_all(broker, lines, count + 10)
            shutil.rmtree(store)
            shutil.copytree(recorded / "clean" / "store", store)

    asyncio.run(main())


def make_again(store: Path, bodies: list[bytes]) -> None:
    """Do what RocketMQ does when a topic is deleted and made again, and is killed then."""
    segment = next(p for p in sorted((store / "commitlog").iterdir())[::-1] if any(p.read_bytes()))
    data = bytearray(segment.read_bytes())
    at, units = len(bytes(data).rstrip(b"\0")), b""
    for number, body in enumerate(bodies):
        now = int(time.time() * 1000)
        place = int(segment.name) + at
        message = MessageExt("ours", 0, 0, 0, number, place, now, HOST, now, HOST, 0, 0, body, b"")
        record = encode_record(message)
        data[at : at + len(record)] = record
        units += UNIT.pack(place, len(record), 0)
        at += len(record)
    assert len(data) == segment.stat().st_size
    segment.write_bytes(data)
    (queue,) = (store / "consumequeue/ours/0").iterdir()
    queue.write_bytes(units.ljust(queue.stat().st_size, b"\0"))
    topics = json.loads((store / "config/topics.json").read_text())
    del topics["ledgerIndex"]
    (store / "config/topics.json").write_text(json.dumps(topics))
    (store / "abort").touch()


def left_of_a_topic_made_again(store: Path) -> list[bytes]:
    async def main() -> list[bytes]:
        async with plain(store) as broker:
            await write(broker, 0, 30)
        make_again(store, [b"new 0", b"new 1"])
        async with plain(store) as broker:
            return [bytes(record.body) for record in await broker.read_all("ours", 0)]

    return asyncio.run(main())


def test_a_topic_that_rocketmq_made_again_before_it_was_killed(
    recorded: Path, tmp_path: Path
) -> None:
    """What our checkpoint says of its queues is of the topic before."""
    store = copied(recorded, tmp_path, "clean")
    assert left_of_a_topic_made_again(store) == [b"new 0", b"new 1"]
    store = copied(recorded, tmp_path / "planted", "clean")
    with planted(BY_TESTS["queues-made-anew-not-seen-after-a-kill"]):
        assert left_of_a_topic_made_again(store) != [b"new 0", b"new 1"]


def test_what_only_rocketmq_knows_is_left_alone(recorded: Path, tmp_path: Path) -> None:
    store = copied(recorded, tmp_path, "clean")
    light = store / "consumequeue/%LMQ%device/0/00000000000000000000"
    others = [
        light,
        store / "consumequeue_ext/t/0/00000000000000000000",
        store / "config/timercheck",
        store / "timerwheel",
    ]
    for path in others:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(path.name.encode().ljust(2000, b"x"))

    async def main() -> None:
        for _ in range(2):
            async with plain(store) as broker:
                await write(broker, await _end(broker), 3)
            for path in others:
                assert path.read_bytes() == path.name.encode().ljust(2000, b"x")

    asyncio.run(main())


async def _end(broker: Plain) -> int:
    return (await broker.limits("ours", 0))[1]

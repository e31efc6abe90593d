"""Why a consumer gets nothing, and what it must get: our client and a broker, real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

import pytest

from ledgermq import (
    ClientConfig,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    LitePullConsumer,
    LitePullOptions,
    Message,
    MessageModel,
    Producer,
    PullConsumer,
    PushConsumer,
)
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.broker_cluster import Cluster, cluster, until

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "goods"
FIRST = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
COUNT = 8


def config(group: Cluster, name: str, **settings: object) -> ClientConfig:
    address = f"127.0.0.1:{group._namesrv_port}"
    return ClientConfig(namesrv_addrs=(address,), group=name, **settings)


async def set_group(group: Cluster, name: str, **flags: object) -> None:
    answer = await group.ask(0, 200, json.dumps({"groupName": name, **flags}).encode())
    assert answer.code == 0


async def send(group: Cluster, count: int, tags: str) -> None:
    async with Producer(config(group, "producers")) as producer:
        await producer.create_topic(TOPIC, 1)
        for number in range(count):
            await producer.send(Message(TOPIC, b"%s %d" % (tags.encode(), number), tags))


def run(tmp_path: Path, body) -> None:
    async def main() -> None:
        async with cluster(tmp_path, 1) as group:
            await group.leader()
            await body(group)

    asyncio.run(main())


async def changed(group: Cluster, name: str, lite: bool) -> list[bytes]:
    """Return what comes of a tag that is sent once a consumer has changed to it."""
    got: list[bytes] = []

    def listen(messages: list, _context: object) -> ConsumeStatus:
        got.extend(message.body for message in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    options = LitePullOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer = (
        LitePullConsumer(config(group, name), options)
        if lite
        else PushConsumer(config(group, name), listen, FIRST)
    )
    await send(group, 1, "red")
    consumer.subscribe(TOPIC, "red")

    async def poll() -> None:
        while True:
            got.extend(message.body for message in await consumer.poll())

    async with consumer:
        polling = asyncio.create_task(poll()) if lite else None
        await until(lambda: bool(got), "what the first expression wants")
        await asyncio.sleep(0.1)  # a pull waits at the end of the queue now
        got.clear()
        consumer.subscribe(TOPIC, "blue")
        await send(group, COUNT, "blue")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3):
                while len(got) < COUNT:
                    await asyncio.sleep(0.02)
        if polling is not None:
            polling.cancel()
    return got


@pytest.mark.parametrize("lite", [False, True])
def test_nothing_that_a_new_expression_wants_is_passed_over(tmp_path: Path, lite: bool) -> None:
    async def body(group: Cluster) -> None:
        assert len(await changed(group, "sound", lite)) == COUNT
        # A broker answers a held pull anew, too: only where neither side does messages are lost.
        with (
            planted(BY_TESTS["changed-expression-passes-over"]),
            planted(BY_TESTS["held-by-what-was-wanted"]),
        ):
            assert len(await changed(group, "planted", lite)) < COUNT

    run(tmp_path, body)


async def why(group: Cluster, name: str, options: ConsumeOptions = FIRST) -> list[str]:
    """Return why a consumer gets nothing of a topic that has something."""
    got: list[object] = []

    def listen(messages: list, _context: object) -> ConsumeStatus:
        got.extend(messages)
        return ConsumeStatus.CONSUME_SUCCESS

    consumer = PushConsumer(config(group, name), listen, options)
    consumer.subscribe(TOPIC)
    async with consumer:
        await consumer.wait_joined()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3):
                while not consumer.problems:
                    await asyncio.sleep(0.02)
        assert got == []
        said = [str(error) for topic, error in consumer.problems.items() if topic == TOPIC]
        await set_group(group, name)
        if said:
            await until(lambda: bool(got) and not consumer.problems, "the end of the reason")
        return said


@pytest.mark.parametrize("flag", ["consumeEnable", "consumeBroadcastEnable"])
def test_a_group_that_may_not_consume_is_told_why(
    tmp_path: Path, flag: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(group: Cluster) -> None:
        model = MessageModel.BROADCASTING if "Broad" in flag else MessageModel.CLUSTERING
        options = ConsumeOptions(
            consume_from=ConsumeFrom.FIRST_OFFSET, model=model, local_offsets_dir=str(tmp_path)
        )
        await send(group, 1, "red")
        await set_group(group, "off", **{flag: False})
        (said,) = await why(group, "off", options)
        assert said.startswith("code 16 NO_PERMISSION")
        warned = [r for r in caplog.records if "event=not_consumed" in r.getMessage()]
        assert len([r for r in warned if f"topic={TOPIC}" in r.getMessage()]) == 1
        await set_group(group, "mute", **{flag: False})
        with planted(BY_TESTS["refused-pull-unsaid"]):
            assert await why(group, "mute", options) == []

    run(tmp_path, body)


async def dead_letters(group: Cluster, name: str) -> int:
    """Return how many dead letters a group without retries has once its listener has failed."""
    calls: list[object] = []

    def fail(messages: list, _context: object) -> ConsumeStatus:
        calls.extend(messages)
        return ConsumeStatus.RECONSUME_LATER

    await set_group(group, name, retryMaxTimes=0)
    consumer = PushConsumer(config(group, name), fail, FIRST)
    consumer.subscribe(TOPIC)
    async with consumer:
        await until(lambda: bool(calls), "the listener's call")
    async with PullConsumer(config(group, "reader")) as reader:
        if not await group.route(f"%DLQ%{name}"):
            return 0
        queues = await reader.fetch_subscribe_queues(f"%DLQ%{name}")
        return sum([await reader.max_offset(queue) for queue in queues])


def test_the_limit_of_the_group_counts_where_a_consumer_has_none(tmp_path: Path) -> None:
    async def body(group: Cluster) -> None:
        await send(group, 1, "red")
        assert await dead_letters(group, "sound") == 1
        with planted(BY_TESTS["own-limit-always"]):
            assert await dead_letters(group, "planted") == 0

    run(tmp_path, body)


def test_two_processes_of_one_name_are_told_that_they_share(tmp_path, caplog, monkeypatch) -> None:
    """They have one client id, which brokers list twice: both read the same half of the queues."""
    monkeypatch.setattr("ledgermq.client.hindrances.TWIN_MS", 0)
    monkeypatch.setattr("ledgermq.client.push.PushConsumer._warn_of_twin", lambda _: None)

    def warned() -> int:
        return caplog.text.count("event=duplicate_instance")

    async def body(group: Cluster) -> None:
        await send(group, 1, "red")
        settings = {"instance_name": "a", "rebalance_ms": 50}
        async with contextlib.AsyncExitStack() as stack:
            for alone in (True, False):
                listen = lambda *_: ConsumeStatus.CONSUME_SUCCESS  # noqa: E731 - of no interest
                consumer = PushConsumer(config(group, "twins", **settings), listen, FIRST)
                consumer.subscribe(TOPIC)
                await stack.enter_async_context(consumer)
                if alone:
                    await asyncio.sleep(0.3)
                    assert warned() == 0
            await until(lambda: warned() >= 2, "a warning of each")

    with caplog.at_level("WARNING"):
        run(tmp_path, body)
    assert warned() == 2

"""Groups of concurrent sends at real brokers: each message is found where its own result says."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from ledgermq.client import (
    ClientConfig,
    Message,
    MessageFinder,
    MessageQueue,
    Producer,
    PullConsumer,
    RemotingError,
    SendResult,
)
from ledgermq.remoting.protocol.message import MessageExt, offset_message_id
from tests.integration.broker_cluster import cluster

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "grouped"
ROUNDS, AT_ONCE = 5, 90
START_TIMEOUT_S = 60
DISPATCH_TIMEOUT_S = 60

Sent = list[tuple[Message, SendResult]]


def message(number: int) -> Message:
    """Return a message, some with all that a message can have."""
    body = b"%d " % number * (1 + number * 7 % 90)
    if number % 3:
        return Message(TOPIC, body)
    return Message(TOPIC, body, f"t{number % 2}", f"k{number} all", {"a": "é"}, flag=-number)


async def send_in_groups(config: ClientConfig) -> Sent:
    """Send, many at once, and return what was acknowledged; checks that requests were shared."""
    messages = [message(number) for number in range(ROUNDS * AT_ONCE)]
    results: list[SendResult] = []
    async with Producer(config) as producer:
        async with asyncio.timeout(START_TIMEOUT_S):
            first = None
            while first is None:
                try:
                    first = await producer.send(messages[0])
                except RemotingError:
                    await asyncio.sleep(0.1)
        for begin in range(0, len(messages), AT_ONCE):
            at_once = messages[begin : begin + AT_ONCE]
            results += await asyncio.gather(*map(producer.send, at_once))
    assert len({id(result.attempts) for result in results}) < len(messages) / 10
    return [(messages[0], first), *zip(messages, results, strict=True)]


async def read_all(config: ClientConfig) -> dict[tuple[MessageQueue, int], MessageExt]:
    """Return every message of the topic by its place."""
    found = {}
    async with PullConsumer(config) as reader:
        for queue in await reader.fetch_subscribe_queues(TOPIC):
            offset, end = 0, await reader.max_offset(queue)
            while offset < end:
                pulled = await reader.pull(queue, "*", offset, 32)
                assert pulled.next_offset > offset
                offset = pulled.next_offset
                found |= {(queue, one.queue_offset): one for one in pulled.messages}
    return found


async def read_all_of(
    config: ClientConfig, count: int, within_s: float = DISPATCH_TIMEOUT_S
) -> dict[tuple[MessageQueue, int], MessageExt]:
    """Read until there are ``count``: RocketMQ fills queues a moment after it has acknowledged."""
    deadline = time.monotonic() + within_s
    while len(found := await read_all(config)) < count and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    return found


async def check_each_is_where_its_result_says(config: ClientConfig, sent: Sent) -> None:
    """Compare what is stored with what was acknowledged: each message once, under its ids."""
    found = await read_all_of(config, len(sent))
    assert len(found) == len(sent)
    for original, result in sent:
        stored = found.pop((result.queue, result.queue_offset))
        assert stored.body == original.body
        assert stored.message_id() == result.msg_id
        stored_id = offset_message_id(stored.store_host, stored.physical_offset)
        assert stored_id == result.offset_msg_id
        assert stored.flag == original.flag
        assert (stored.maybe_property("TAGS") or "") == original.tags
        assert (stored.maybe_property("KEYS") or "") == original.keys
        assert stored.maybe_property("a") == original.properties.get("a")
    async with MessageFinder(config) as finder:
        for original, result in sent[:: len(sent) // 7]:
            by_id = await finder.by_id(result.offset_msg_id)
            assert by_id is not None
            assert by_id.body == original.body


@pytest.mark.parametrize("replicas", [1, 3])
def test_every_member_of_a_group_is_stored_once_where_its_result_says(
    tmp_path: Path, replicas: int
) -> None:
    async def main() -> None:
        async with cluster(tmp_path, replicas) as group:
            await group.leader()
            addrs = (f"127.0.0.1:{group._namesrv_port}",)
            config = ClientConfig(namesrv_addrs=addrs, group="grouping")
            await check_each_is_where_its_result_says(config, await send_in_groups(config))

    asyncio.run(main())

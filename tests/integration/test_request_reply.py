"""Requests of one client, replied to by another, through real brokers and a change of leader."""

from __future__ import annotations

import ast
import asyncio
import contextlib
from pathlib import Path

import pytest

from ledgermq.client import (
    ClientConfig,
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageExt,
    NoReply,
    Producer,
    PushConsumer,
    RemotingError,
    SendFailed,
)
from tests.integration.broker_cluster import Cluster, cluster

TOPIC = "questions"
OPTIONS = ConsumeOptions(
    consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=1_000, pull_timeout_ms=5_000
)


def config_of(group: Cluster, name: str) -> ClientConfig:
    return ClientConfig(
        namesrv_addrs=(group.config(0).namesrv_addr,), group=name, rebalance_ms=500,
        persist_offset_ms=200, leader_check_ms=200,
    )  # fmt: skip


async def answered(asker: Producer, text: bytes, *, within_s: float = 30) -> MessageExt:
    """Ask until there is a reply; a request may be lost with its leader."""
    async with asyncio.timeout(within_s):
        while True:
            try:
                return await asker.request(Message(TOPIC, text), 2_000)
            except (NoReply, SendFailed):
                continue


def test_the_documented_request_gets_its_reply(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The code of docs/client.md, as it stands there but for the address."""
    text = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
    section = text.partition("\n## Requests and replies\n")[2]
    code = section.partition("```python\n")[2].partition("```")[0]

    async def body() -> None:
        async with cluster(tmp_path) as group:
            await group.leader()
            address = group.config(0).namesrv_addr
            async with Producer(config_of(group, "preparing")) as producer:
                await answered_route(producer)
            ours = code.replace("127.0.0.1:9876", address)
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            await eval(compile(ours, "docs/client.md", "exec", flags=flags), {})

    asyncio.run(body())
    assert capsys.readouterr().out == "b'42 for tea'\n"


async def answered_route(producer: Producer) -> None:
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(RemotingError):
                await producer.create_topic("prices", 1)
                return
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("count", [1, 3])
def test_requests_are_replied_to_whoever_leads(tmp_path: Path, count: int) -> None:
    async def body() -> None:
        async with (
            cluster(tmp_path, count) as group,
            Producer(config_of(group, "askers")) as asker,
            Producer(config_of(group, "repliers")) as replier,
        ):
            await group.leader()

            async def listen(messages: list[MessageExt], _context: ConsumeContext) -> ConsumeStatus:
                for message in messages:
                    try:
                        await replier.reply(message, b"re:" + message.body)
                    except SendFailed:
                        continue  # Who asked is gone.
                return ConsumeStatus.CONSUME_SUCCESS

            consumer = PushConsumer(config_of(group, "answering"), listen, OPTIONS)
            consumer.subscribe(TOPIC)
            async with consumer:
                reply = await answered(asker, b"first")
                assert reply.body == b"re:first"
                assert reply.topic == "C_REPLY_TOPIC"
                texts = [b"%d" % number for number in range(40)]
                replies = await asyncio.gather(*(answered(asker, text) for text in texts))
                assert [one.body for one in replies] == [b"re:" + text for text in texts]
                if count > 1:
                    await group.stop(await group.leader())
                    reply = await answered(asker, b"after the leader")
                    assert reply.body == b"re:after the leader"

    asyncio.run(body())

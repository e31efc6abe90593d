"""RocketMQ's own mqadmin reads the traces of our client, from our broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from bench import java
from ledgermq.client import ClientConfig, Message, Producer, PushConsumer
from tests.integration.test_request_reply import answered_route
from tests.integration.test_traces import OPTIONS, TOPIC, consumed, traced_broker
from tests.interop.test_mqadmin_clean import mqadmin_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def test_mqadmin_says_who_sent_and_who_consumed_a_message(tmp_path: Path) -> None:
    try:
        tools = java.prepare()
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with mqadmin skipped: {error}")
    mqadmin = mqadmin_of(tools, tmp_path / "tools")

    async def body() -> None:
        async with traced_broker(tmp_path / "broker") as address:
            config = ClientConfig(namesrv_addrs=(address,), group="traced", trace=True)
            async with Producer(config) as producer:
                await answered_route(producer)
                result = await producer.send(Message(TOPIC, b"x", keys="k", tags="T"))
                consumer = PushConsumer(config, consumed([]), OPTIONS)
                consumer.subscribe(TOPIC)
                async with consumer:
                    await consumer.wait_joined()
                    await asyncio.sleep(1)
            words = ("queryMsgTraceById", "-n", address, "-i", result.msg_id)
            printed = await asyncio.to_thread(mqadmin, *words)
            lines = [line.split() for line in printed.splitlines() if line.split()]
            assert [line[0] for line in lines] == ["#Type", "Pub", "#Type", "Sub"], printed
            assert lines[1][1] == lines[3][1] == "traced"
            assert {lines[1][-1], lines[3][-1]} == {"success"}

    asyncio.run(body())

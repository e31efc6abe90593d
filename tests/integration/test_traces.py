"""Traces against a real broker: found by the message's id, as RocketMQ's tools look them up."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ledgermq.client import (
    ClientConfig,
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageExt,
    MessageFinder,
    Producer,
    PushConsumer,
)
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from tests.integration.broker_cluster import until
from tests.integration.plain_broker import Plain
from tests.integration.test_request_reply import answered_route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ledgermq.client.listening import Listener

TOPIC = "prices"
TRACES = "RMQ_SYS_TRACE_TOPIC"
OPTIONS = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=1_000)


def records_of(text: str) -> list[list[str]]:
    """Read traces as TraceDataEncoder does: fields are found by their places."""
    return [record.split("\x01") for record in text.split("\x02") if record]


@contextlib.asynccontextmanager
async def traced_broker(directory: Path) -> AsyncIterator[str]:
    """Run a broker with the topic of traces; yields the address of its name server."""
    server = NameServer(
        NamesrvConfig(bind_address="127.0.0.1", listen_port=0), SystemClock(), RealDisk()
    )
    address = f"127.0.0.1:{await server.start()}"
    broker = Plain(directory, namesrv_addr=address, trace_topic_enable=True)
    try:
        await broker.start()
        yield address
    finally:
        await broker.stop()
        await server.stop()


def consumed(seen: list[str]) -> Listener:
    """Return a listener that notes the ids of what it got."""

    def listen(messages: list[MessageExt], _context: ConsumeContext) -> ConsumeStatus:
        seen.extend(message.message_id() for message in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    return listen


def test_who_sent_and_who_consumed_a_message_is_found_by_its_id(tmp_path: Path) -> None:
    async def body() -> None:
        async with traced_broker(tmp_path / "b") as address:
            await traced_from_end_to_end(address)

    asyncio.run(body())


async def traced_from_end_to_end(address: str) -> None:
    config = ClientConfig(namesrv_addrs=(address,), group="traced", trace=True)
    seen: list[str] = []
    consumer = PushConsumer(config, consumed(seen), OPTIONS)
    consumer.subscribe(TOPIC)
    async with Producer(config) as producer:
        await answered_route(producer)
        async with consumer:
            results = await asyncio.gather(
                *(producer.send(Message(TOPIC, b"x", keys=f"key-{n}")) for n in range(150))
            )
            await until(lambda: len(set(seen)) == 150, "all messages")
    assert producer.tracing is not None
    assert producer.tracing.dropped == 0
    async with MessageFinder(ClientConfig(namesrv_addrs=(address,), group="tools")) as finder:
        for result in (results[0], results[149]):
            found: list[list[str]] = []
            for message in await finder.by_key(TRACES, result.msg_id):
                found += [
                    one for one in records_of(message.content().decode()) if result.msg_id in one
                ]
            by_kind = {one[0]: one for one in found}
            assert set(by_kind) == {"Pub", "SubBefore", "SubAfter"}
            published = by_kind["Pub"]
            assert len(published) == 14
            assert published[3:6] == ["traced", TOPIC, result.msg_id]
            assert published[12:] == [result.offset_msg_id, "true"]
            assert by_kind["SubBefore"][4] == by_kind["SubAfter"][1]
            assert by_kind["SubAfter"][4:7:2] == ["true", "0"]

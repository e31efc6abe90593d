"""Clients of servers that never come to an end: answers, halves of answers, numbers, members."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from ledgermq.client import (
    AdminClient,
    ClientConfig,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
)
from ledgermq.client.broker_api import BrokerApi
from ledgermq.client.limits import MEMBERS_MAX
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemoteProtocolError, RemotingError
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.remoting.transport.config import TransportConfig
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.test_hostile_server import (
    HostileServer,
    bounded_memory,
    config,
    pull,
    route_of,
    run,
    said,
)

MIB = 1 << 20
JUNK = {
    "small answers to nobody": said(RemotingCommand(0, opaque=7_777_777)) * 500,
    "large answers to nobody": said(RemotingCommand(0, opaque=7_777_777), body=bytes(15 * MIB)),
    "questions": said(RemotingCommand(0), code=9_999, flag=0) * 500,
    "orders to rebalance": said(
        RemotingCommand(0), code=RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, flag=2
    )
    * 500,
}


class EndlessServer(HostileServer):
    """Routes to itself, and sends ``junk`` for ever to anybody, ``pause_s`` apart."""

    def __init__(self, junk: bytes, pause_s: float = 0.0) -> None:
        super().__init__()
        self.junk = junk
        self.pause_s = pause_s
        self.sent_bytes = 0
        self.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda request: said(
            request, body=json.dumps(route_of(self)).encode()
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        flood = asyncio.create_task(self._flood_serve(writer))
        try:
            await super()._serve(reader, writer)
        finally:
            flood.cancel()

    async def _flood_serve(self, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(self.junk)
                self.sent_bytes += len(self.junk)
                await writer.drain()
                await asyncio.sleep(self.pause_s)


async def use_producer(fields: ClientConfig) -> None:
    producer = Producer(fields)
    await producer.start()
    try:
        with pytest.raises(RemotingError) as failure:
            await producer.send(Message("T", b"body"))
        assert 0 < len(str(failure.value)) < 2_000
    finally:
        await producer.stop()


async def use_push(fields: ClientConfig) -> None:
    async def listener(_messages: object, _context: object) -> None:
        pytest.fail("nothing was sent")

    consumer = PushConsumer(fields, listener)
    consumer.subscribe("T")
    await consumer.start()
    await asyncio.sleep(0.3)
    await consumer.stop()


async def use_lite_pull(fields: ClientConfig) -> None:
    consumer = LitePullConsumer(fields)
    consumer.subscribe("T")
    await consumer.start()
    assert await consumer.poll(0.3) == []
    await consumer.stop()


async def use_admin(fields: ClientConfig) -> None:
    async with AdminClient(fields) as admin:
        with pytest.raises(RemotingError):
            await admin.topics()


USES = [use_producer, use_push, use_lite_pull, use_admin]
STOPPED_S = 8.0
"""By then a client has failed, or has done what it can, and has stopped, also on a busy machine."""


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("junk", JUNK)
def test_answers_without_end_take_neither_memory_nor_time(
    use: Callable[[ClientConfig], Any], junk: str
) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with EndlessServer(JUNK[junk]) as server:
            begin = loop.time()
            with bounded_memory(120 * MIB):
                await use(config(server))
            assert loop.time() - begin < STOPPED_S
            assert server.sent_bytes > 100_000

    run(test)


@pytest.mark.parametrize("use", USES)
def test_a_byte_at_a_time_is_no_answer(use: Callable[[ClientConfig], Any]) -> None:
    async def test() -> None:
        async with EndlessServer(b"\0", 0.01) as server:
            await use(config(server))

    run(test)


class HalfServers(EndlessServer):
    """Sends half a frame of 15 MiB to whoever connects, and no more."""

    def __init__(self) -> None:
        super().__init__((15 * MIB).to_bytes(4, "big") + bytes(4) + bytes(12 * MIB), 3_600)


@contextlib.asynccontextmanager
async def half_answers(count: int, most: int) -> AsyncIterator[int]:
    """Ask so many servers; return how many bytes the client reads into at last."""
    client = RemotingClient(config=TransportConfig(receive_bytes_max=most))
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(HalfServers()) for _ in range(count)]
        asked = [client.request(one.addr, RemotingCommand(105), 2_000) for one in servers]
        failed = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(one, RemotingError) for one in failed)
        yield sum(one.receive_bytes for one in client._open.values())
        await client.close()


def test_half_answers_of_many_servers_are_bounded_together() -> None:
    async def test() -> None:
        async with half_answers(6, 40 * MIB) as taken:
            assert 0 < taken <= 40 * MIB

    run(test)


def test_without_that_each_takes_a_buffer() -> None:
    async def test() -> None:
        with planted(BY_TESTS["client-reads-half-frames-without-end"]):
            async with half_answers(6, 40 * MIB) as taken:
                assert taken >= 6 * 12 * MIB

    run(test)


class LargeServer(HostileServer):
    """Answers with 600 KB, as a pull may."""

    def __init__(self) -> None:
        super().__init__()
        self.answers[105] = lambda request: said(request, body=bytes(600_000))


def test_idle_connections_give_back_what_they_read_into() -> None:
    """None of them did wrong, so none is closed."""

    async def test() -> None:
        client = RemotingClient(config=TransportConfig(receive_bytes_max=2 * MIB))
        async with contextlib.AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(LargeServer()) for _ in range(12)]
            for one in servers * 2:
                answer = await client.request(one.addr, RemotingCommand(105), 5_000)
                assert len(answer.body) == 600_000
            assert len(client._open) == len(servers)
            assert sum(one.receive_bytes for one in client._open.values()) <= 2 * MIB
            await client.close()

    run(test)


BAD_OFFSETS = {
    "9" * 19: BY_TESTS["client-takes-any-number"],
    str(2**63): BY_TESTS["client-takes-any-number"],
    "-1": BY_TESTS["client-pulls-below-zero"],
    str(-(2**63) + 1): BY_TESTS["client-pulls-below-zero"],
}


@pytest.mark.parametrize("offset", BAD_OFFSETS)
def test_an_offset_that_no_queue_has_is_an_error(offset: str) -> None:
    async def test() -> None:
        with pytest.raises(RemoteProtocolError, match="nextBeginOffset"):
            await pull(b"", offset)
        with planted(BAD_OFFSETS[offset]):
            assert (await pull(b"", offset)).next_offset == int(offset)

    run(test)


async def members(count: int) -> list[str]:
    body = json.dumps({"consumerIdList": [f"{number}@1" for number in range(count)]}).encode()
    client = RemotingClient()
    async with HostileServer(lambda request: said(request, body=body)) as server:
        try:
            return await BrokerApi(client, "g", 5_000).consumer_ids(server.addr)
        finally:
            await client.close()


def test_a_group_with_more_members_than_any_is_refused() -> None:
    async def test() -> None:
        assert len(await members(MEMBERS_MAX)) == MEMBERS_MAX
        with pytest.raises(RemoteProtocolError, match="members"):
            await members(MEMBERS_MAX + 1)
        with planted(BY_TESTS["group-of-any-size"]):
            assert len(await members(MEMBERS_MAX + 1)) == MEMBERS_MAX + 1

    run(test)

"""Clients of servers that mean them no good: bounded time and memory, a clear error, no task left.

Name server and broker are one socket server that says whatever a test wants it to.
"""

import asyncio
import contextlib
import json
import selectors
import time
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from ledgermq.client import ClientConfig, Message, Producer
from ledgermq.client.broker_api import BrokerApi, PullRequest
from ledgermq.client.errors import NameServersUnreachable
from ledgermq.client.limits import PULLED_CONTENT_BYTES_MAX, ROUTE_BROKERS_MAX, ROUTE_QUEUES_MAX
from ledgermq.client.message import MessageQueue, PullResult
from ledgermq.client.name_servers import NameServers
from ledgermq.client.route import BROKERS_KNOWN_MAX, RouteCache
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import (
    FLAG_RESPONSE,
    RemotingCommand,
    decode_command,
    encode_command,
)
from ledgermq.remoting.protocol.compression import COMPRESSED_ZLIB
from ledgermq.remoting.protocol.errors import RemoteProtocolError, RemotingError
from ledgermq.remoting.protocol.frame import FrameDecoder
from ledgermq.remoting.protocol.message import MessageExt, encode_record
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.runtime.clock import SystemClock
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.remoting_world import run_bounded

Answer = Callable[[RemotingCommand], bytes]
TIMEOUT_MS = 400
FAILED_S = 2.0
"""By then a send has failed: what the loop waited and worked, see `own_time_s`."""


def said(request: RemotingCommand, code: int = 0, **changes: Any) -> bytes:
    """Return the frame of an answer."""
    fields = {"opaque": request.opaque, "flag": FLAG_RESPONSE} | changes
    return b"".join(encode_command(RemotingCommand(code, **fields)))


class HostileServer:
    """Answers each request with the bytes that ``answers`` has for its code, or ``other``."""

    def __init__(self, other: Answer | None = None, **answers: Answer) -> None:
        self.other = other
        self.answers = {getattr(RequestCode, name): answer for name, answer in answers.items()}
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "HostileServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()

    @property
    def addr(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        decoder = FrameDecoder()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                for frame in decoder.feed(data):
                    request = decode_command(frame)
                    answer = self.answers.get(request.code, self.other)
                    if answer is not None:
                        writer.write(answer(request))
                await writer.drain()
        writer.close()


def route_of(server: HostileServer, **changes: Any) -> dict[str, Any]:
    """Return a route that leads to the server itself."""
    queues = {"brokerName": "b", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
    return {
        "brokerDatas": [{"brokerName": "b", "cluster": "c", "brokerAddrs": {"0": server.addr}}],
        "queueDatas": [queues | changes],
    }


def routed(server: HostileServer) -> Answer:
    return lambda request: said(request, body=json.dumps(route_of(server)).encode())


BAD_ANSWERS: dict[str, Answer | None] = {
    "nothing": None,
    "a frame of 2 GB": lambda _: b"\x7f\xff\xff\xff\x00\x00\x00\x10" + bytes(100_000),
    "a frame of -1": lambda _: b"\xff\xff\xff\xff" + bytes(100),
    "half a frame": lambda _: (1_000_000).to_bytes(4, "big") + bytes(500),
    "garbage": lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a header that is no JSON": lambda _: b"\0\0\0\x06\0\0\0\x02{]",
    "a header of a megabyte": lambda request: said(request, remark="x" * 1_000_000),
    "the wrong opaque": lambda request: said(request, opaque=request.opaque + 7),
    "a question instead": lambda request: said(request, code=310, flag=0),
    "questions without end": lambda request: 1_000 * said(request, code=9_999, flag=0),
    "an unknown code": lambda request: said(request, code=-77, remark="\u0000" * 1_000),
    "no fields": said,
    "fields that are no numbers": lambda request: said(
        request,
        ext_fields={"msgId": "", "queueId": "9" * 5_000, "queueOffset": "x", "offset": "1e9"},
    ),
    "a body that is no JSON": lambda request: said(request, body=b"{{{" * 1_000),
    "a body of another kind": lambda request: said(request, body=b'{"brokerDatas":7}'),
    "nested arrays": lambda request: said(request, body=b"[" * 1_000_000),
}


@pytest.fixture(params=BAD_ANSWERS)
def bad_answer(request: pytest.FixtureRequest) -> Answer | None:
    return BAD_ANSWERS[request.param]


class Waits(selectors.DefaultSelector):
    """Counts how long the loop waited, and never for longer than it meant to."""

    waited_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        begin = time.monotonic()
        found = super().select(timeout)
        took_s = time.monotonic() - begin
        self.waited_s += took_s if timeout is None else min(took_s, max(timeout, 0.0))
        return found


def own_time_s() -> float:
    """Return a time in which the process works or waits; where it stands still, none passes."""
    waits: Waits = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    return time.thread_time() + waits.waited_s


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test; no task of the client may be left, and nothing may have gone to the loop."""
    run_bounded(leaving_nothing(test))


def run_in_own_time(test: Callable[[], Awaitable[None]]) -> None:
    """Do the same on a loop that has `own_time_s`."""
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Waits())) as runner:
        runner.run(asyncio.wait_for(leaving_nothing(test), 60))


async def leaving_nothing(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test, and look what it has left."""
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    before = asyncio.all_tasks()
    await test()
    for _ in range(10):
        await asyncio.sleep(0.01)
    left = [one for one in asyncio.all_tasks() - before if "_serve" not in repr(one)]
    assert (left, told) == ([], [])


@contextlib.contextmanager
def bounded_memory(bytes_max: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < bytes_max
    finally:
        tracemalloc.stop()


def config(server: HostileServer, **changes: Any) -> ClientConfig:
    fields = {
        "namesrv_addrs": (server.addr,),
        "group": "g",
        "send_timeout_ms": TIMEOUT_MS,
        "request_timeout_ms": TIMEOUT_MS,
        "stop_timeout_ms": 200,
    }
    return ClientConfig(**(fields | changes))


async def send(server: HostileServer) -> float:
    """Send a message, which must fail; return after how many seconds of its own it did."""
    producer = Producer(config(server))
    await producer.start()
    begin = own_time_s()
    try:
        with pytest.raises(RemotingError) as failure:
            await producer.send(Message("T", b"body"))
    finally:
        took_s = own_time_s() - begin
        await producer.stop()
    assert 0 < len(str(failure.value)) < 2_000
    return took_s


def test_a_hostile_name_server_makes_a_send_fail_in_time(bad_answer: Answer | None) -> None:
    async def test() -> None:
        async with HostileServer(bad_answer) as server:
            assert await send(server) < FAILED_S

    run_in_own_time(test)


def test_a_hostile_broker_makes_a_send_fail_in_time(bad_answer: Answer | None) -> None:
    async def test() -> None:
        async with HostileServer(bad_answer) as server:
            server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = routed(server)
            assert await send(server) < FAILED_S

    run_in_own_time(test)


def test_a_server_that_hangs_up_at_each_request_makes_a_send_fail_in_time() -> None:
    async def test() -> None:
        async with HostileServer() as server:

            def hang_up(_: RemotingCommand) -> bytes:
                for writer in server._writers:
                    writer.close()
                return b""

            server.other = hang_up
            assert await send(server) < FAILED_S

    run_in_own_time(test)


async def fetch(body: object) -> RouteCache:
    """Ask a name server that answers with this route."""
    text = json.dumps(body).encode() if not isinstance(body, bytes) else body
    client = RemotingClient()
    async with HostileServer(lambda request: said(request, body=text)) as server:
        try:
            routes = RouteCache(NameServers([server.addr], client, 5_000), SystemClock())
            await routes.refresh("T")
        finally:
            await client.close()
    return routes


@pytest.mark.parametrize(
    "changes",
    [
        {"writeQueueNums": 10**6},
        {"readQueueNums": 2**31 - 1},
        {"readQueueNums": ROUTE_QUEUES_MAX + 1},
        {"orderTopicConf": "b:999999999"},
    ],
)
def test_a_route_with_a_million_queues_is_refused_and_takes_no_memory(
    changes: dict[str, Any],
) -> None:
    async def test() -> None:
        server = HostileServer()
        route = route_of(server, **changes)
        route["orderTopicConf"] = changes.get("orderTopicConf")
        with bounded_memory(20_000_000), pytest.raises(RemoteProtocolError, match="queues"):
            await fetch(route)

    run(test)


def test_without_that_each_queue_takes_memory() -> None:
    async def test() -> None:
        route = route_of(HostileServer(), writeQueueNums=10**6)
        with planted(BY_TESTS["client-takes-any-route"]):
            routes = await fetch(route)
        assert len(routes.peek("T").publish_queues) == 10**6

    run(test)


def test_many_queues_in_small_parts_are_refused_as_well() -> None:
    async def test() -> None:
        route = route_of(HostileServer(), readQueueNums=1_000)
        route["queueDatas"] *= 300
        with pytest.raises(RemoteProtocolError, match="queues"):
            await fetch(route)

    run(test)


def test_a_route_with_too_many_brokers_is_refused() -> None:
    async def test() -> None:
        route = route_of(HostileServer())
        names = [f"b{number}" for number in range(ROUTE_BROKERS_MAX + 1)]
        route["brokerDatas"] = [{"brokerName": name, "brokerAddrs": {"0": "a:1"}} for name in names]
        with pytest.raises(RemoteProtocolError, match="brokers"):
            await fetch(route)

    run(test)


def test_an_order_configuration_that_is_no_number_is_left_out() -> None:
    async def test() -> None:
        route = route_of(HostileServer())
        route["orderTopicConf"] = "b:" + "9" * 5_000 + ";b:²;c:;:4"
        routes = await fetch(route)
        assert len(routes.peek("T").publish_queues) == 1

    run(test)


async def known_brokers(count: int) -> int:
    """Have a name server tell other brokers each time; return how many are remembered."""
    client, step = RemotingClient(), 0

    def answer(request: RemotingCommand) -> bytes:
        names = [f"b{step}-{number}" for number in range(500)]
        brokers = [{"brokerName": name, "brokerAddrs": {"0": "a:1"}} for name in names]
        return said(request, body=json.dumps({"brokerDatas": brokers}).encode())

    async with HostileServer(answer) as server:
        routes = RouteCache(NameServers([server.addr], client, 5_000), SystemClock())
        for step in range(count // 500):  # noqa: B007  # the answer reads it
            await routes.refresh("T")
        await client.close()
    return len(routes.brokers)


def test_brokers_that_no_route_names_any_more_are_forgotten() -> None:
    async def test() -> None:
        assert await known_brokers(10_000) <= BROKERS_KNOWN_MAX

    run(test)


def test_without_that_their_number_grows() -> None:
    async def test() -> None:
        with planted(BY_TESTS["client-remembers-all-brokers"]):
            assert await known_brokers(10_000) == 10_000

    run(test)


def test_only_an_answer_counts_as_unreachable_name_servers() -> None:
    async def test() -> None:
        client = RemotingClient()
        async with HostileServer() as server:
            names = NameServers([server.addr, server.addr], client, 100)
            with pytest.raises(NameServersUnreachable):
                await names.fetch_route("T")
            with pytest.raises(NameServersUnreachable):
                await names.fetch_route_everywhere("T", frozenset())
        await client.close()

    run(test)


def record(queue_offset: int, body: bytes = b"body", sys_flag: int = 0) -> bytes:
    host = bytes(8)
    return encode_record(
        MessageExt("T", 0, 0, sys_flag, queue_offset, 4, 5, host, 6, host, 0, 0, body, b"")
    )


async def pull(body: bytes, next_offset: str = "5", max_count: int = 32) -> PullResult:
    """Pull from offset 3 of a broker that answers with this."""
    fields = {
        "nextBeginOffset": next_offset,
        "minOffset": "0",
        "maxOffset": "9",
        "suggestWhichBrokerId": "0",
    }
    client = RemotingClient()
    async with HostileServer(lambda one: said(one, body=body, ext_fields=fields)) as server:
        request = PullRequest(queue=MessageQueue("T", "b", 0), offset=3, max_count=max_count)
        try:
            return await BrokerApi(client, "g", 5_000).pull(server.addr, request, 5_000)
        finally:
            await client.close()


BROKEN = {
    "cut short": record(3)[:-1],
    "a size of zero": bytes(4) + record(3)[4:],
    "a negative body": record(3)[:84] + b"\xff\xff\xff\xff" + record(3)[88:],
    "a huge body": record(3)[:84] + b"\x7f\xff\xff\xff" + record(3)[88:],
    "zeros": bytes(1_000),
    "an offset twice": record(3) + record(3),
    "falling offsets": record(4) + record(3),
    "an offset before": record(2),
    "an offset behind": record(5),
    "a negative offset": record(-1),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_records_are_an_error(name: str) -> None:
    async def test() -> None:
        with pytest.raises(RemoteProtocolError):
            await pull(BROKEN[name])

    run(test)


def test_without_that_a_message_can_come_for_ever() -> None:
    async def test() -> None:
        with planted(BY_TESTS["client-takes-any-offset"]):
            assert len((await pull(BROKEN["an offset twice"])).messages) == 2

    run(test)


def test_more_messages_than_were_asked_for_are_an_error() -> None:
    async def test() -> None:
        records = b"".join(map(record, range(3, 36)))
        with pytest.raises(RemoteProtocolError, match="33 messages"):
            await pull(records, "36")
        assert len((await pull(records, "36", 33)).messages) == 33

    run(test)


@pytest.mark.parametrize("number", ["", "x", "9" * 5_000, "1" * 20, "1e9", " 5", "5_0", "²"])
def test_a_place_that_is_no_number_is_an_error(number: str) -> None:
    async def test() -> None:
        with pytest.raises(RemoteProtocolError, match="nextBeginOffset"):
            await pull(b"", number)

    run(test)


def bombs(count: int = 4) -> bytes:
    """Return messages that take 48 MiB each when they are decompressed."""
    body = zlib.compress(bytes(48 << 20), 9)
    return b"".join(record(3 + number, body, COMPRESSED_ZLIB) for number in range(count))


def test_what_is_decompressed_at_once_is_bounded_and_no_message_is_passed_over() -> None:
    async def test() -> None:
        with bounded_memory(PULLED_CONTENT_BYTES_MAX + 160_000_000):
            result = await pull(bombs(), "7")
        assert [one.queue_offset for one in result.messages] == [3, 4]
        assert result.next_offset == 5
        assert all(len(one.body) == 48 << 20 for one in result.messages)

    run(test)


def test_without_that_it_fills_the_memory() -> None:
    async def test() -> None:
        with planted(BY_TESTS["client-inflates-everything"]):
            assert sum(len(one.body) for one in (await pull(bombs(), "7")).messages) == 4 * (
                48 << 20
            )

    run(test)

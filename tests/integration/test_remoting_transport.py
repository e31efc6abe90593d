"""Server and client over loopback sockets, on uvloop."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from remoting.protocol.command import (
    FLAG_ONEWAY,
    RemotingCommand,
    decode_command,
    encode_command,
    make_response,
)
from remoting.protocol.errors import (
    ConnectFailed,
    ConnectionLost,
    InvalidHeader,
    LocalProtocolError,
    Outcome,
    RemoteProtocolError,
    RequestTimeout,
    for_code,
)
from remoting.protocol.frame import Frame, FrameDecoder
from remoting.protocol.headers import decode_send_header, encode_send_response
from remoting.transport.client import RemotingClient
from remoting.transport.config import TransportConfig
from remoting.transport.connection import Connection
from remoting.transport.server import RemotingServer
from runtime.errors import FatalError

ECHO, LATER, NEVER, BROKEN, REFUSED, BAD, SILENT, HUGE = (
    1000,
    1001,
    1002,
    1003,
    1004,
    1005,
    1006,
    1007,
)
SEND_FIELDS = {"a": "g", "b": "t", "c": "d", "d": "4", "e": "2", "f": "0", "g": "1", "h": "0"}


class Service:
    """Handlers that show each way of answering."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.release = asyncio.Event()
        self.held: list[RemotingCommand] = []
        self.connections: list[Connection] = []

    def handlers(self) -> dict[int, Any]:
        return {
            ECHO: self.echo,
            LATER: self.later,
            NEVER: self.later,
            BROKEN: self.broken,
            REFUSED: self.refused,
            BAD: self.bad,
            SILENT: self.silent,
            HUGE: lambda _, command: make_response(command, 0, body=bytes(17 << 20)),
        }

    def hot(self) -> dict[int, Any]:
        return {310: self.send}

    def echo(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        self.seen.append(command.code)
        self.connections.append(connection)
        return make_response(command, 0, None, command.ext_fields, command.body)

    async def later(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        await self.release.wait()
        if command.body == b"raise":
            raise ValueError("late")
        return make_response(command, 0)

    def broken(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        raise ValueError(command.code)

    def refused(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        raise for_code(17, f"no {command.code}")

    def bad(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        raise InvalidHeader(f"field of {command.code}")

    def silent(self, _: Connection, command: RemotingCommand) -> None:
        self.held.append(command)

    def send(self, connection: Connection, frame: Frame) -> None:
        opaque, _, _, header = decode_send_header(frame)
        if header.topic == "bug":
            raise ValueError("bug")
        connection.write(
            encode_send_response(
                opaque, frame.serialize_type, "7F", header.queue_id, len(frame.body)
            )
        )


class World:
    """A started server with its service, and a client."""

    def __init__(self, server: RemotingServer, service: Service, port: int) -> None:
        self.server = server
        self.service = service
        self.port = port
        self.addr = f"127.0.0.1:{port}"
        self.client = RemotingClient()

    async def ask(self, code: int, timeout_ms: int = 3000, **changes: Any) -> RemotingCommand:
        return await self.client.request(self.addr, RemotingCommand(code, **changes), timeout_ms)

    async def raw(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        return reader, writer


@contextlib.asynccontextmanager
async def world(**limits: int) -> AsyncIterator[World]:
    service = Service()
    server = RemotingServer(
        name="test",
        handlers=service.handlers(),
        hot=service.hot(),
        config=TransportConfig(**limits),
    )
    built = World(server, service, await server.start("127.0.0.1", 0))
    try:
        yield built
    finally:
        service.release.set()
        await built.client.close()
        await server.stop()
        assert server.connections == {}


def run(test: Callable[[World], Awaitable[None]], **limits: int) -> None:
    async def body() -> None:
        async with world(**limits) as built:
            await test(built)

    run_bounded(body())


def run_bounded(coro: Coroutine[Any, Any, None]) -> None:
    uvloop.run(asyncio.wait_for(coro, 20))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_a_request_gets_its_answer_in_its_own_header_type(serialize_type):
    async def test(w: World) -> None:
        answer = await w.ask(
            ECHO, ext_fields={"k": "v"}, body=b"body", serialize_type=serialize_type
        )
        assert (answer.code, answer.ext_fields, answer.body) == (0, {"k": "v"}, b"body")
        assert answer.serialize_type == serialize_type

    run(test)


def test_answers_find_their_requests_in_any_order():
    async def test(w: World) -> None:
        late = [asyncio.ensure_future(w.ask(LATER)) for _ in range(3)]
        answers = await asyncio.gather(*(w.ask(ECHO, body=b"%d" % n) for n in range(50)))
        assert [int(answer.body) for answer in answers] == list(range(50))
        assert not any(task.done() for task in late)
        w.service.release.set()
        assert [answer.code for answer in await asyncio.gather(*late)] == [0, 0, 0]

    run(test)


@pytest.mark.parametrize(
    ("code", "answer_code", "remark"),
    [
        (999, 3, " request type 999 not supported"),
        (REFUSED, 17, "no 1004"),
        (BAD, 1, "InvalidHeader, field of 1005"),
        (HUGE, 1, "LocalProtocolError, frame of"),
        (BROKEN, 1, "ValueError, 1003, test_remoting_transport.py:"),
    ],
)
def test_failures_of_handlers_are_answered(code, answer_code, remark):
    async def test(w: World) -> None:
        answer = await w.ask(code)
        assert answer.code == answer_code
        assert answer.remark.startswith(remark)
        assert (await w.ask(ECHO)).code == 0, "the connection lives on"

    run(test)


def test_a_late_failure_is_answered():
    async def test(w: World) -> None:
        w.service.release.set()
        answer = await w.ask(LATER, body=b"raise")
        assert (answer.code, answer.remark[:16]) == (1, "ValueError, late")

    run(test)


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_hot_requests_are_answered_by_their_handler(serialize_type):
    async def test(w: World) -> None:
        answer = await w.ask(
            310, ext_fields=SEND_FIELDS, body=b"12345", serialize_type=serialize_type
        )
        assert answer.ext_fields["queueId"] == "2"
        assert answer.ext_fields["queueOffset"] == "5"
        for wrong in (SEND_FIELDS | {"e": "x"}, SEND_FIELDS | {"b": "bug"}):
            answer = await w.ask(310, ext_fields=wrong, serialize_type=serialize_type)
            assert answer.code == 1

    run(test)


def test_a_hot_request_with_another_key_order_finds_its_handler():
    async def test(w: World) -> None:
        header = b'{"opaque":77, "extFields":{%s}, "code":310}' % b",".join(
            b'"%s":"%s"' % (k.encode(), v.encode()) for k, v in SEND_FIELDS.items()
        )
        data = len(header).to_bytes(4, "big")
        reader, writer = await w.raw((len(header) + 4).to_bytes(4, "big") + data + header)
        (frame,) = FrameDecoder().feed(await reader.read(4096))
        assert decode_command(frame).opaque == 77
        writer.close()

    run(test)


def test_oneway_requests_are_not_answered():
    async def test(w: World) -> None:
        await w.client.oneway(w.addr, RemotingCommand(ECHO))
        await until(lambda: w.service.seen == [ECHO])
        connection = await w.client.connect(w.addr)
        command = RemotingCommand(999, FLAG_ONEWAY)
        with pytest.raises(RequestTimeout):
            await connection.request(command, 50)

    run(test)


def test_a_server_can_ask_its_client():
    async def test(w: World) -> None:
        client = RemotingClient(
            handlers={2000: lambda _, one: make_response(one, 0, "from client")}
        )
        await client.request(w.addr, RemotingCommand(ECHO), 1000)
        connection = w.service.connections[0]
        hot = asyncio.ensure_future(client.request(w.addr, RemotingCommand(LATER), 1000))
        answer = await connection.request(RemotingCommand(2000), 1000)
        assert answer.remark == "from client"
        w.service.release.set()
        assert (await hot).code == 0
        await client.close()

    run(test)


def test_a_hot_request_that_crosses_a_question_of_the_server_is_served():
    async def test(w: World) -> None:
        await w.ask(ECHO)
        connection = w.service.connections[0]
        question = connection.start_request(
            1, 500, *encode_command(RemotingCommand(2001, opaque=1))
        )
        good, bad = await asyncio.gather(
            w.ask(310, ext_fields=SEND_FIELDS), w.ask(310, ext_fields=SEND_FIELDS | {"b": "bug"})
        )
        assert (good.code, bad.code) == (0, 1)
        assert decode_command(await question).code == 3

    run(test)


def test_a_request_without_an_answer_times_out_and_a_late_answer_is_dropped():
    async def test(w: World) -> None:
        connection = await w.client.connect(w.addr)
        slow = asyncio.ensure_future(connection.request(RemotingCommand(SILENT), 10_000))
        with pytest.raises(RequestTimeout) as caught:
            await connection.request(RemotingCommand(SILENT), 30)
        assert caught.value.outcome is Outcome.UNKNOWN
        server_side = next(iter(w.server.connections.values()))
        for command in w.service.held:
            server_side.send(make_response(command, 0, "late"))
        assert (await slow).remark == "late"
        slow = asyncio.ensure_future(connection.request(RemotingCommand(SILENT), 10_000))
        await asyncio.sleep(0)
        slow.cancel()
        assert (await w.ask(ECHO)).code == 0

    run(test)


def test_requests_under_way_fail_when_the_connection_is_lost():
    async def test(w: World) -> None:
        gone: list[str] = []
        client = RemotingClient(on_disconnect=lambda addr, _: gone.append(addr))
        task = asyncio.ensure_future(client.request(w.addr, RemotingCommand(SILENT), 5000))
        await until(lambda: bool(w.service.held))
        connection = await client.connect(w.addr)
        for server_side in list(w.server.connections.values()):
            server_side.close("test")
        with pytest.raises(ConnectionLost) as caught:
            await task
        assert caught.value.outcome is Outcome.UNKNOWN
        assert gone == [w.addr]
        assert connection.closed
        connection.write(b"dropped")
        with pytest.raises(ConnectionLost):
            await connection.request(RemotingCommand(ECHO), 100)
        assert (await client.request(w.addr, RemotingCommand(ECHO), 1000)).code == 0
        await client.close()

    run(test)


def test_connections_are_shared_and_made_once():
    async def test(w: World) -> None:
        first, second = await asyncio.gather(w.client.connect(w.addr), w.client.connect(w.addr))
        assert first is second is await w.client.connect(w.addr)
        assert w.client.maybe_connection(w.addr) is first
        assert w.client.maybe_connection("127.0.0.1:1") is None
        await until(lambda: len(w.server.connections) == 1)
        assert str(w.port) in repr(first)

    run(test)


def test_what_cannot_be_reached_fails_for_certain():
    async def test(w: World) -> None:
        await w.server.stop()
        for addr in (w.addr, "nonsense"):
            with pytest.raises(ConnectFailed) as caught:
                await w.client.request(addr, RemotingCommand(ECHO), 1000)
            assert caught.value.outcome is Outcome.FAILED
        await w.client.close()
        with pytest.raises(ConnectFailed):
            await w.client.connect(w.addr)

    run(test)


def test_connecting_counts_towards_the_time_of_a_request(monkeypatch):
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    async def test(w: World) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(RemotingClient, "_connect", never)
            with pytest.raises(ConnectFailed, match="within 30 ms"):
                await w.ask(ECHO, timeout_ms=30)
            await w.client.close()

    run(test)


def test_connections_leave_from_the_source_address():
    async def test(w: World) -> None:
        client = RemotingClient(source_address="127.0.0.2")
        await client.request(w.addr, RemotingCommand(ECHO), 1000)
        assert w.service.connections[0].remote[0] == "127.0.0.2"
        await client.close()

    run(test)


GARBAGE = [
    pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="http"),
    pytest.param(b"\x01\x00\x00\x00" + bytes(100), id="oversize"),
    pytest.param(b"\0\0\0\x06\0\0\0\x02{]", id="header is no JSON"),
    pytest.param(b"\0\0\0\x06\x01\0\0\x02\0\0", id="header is no binary header"),
    pytest.param(b"\0\0\0\x10\0\0\0\x0c" + b'{"code":310,' * 1, id="hot header is no JSON"),
    pytest.param(b"".join(encode_command(RemotingCommand(ECHO))) + b"\xff" * 9, id="after a frame"),
]


@pytest.mark.parametrize("data", GARBAGE)
def test_garbage_closes_that_connection_with_one_log_line(data, caplog):
    async def test(w: World) -> None:
        other = await w.client.connect(w.addr)
        with caplog.at_level(logging.WARNING):
            reader, writer = await w.raw(data)
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
            writer.close()
            await until(lambda: len(w.server.connections) == 1)
        assert not other.closed
        assert len(warnings(caplog)) == 1, warnings(caplog)
        assert warnings(caplog)[0].startswith("event=connection_closed remote=127.0.0.1:")

    run(test)


def test_half_a_frame_is_not_waited_for_beyond_the_idle_timeout(caplog):
    async def test(w: World) -> None:
        reader, writer = await w.raw(b"\0\0\1\0\0")
        with caplog.at_level(logging.WARNING), contextlib.suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(b"\0")  # drop by drop: the connection is never quiet
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.02)
        writer.close()
        assert len(warnings(caplog)) == 1
        assert "half a frame" in warnings(caplog)[0]

    run(test, idle_timeout_ms=160)


def test_a_quiet_connection_is_closed_without_a_warning(caplog):
    async def test(w: World) -> None:
        connection = await w.client.connect(w.addr)
        with caplog.at_level(logging.WARNING):
            await until(lambda: connection.closed)
        assert warnings(caplog) == []

    run(test, idle_timeout_ms=80)


def test_connections_beyond_the_limit_are_closed_at_once(caplog):
    async def test(w: World) -> None:
        await w.ask(ECHO)
        with caplog.at_level(logging.WARNING):
            reader, writer = await w.raw(b"")
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        assert "limit" in warnings(caplog)[0]
        assert (await w.ask(ECHO)).code == 0

    run(test, connections_max=1)


def test_requests_in_progress_are_bounded_for_each_connection():
    async def test(w: World) -> None:
        tasks = [asyncio.ensure_future(w.ask(LATER)) for _ in range(4)]
        busy = [await one for one in asyncio.as_completed(tasks[2:])]
        assert {answer.code for answer in busy} == {2}
        assert all("[OVERLOAD]" in answer.remark for answer in busy)
        w.service.release.set()
        assert [(await task).code for task in tasks[:2]] == [0, 0]

    run(test, requests_in_progress_max=2)


def test_a_client_that_does_not_read_its_answers_is_not_read_either():
    async def test(w: World) -> None:
        request = b"".join(encode_command(RemotingCommand(ECHO, body=bytes(60_000))))
        reader, writer = await w.raw(b"")
        count = 400
        sent = asyncio.ensure_future(write_all(writer, request, count))
        await until(lambda: len(w.service.seen) > 0)
        seen = -1
        while seen != len(w.service.seen):
            seen = len(w.service.seen)
            await asyncio.sleep(0.1)
        assert seen < count, "reading stopped while answers waited"
        decoder, answers = FrameDecoder(), 0
        while answers < count:
            answers += len(decoder.feed(await reader.read(1 << 20)))
        await sent
        writer.close()

    run(test, write_pause_bytes=100_000)


async def write_all(writer: asyncio.StreamWriter, data: bytes, count: int) -> None:
    for _ in range(count):
        writer.write(data)
        await writer.drain()


def test_a_peer_for_whom_too_much_waits_is_closed_with_one_log_line(caplog):
    async def test(w: World) -> None:
        await w.ask(ECHO)
        server_side = next(iter(w.server.connections.values()))
        reader, writer = await w.raw(b"")
        await until(lambda: len(w.server.connections) == 2)
        slow = next(one for one in w.server.connections.values() if one is not server_side)
        with caplog.at_level(logging.WARNING):
            while not slow.closed:
                slow.write(bytes(500_000), bytes(500_000))
                await asyncio.sleep(0)
            slow.close("again")
            slow.abort("again")
        assert len(warnings(caplog)) == 1
        assert "does not read" in warnings(caplog)[0]
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        writer.close()

    run(test, write_pause_bytes=1000, write_close_bytes=5_000_000)


def test_what_was_written_before_closing_is_sent():
    async def test(w: World) -> None:
        reader, writer = await w.raw(b"")
        await until(lambda: len(w.server.connections) == 1)
        server_side = next(iter(w.server.connections.values()))
        server_side.write(b"a" * 100, b"b")
        assert server_side.unsent_bytes == 101
        server_side.close("test")
        assert await reader.read() == b"a" * 100 + b"b"
        writer.close()

    run(test)


def test_a_peer_that_never_reads_cannot_keep_a_closed_connection_open():
    async def test(w: World) -> None:
        _, writer = await w.raw(b"")
        await until(lambda: len(w.server.connections) == 1)
        server_side = next(iter(w.server.connections.values()))
        server_side.write(bytes(20_000_000))
        server_side.close("test")
        await until(lambda: not w.server.connections)
        writer.close()

    run(test, close_timeout_ms=50)


def test_callbacks_run_once_and_their_failures_are_logged(caplog):
    async def test() -> None:
        calls: list[str] = []

        def fail(_: Connection) -> None:
            raise ValueError("callback")

        def fail_too(_: Connection) -> None:
            calls.append("server")
            raise ValueError("server callback")

        server = RemotingServer(name="test", handlers={}, on_close=fail_too)
        port = await server.start("127.0.0.1", 0)
        client = RemotingClient()
        connection = await client.connect(f"127.0.0.1:{port}")
        connection.on_close += [fail, lambda _: calls.append("client")]
        await until(lambda: len(server.connections) == 1)
        connection.close("test")
        await until(lambda: len(calls) == 2)
        assert sorted(calls) == ["client", "server"]
        await server.stop()
        await server.stop()
        await client.close()

    run_bounded(test())
    assert sum("on_close_failed" in line for line in warnings(caplog)) == 2


def test_a_port_in_use_is_fatal_and_named():
    async def test(w: World) -> None:
        server = RemotingServer(name="second", handlers={})
        with pytest.raises(
            FatalError, match=f"second: cannot listen on 127.0.0.1:{w.port}: is in use"
        ):
            await server.start("127.0.0.1", w.port)
        with pytest.raises(FatalError, match=r"cannot listen on 192\.0\.2\.1:0"):
            await server.start("192.0.2.1", 0)
        await server.stop()

    run(test)


@pytest.mark.parametrize("error", [FatalError("disk"), AssertionError("invariant")])
def test_fatal_errors_of_handlers_reach_the_process_and_not_the_peer(error):
    async def test() -> None:
        caught: list[BaseException] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: caught.append(context["exception"])
        )

        def fail(_: Connection, __: RemotingCommand) -> None:
            raise error

        server = RemotingServer(name="test", handlers={1: fail})
        port = await server.start("127.0.0.1", 0)
        client = RemotingClient()
        with pytest.raises(RequestTimeout):
            await client.request(f"127.0.0.1:{port}", RemotingCommand(1), 50)
        assert caught == [error]
        await client.close()
        await server.stop()

    run_bounded(test())


def test_an_answer_that_is_no_command_is_a_protocol_error():
    async def test() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1000)
            header = b'{"flag":1,"opaque":1,"language":[],"extFields":[]}'
            writer.write((4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big"))
            writer.write(header)
            await reader.read()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        client = RemotingClient()
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(RemoteProtocolError):
            await client.request(f"127.0.0.1:{port}", RemotingCommand(ECHO), 1000)
        with pytest.raises(LocalProtocolError):
            await client.request(
                f"127.0.0.1:{port}", RemotingCommand(200_050, serialize_type=1), 1000
            )
        await client.close()
        server.close()
        await server.wait_closed()

    run_bounded(test())


@pytest.mark.parametrize(
    "limits", [{"write_pause_bytes": 0}, {"write_pause_bytes": 1 << 30}, {"connections_max": 0}]
)
def test_limits_that_contradict_each_other_are_refused(limits):
    with pytest.raises(ValueError, match="above 0"):
        TransportConfig(**limits)

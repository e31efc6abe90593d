"""Peers that misbehave: garbage, silence, floods, and how connections end."""

import asyncio
import contextlib
import itertools
import logging
from typing import Any

import pytest

from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.command import (
    RemotingCommand,
    encode_command,
)
from ledgermq.remoting.protocol.errors import (
    ConnectionLost,
    InvalidHeader,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
)
from ledgermq.remoting.protocol.frame import Frame, FrameDecoder
from ledgermq.remoting.protocol.limits import HEADER_BYTES_MAX
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.remoting.transport.config import TransportConfig
from ledgermq.remoting.transport.connection import Connection
from ledgermq.remoting.transport.limits import TURN_FRAMES_MAX
from ledgermq.remoting.transport.server import RemotingServer
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.tasks import SERVING
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.remoting_world import (
    ECHO,
    LATER,
    SEND_FIELDS,
    World,
    run,
    run_bounded,
    until,
    warnings,
)

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


def test_a_full_server_lets_a_silent_connection_go(caplog):
    async def test(w: World) -> None:
        silent = [await w.raw(b"") for _ in range(2)]
        await until(lambda: len(w.server.connections) == 2)
        await until(lambda: all(one.quiet_sweeps for one in w.server.connections.values()))
        assert (await w.ask(ECHO)).code == 0
        assert (await asyncio.wait_for(silent[0][0].read(), 5)) == b""
        assert len(w.server.connections) == 2
        for _, writer in silent:
            writer.close()

    run(test, connections_max=2, idle_timeout_ms=800)


def test_without_that_silent_connections_shut_everybody_out():
    async def test(w: World) -> None:
        silent = [await w.raw(b"") for _ in range(2)]
        await until(lambda: len(w.server.connections) == 2)
        await until(lambda: all(one.quiet_sweeps for one in w.server.connections.values()))
        with planted(BY_TESTS["full-server-refuses"]), pytest.raises(ConnectionLost):
            await w.ask(ECHO)
        for _, writer in silent:
            writer.close()

    run(test, connections_max=2, idle_timeout_ms=2_000)


def test_partial_frames_of_all_connections_are_bounded():
    async def test(w: World) -> None:
        half = (15_000_000).to_bytes(4, "big") + bytes(1_000_000)
        senders = [await w.raw(half) for _ in range(3)]
        ends = [asyncio.ensure_future(reader.read()) for reader, _ in senders]
        gone, _ = await asyncio.wait(ends, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert gone
        for _, writer in senders:
            writer.close()
        await asyncio.gather(*ends, return_exceptions=True)
        assert (await w.ask(ECHO)).code == 0
        assert w.server.receive_bytes <= 3_000_000

    run(test, receive_bytes_max=3_000_000)


def test_what_waits_for_all_peers_that_do_not_read_is_bounded(caplog):
    async def test(w: World) -> None:
        readers = [await w.raw(b"") for _ in range(4)]
        await until(lambda: len(w.server.connections) == 4)
        slow = list(w.server.connections.values())
        with caplog.at_level(logging.WARNING):
            for _turn in range(40):
                for number, one in enumerate(slow):
                    one.write(bytes(1_000_000 if number else 1_200_000))
                await asyncio.sleep(0)
                if any(one.closed for one in slow):
                    break
        assert slow[0].closed
        assert not slow[1].closed
        assert "wait for peers" in warnings(caplog)[0]
        for _, writer in readers:
            writer.close()

    run(test, write_pause_bytes=100_000, unsent_bytes_max=30_000_000, close_timeout_ms=50)


def test_what_waits_for_many_peers_is_bounded_however_little_of_each_does(caplog):
    async def test(w: World) -> None:
        peers = [await w.raw(b"") for _ in range(8)]
        await until(lambda: len(w.server.connections) == 8)
        with caplog.at_level(logging.WARNING):
            for one in list(w.server.connections.values()):
                for _turn in range(9):  # one is read from as long as less than 10 MB wait for it
                    one.write(bytes(1_000_000))
                    await asyncio.sleep(0)
        assert not any(one.slow for one in w.server.connections.values())
        assert sum(one.unsent_bytes for one in w.server.connections.values()) <= 10_000_000
        assert "bytes wait to be sent" in warnings(caplog)[0]
        for _, writer in peers:
            writer.close()

    run(test, write_pause_bytes=10_000_000, sending_bytes_max=10_000_000, close_timeout_ms=50)


async def largest_turn(w: World, count: int) -> int:
    """Return how many of so many frames of one connection are handled in one turn at most."""
    loop = asyncio.get_running_loop()
    turns: list[int] = []

    def turn() -> None:
        turns.append(len(w.service.seen))
        if turns[-1] < count:
            loop.call_soon(turn)

    _, writer = await w.raw(b"")
    await until(lambda: len(w.server.connections) == 1)
    connection = next(iter(w.server.connections.values()))
    frame = Frame(0, b'{"code":%d,"flag":2}' % ECHO, b"")
    turn()
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(FrameDecoder, "received", lambda _self, _count: [frame] * count)
        connection.buffer_updated(0)
    await until(lambda: len(w.service.seen) == count)
    await asyncio.sleep(0)
    writer.close()
    return max(b - a for a, b in itertools.pairwise(turns))


def test_a_flood_of_frames_leaves_turns_to_the_others():
    async def test(w: World) -> None:
        assert await largest_turn(w, 2_000) <= TURN_FRAMES_MAX

    run(test)


def test_without_that_a_flood_has_the_loop_for_itself():
    async def test(w: World) -> None:
        with planted(BY_TESTS["flood-in-one-turn"]):
            assert await largest_turn(w, 2_000) == 2_000

    run(test)


def test_requests_in_progress_are_bounded_for_each_connection():
    async def test(w: World) -> None:
        tasks = [asyncio.ensure_future(w.ask(LATER)) for _ in range(4)]
        busy = [await one for one in asyncio.as_completed(tasks[2:])]
        assert {answer.code for answer in busy} == {2}
        assert all("[OVERLOAD]" in answer.remark for answer in busy)
        w.service.release.set()
        assert [(await task).code for task in tasks[:2]] == [0, 0]

    run(test, requests_in_progress_max=2)


async def bodies_are_bounded(w: World) -> bool:
    """Tell whether an address has a share of what all bodies under way may be, and no more."""
    body = bytes(30_000)
    other = RemotingClient(source_address="127.0.0.2")
    under_way = [asyncio.ensure_future(w.ask(LATER, body=body)) for _ in range(2)]
    await until(lambda: w.server.body_bytes == 2 * len(body))
    more = asyncio.ensure_future(w.ask(LATER, body=body))
    done, _ = await asyncio.wait([more], timeout=0.3)
    under_way += [
        asyncio.ensure_future(w.ask(LATER)),
        asyncio.ensure_future(other.request(w.addr, RemotingCommand(LATER, body=body), 3_000)),
    ]
    await until(lambda: len(w.server.connections) == 2)
    assert (await w.ask(ECHO, body=body)).code == 0, "what is answered at once holds nothing"
    w.service.release.set()
    assert [(await task).code for task in under_way] == [0] * 4
    refused = await more
    await until(lambda: not w.server.body_bytes)
    await other.close()
    return bool(done) and refused.code == ResponseCode.SYSTEM_BUSY


@pytest.mark.parametrize("is_planted", [False, True])
def test_bodies_of_requests_under_way_are_bounded(is_planted, monkeypatch):
    """256 requests of a connection that wait for something held 4 GiB of bodies nobody reads."""
    monkeypatch.setattr("ledgermq.remoting.transport.dispatch.BODIES_BYTES_MAX", 400_000)
    bug = (
        planted(BY_TESTS["bodies-under-way-not-bounded"])
        if is_planted
        else contextlib.nullcontext()
    )

    async def test(w: World) -> None:
        with bug:
            assert await bodies_are_bounded(w) is not is_planted

    run(test)


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
    assert sum("the end of <Connection" in line for line in warnings(caplog)) == 2


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


SILENT_MS = 1_000
"""Long enough to connect and to ask; then nobody answers."""


class Watched:
    """A server with one handler that raises, a client, and what the process is told of."""

    def __init__(self, error: Exception, *, is_hot: bool = False) -> None:
        self.told: list[dict[str, Any]] = []

        def fail(_: Connection, __: object) -> None:
            raise error

        fails: Any = {11: fail}
        self.server = RemotingServer(
            name="test", handlers={} if is_hot else fails, hot=fails if is_hot else {}
        )
        self.client = RemotingClient()

    async def ask(self, within_ms: int = 30_000) -> RemotingCommand:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.told.append(context))
        port = await self.server.start("127.0.0.1", 0)
        try:
            return await self.client.request(f"127.0.0.1:{port}", RemotingCommand(11), within_ms)
        finally:
            await self.client.close()
            await self.server.stop()


@pytest.mark.parametrize("is_hot", [True, False])
def test_fatal_errors_of_handlers_reach_the_process_and_not_the_peer(is_hot):
    error = FatalError("disk")

    async def test() -> None:
        watched = Watched(error, is_hot=is_hot)
        with pytest.raises(RequestTimeout):
            await watched.ask(SILENT_MS)
        assert [context["exception"] for context in watched.told] == [error]

    run_bounded(test())


@pytest.mark.parametrize("is_hot", [True, False])
@pytest.mark.parametrize("kind", [AssertionError, KeyError, RecursionError, MemoryError])
def test_a_bug_that_a_request_hits_is_its_answer_and_told_once(kind, is_hot):
    async def test() -> None:
        watched = Watched(kind("a bug" * 10_000), is_hot=is_hot)
        answer = await watched.ask()
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith(f"{kind.__name__}, ")
        assert len(answer.remark) < 2_000
        (context,) = watched.told
        assert context[SERVING]
        assert isinstance(context["exception"], kind)

    run_bounded(test())


async def bad_header_told_of() -> list[dict[str, Any]]:
    watched = Watched(InvalidHeader("request 11: no field `topic`"))
    answer = await watched.ask()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    return watched.told


def test_a_bad_header_is_the_clients_error_and_none_of_ours():
    async def test() -> None:
        assert await bad_header_told_of() == []
        with planted(BY_TESTS["bad-header-is-our-error"]):
            assert len(await bad_header_told_of()) == 1

    run_bounded(test())


def test_without_its_code_a_refused_message_may_have_been_stored():
    with planted(BY_TESTS["large-message-answered-one"]), pytest.raises(AssertionError):
        test_a_header_that_takes_long_to_read_is_refused_unread(310, ResponseCode.MESSAGE_ILLEGAL)


def test_without_that_a_request_ends_the_process():
    async def test() -> None:
        watched = Watched(AssertionError("a bug"))
        with planted(BY_TESTS["assertion-ends-the-process"]), pytest.raises(RequestTimeout):
            await watched.ask(SILENT_MS)
        assert [type(context["exception"]) for context in watched.told] == [FatalError]

    run_bounded(test())


async def ask_with_large_header(w: World, code: int) -> RemotingCommand:
    fields = {"i": "x" * HEADER_BYTES_MAX}
    return await w.ask(code, 1000, ext_fields={**SEND_FIELDS, **fields})


@pytest.mark.parametrize(
    ("code", "answered"),
    [(ECHO, ResponseCode.SYSTEM_ERROR)]
    + [(code, ResponseCode.MESSAGE_ILLEGAL) for code in (10, 310, 320)],
)
def test_a_header_that_takes_long_to_read_is_refused_unread(code, answered):
    async def test(w: World) -> None:
        answer = await ask_with_large_header(w, code)
        assert answer.code == answered
        assert "more than 262144" in (answer.remark or "")
        assert (await w.ask(ECHO)).code == 0

    run(test)


def test_without_that_it_is_read():
    async def test(w: World) -> None:
        with planted(BY_TESTS["large-headers-are-read"]):
            assert (await ask_with_large_header(w, ECHO)).code == 0

    run(test)


def test_a_frame_that_trips_the_reading_itself_ends_its_connection_alone(monkeypatch):
    async def test(w: World) -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        other = await w.client.connect(w.addr)
        real = FrameDecoder.received

        def received(self: FrameDecoder, count: int) -> list[Frame]:
            if count == 9:
                raise AssertionError("of the decoder")
            return real(self, count)

        monkeypatch.setattr(FrameDecoder, "received", received)
        reader, writer = await w.raw(bytes(9))
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        assert [SERVING in context for context in told] == [True]
        assert not other.closed
        assert (await w.ask(ECHO)).code == 0

    run(test)


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

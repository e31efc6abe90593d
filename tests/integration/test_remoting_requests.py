"""Requests and answers over loopback sockets, and what goes wrong with them."""

import asyncio

import pytest

from ledgermq.remoting.protocol.command import (
    FLAG_ONEWAY,
    RemotingCommand,
    decode_command,
    encode_command,
    make_response,
)
from ledgermq.remoting.protocol.errors import (
    ConnectFailed,
    ConnectionLost,
    Outcome,
    RequestTimeout,
)
from ledgermq.remoting.protocol.frame import FrameDecoder
from ledgermq.remoting.transport.client import RemotingClient
from tests.integration.remoting_world import (
    BAD,
    BROKEN,
    ECHO,
    HUGE,
    LATER,
    REFUSED,
    SEND_FIELDS,
    SILENT,
    World,
    run,
    until,
)


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


@pytest.mark.parametrize("addr", ["..:10911", "a" * 64 + ".example:10911", "a\0b:1"])
def test_a_host_that_cannot_be_is_not_reached(addr):
    async def test(w: World) -> None:
        with pytest.raises(ConnectFailed, match="cannot connect"):
            await w.client.request(addr, RemotingCommand(ECHO), 1_000)

    run(test)


@pytest.mark.parametrize(
    ("code", "answer_code", "remark"),
    [
        (999, 3, " request type 999 not supported"),
        (REFUSED, 17, "no 1004"),
        (BAD, 1, "InvalidHeader, field of 1005"),
        (HUGE, 1, "LocalProtocolError, frame of"),
        (BROKEN, 1, "ValueError, 1003, remoting_world.py:"),
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


class Told:
    """A receiver that keeps what it is told."""

    def __init__(self):
        self.told = []

    def done(self):
        return bool(self.told)

    def set_result(self, frame):
        self.told.append(decode_command(frame))

    def set_exception(self, error):
        self.told.append(error)


def test_a_receiver_hears_of_its_request_once_whatever_becomes_of_it():
    async def test(w: World) -> None:
        connection = await w.client.connect(w.addr)
        receivers = [Told() for _ in range(4)]

        def submit(receiver, code, timeout_ms):
            opaque = connection.next_opaque()
            request = encode_command(RemotingCommand(code, opaque=opaque, body=b"b"))
            connection.submit_request(receiver, opaque, timeout_ms, *request)

        submit(receivers[0], ECHO, 1_000)
        submit(receivers[1], SILENT, 30)
        await until(lambda: receivers[0].told and receivers[1].told)
        submit(receivers[2], SILENT, 10_000)
        connection.abort("told to")
        submit(receivers[3], ECHO, 1_000)
        await until(lambda: receivers[2].told)
        assert all(len(receiver.told) == 1 for receiver in receivers)
        first, second, third, fourth = (receiver.told[0] for receiver in receivers)
        assert (first.code, first.body) == (0, b"b")
        assert isinstance(second, RequestTimeout)
        assert isinstance(third, ConnectionLost)
        assert isinstance(fourth, ConnectionLost)

    run(test)


def test_a_submitted_request_keeps_its_place_behind_what_was_written():
    async def test(w: World) -> None:
        connection = await w.client.connect(w.addr)
        connection.send(RemotingCommand(SILENT, opaque=76))
        request = encode_command(RemotingCommand(SILENT, opaque=77))
        connection.submit_request(Told(), 77, 1_000, *request)
        connection.send(RemotingCommand(SILENT, opaque=78))
        await until(lambda: len(w.service.held) == 3)
        assert [command.opaque for command in w.service.held] == [76, 77, 78]

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


def test_closing_a_client_fails_those_who_wait_for_a_connection(monkeypatch):
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    async def test(w: World) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(RemotingClient, "_connect", never)
            waiting = asyncio.ensure_future(w.client.connect(w.addr))
            given_up = asyncio.ensure_future(w.client.connect(w.addr))
            await asyncio.sleep(0.01)
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)
            assert given_up.cancelled()
            await w.client.close()
            with pytest.raises(ConnectFailed, match="was closed"):
                await waiting

    run(test)


def test_connections_leave_from_the_source_address():
    async def test(w: World) -> None:
        client = RemotingClient(source_address="127.0.0.2")
        await client.request(w.addr, RemotingCommand(ECHO), 1000)
        assert w.service.connections[0].remote[0] == "127.0.0.2"
        await client.close()

    run(test)

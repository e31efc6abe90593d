"""A handler that has no room for a request: the connection waits, or the request is refused."""

import asyncio

from ledgermq.remoting.protocol.command import RemotingCommand, decode_command, encode_command
from ledgermq.remoting.protocol.frame import Frame, FrameDecoder
from ledgermq.remoting.protocol.headers import decode_send_header
from ledgermq.remoting.transport.connection import Connection
from ledgermq.remoting.transport.room import Entering, NoRoom
from tests.integration.remoting_world import SEND_FIELDS, World, run, until

LARGE = b"x" * 1000


class FullRoom:
    """A room that is full until somebody is let in."""

    def __init__(self, *, takes: bool = True) -> None:
        self.takes = takes
        self.is_free = False
        self.waiting: list[tuple[Entering, int]] = []

    def wait(self, one: Entering, size_bytes: int) -> bool:
        if self.takes:
            self.waiting.append((one, size_bytes))
        return self.takes

    def let_in(self) -> bool:
        one, _ = self.waiting.pop(0)
        self.is_free = True
        is_known = one.enter()
        self.is_free = False
        return is_known


def sends(*bodies: bytes) -> bytes:
    """Return frames that send these bodies, numbered from 0."""
    return b"".join(
        b"".join(encode_command(RemotingCommand(310, opaque=n, ext_fields=SEND_FIELDS, body=body)))
        for n, body in enumerate(bodies)
    )


def serve(w: World, room: FullRoom) -> list[int]:
    """Have large sends of a server need room; return the numbers of those that were handled."""
    handled: list[int] = []
    answer = w.service.send

    def handle(connection: Connection, frame: Frame) -> None:
        if len(frame.body) == len(LARGE) and not room.is_free:
            raise NoRoom(room)
        handled.append(decode_send_header(frame)[0])
        answer(connection, frame)

    for key in w.server.hot:
        w.server.hot[key] = handle
    w.server._hot_by_code[310] = handle
    return handled


def test_what_is_behind_a_frame_that_waits_stays_behind_it():
    async def test(w: World) -> None:
        room = FullRoom()
        handled = serve(w, room)
        frames = sends(b"a", LARGE, b"b", LARGE, b"c")
        await w.raw(frames)
        await until(lambda: bool(room.waiting))
        assert handled == [0]
        assert 2 * len(LARGE) < room.waiting[0][1] < len(frames), "all that is kept is counted"
        await asyncio.sleep(0.05)
        assert (handled, len(room.waiting)) == ([0], 1)
        assert room.let_in()
        await until(lambda: bool(room.waiting))
        assert handled == [0, 1, 2]
        assert room.let_in()
        await until(lambda: handled == [0, 1, 2, 3, 4])

    run(test)


def test_nothing_more_is_read_while_a_frame_waits():
    async def test(w: World) -> None:
        room = FullRoom()
        handled = serve(w, room)
        _, writer = await w.raw(sends(LARGE))
        await until(lambda: bool(room.waiting))
        writer.write(sends(b"a"))
        await asyncio.sleep(0.1)
        assert handled == []
        room.let_in()
        await until(lambda: len(handled) == 2)

    run(test)


def test_a_frame_that_may_not_wait_is_refused_and_the_next_one_served():
    async def test(w: World) -> None:
        handled = serve(w, FullRoom(takes=False))
        refused = await w.ask(310, ext_fields=SEND_FIELDS, body=LARGE)
        assert refused.code == 2
        assert "busy" in (refused.remark or "")
        assert (await w.ask(310, ext_fields=SEND_FIELDS, body=b"a")).code == 0
        assert len(handled) == 1

    run(test)


def test_a_frame_that_waited_too_long_is_refused_and_the_next_ones_served():
    async def test(w: World) -> None:
        room = FullRoom()
        handled = serve(w, room)
        reader, _ = await w.raw(sends(LARGE, b"a", b"b"))
        await until(lambda: bool(room.waiting))
        one, _ = room.waiting.pop()
        one.waiting_since_ms = 5
        one.refuse(NoRoom(room))
        await until(lambda: handled == [1, 2])
        decoder, answers = FrameDecoder(), []
        while len(answers) < 3:
            answers += map(decode_command, decoder.feed(await reader.read(4096)))
        assert [(a.opaque, a.code) for a in answers] == [(0, 2), (1, 0), (2, 0)]
        assert one.waiting_since_ms is None, "what comes next begins to wait anew"

    run(test)


def test_a_connection_that_is_gone_takes_no_room():
    async def test(w: World) -> None:
        room = FullRoom()
        handled = serve(w, room)
        _, writer = await w.raw(sends(LARGE, b"a"))
        await until(lambda: bool(room.waiting))
        writer.transport.abort()
        next(iter(w.server.connections.values())).abort("test")
        await until(lambda: not w.server.connections)
        assert room.let_in()
        assert handled == []

    run(test)

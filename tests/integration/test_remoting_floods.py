"""Floods of connections and frames: who comes later, and from the same address, is served too."""

import asyncio
import itertools
import socket

import pytest
import uvloop

from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import ConnectionLost
from ledgermq.remoting.protocol.frame import Frame, FrameDecoder
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.remoting.transport.limits import ACCEPTED_MAX, TURN_FRAMES_MAX
from ledgermq.remoting.transport.server import RemotingServer
from ledgermq.remoting.transport.turns import FEW_FRAMES, Turns
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.remoting_world import ECHO, World, run, until

WAITING = 200
FLOODING = 30
FLOOD = 600


def turns_until_accepted() -> int:
    """Return how many turns of the loop it takes until all connections that wait are taken."""
    turns = []

    async def scenario() -> None:
        server = RemotingServer(name="test", handlers={})
        port = await server.start("127.0.0.1", 0)
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(WAITING)]
        while len(server.connections) < WAITING:
            turns.append(len(server.connections))
            await asyncio.sleep(0)
        for client in clients:
            client.close()
        await until(lambda: not server.connections)
        await server.stop()

    uvloop.run(asyncio.wait_for(scenario(), 20))
    taken = [after - before for before, after in itertools.pairwise(turns)]
    assert max(taken) <= 2 * (ACCEPTED_MAX + 1)
    return len(turns)


def test_connections_that_wait_are_taken_together():
    assert turns_until_accepted() < WAITING / 2


def test_one_connection_a_turn_is_found_here():
    with planted(BY_TESTS["one-connection-a-turn"]):
        assert turns_until_accepted() >= WAITING


class Frames:
    """A clock by which a frame takes 40 us, so that 250 of them are a turn."""

    now_ns = 1

    def monotonic_ns(self) -> int:
        self.now_ns += 40_000
        return self.now_ns


def served_before_me() -> int:
    """Return how many frames of others at its address are served before a client's only one."""
    served: list[int] = []

    async def test(w: World) -> None:
        w.server.turns = Turns(Frames())  # type: ignore[arg-type]
        for _ in range(FLOODING + 1):
            await w.raw(b"")
        await until(lambda: len(w.server.connections) == FLOODING + 1)
        *floods, mine = w.server.connections.values()
        frame = Frame(0, b'{"code":%d,"flag":2}' % ECHO, b"")
        with pytest.MonkeyPatch.context() as patches:
            for one in (*floods, mine):
                count = 1 if one is mine else FLOOD
                patches.setattr(FrameDecoder, "received", lambda *_, count=count: [frame] * count)
                one.buffer_updated(0)
        await until(lambda: mine in w.service.connections)
        served.append(w.service.connections.index(mine))
        await until(lambda: len(w.service.seen) == FLOODING * FLOOD + 1)

    run(test)
    return served[0]


def test_who_asks_once_does_not_wait_for_whole_turns_of_his_address():
    assert served_before_me() <= TURN_FRAMES_MAX + FEW_FRAMES * FLOODING * 2


def test_whole_turns_for_each_connection_are_found_here():
    with planted(BY_TESTS["whole-turns-for-each-connection"]):
        assert served_before_me() > TURN_FRAMES_MAX + FEW_FRAMES * FLOODING * 2


async def makes_room(w: World, *, busy_count: int) -> bool:
    """Tell whether a newcomer takes the place of a silent one, where the largest is busy."""
    busy = [RemotingClient(source_address="127.0.0.2") for _ in range(busy_count)]
    newcomer = RemotingClient(source_address="127.0.0.3")
    silent = None
    try:
        for _ in range(40):  # four sweeps
            for one in busy:
                await one.request(w.addr, RemotingCommand(ECHO), 5_000)
            silent = silent or socket.create_connection(("127.0.0.1", w.port))
            await asyncio.sleep(0.01)
        assert len(w.server.connections) == busy_count + 1
        await newcomer.request(w.addr, RemotingCommand(ECHO), 5_000)
        await asyncio.sleep(0.01)
        return all(one.maybe_connection(w.addr) is not None for one in busy)
    except ConnectionLost:
        return False
    finally:
        assert silent is not None
        silent.close()
        for one in (*busy, newcomer):
            await one.close()


@pytest.mark.parametrize("busy_count", [1, 2])
def test_a_silent_connection_makes_room_where_the_largest_address_is_busy(busy_count):
    async def test(w: World) -> None:
        assert await makes_room(w, busy_count=busy_count)

    run(test, connections_max=busy_count + 1, idle_timeout_ms=800)


@pytest.mark.parametrize("busy_count", [1, 2])
def test_without_that_silent_ones_of_many_addresses_shut_others_out(busy_count):
    async def test(w: World) -> None:
        with planted(BY_TESTS["only-the-largest-makes-room"]):
            assert not await makes_room(w, busy_count=busy_count)

    run(test, connections_max=busy_count + 1, idle_timeout_ms=800)

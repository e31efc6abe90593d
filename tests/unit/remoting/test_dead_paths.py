"""A way that nothing comes through any more, without a word: the client gives its connection up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.remoting.transport.config import TransportConfig
from ledgermq.remoting.transport.server import RemotingServer
from mutants.patches import BY_TESTS
from mutants.planting import planted
from sim.loop import SimLoop

if TYPE_CHECKING:
    from collections.abc import Iterator

PORT, ADDR = 10911, "10.0.0.2:10911"
DEAD_AFTER_MS = TransportConfig().dead_after_ms


class World:
    """A server on one machine and a client on another one, which has asked it once."""

    def __init__(self) -> None:
        self.loop = SimLoop(1)
        here, there = self.loop.add_host("a", "10.0.0.1"), self.loop.add_host("b", "10.0.0.2")
        self.here, self.there = self.loop.boot(here), self.loop.boot(there)
        self.outcomes: list[str] = []
        self.loop.spawn(self.there, self.serve())
        self.loop.run_for(1)
        self.loop.spawn(self.here, self.ask())
        self.loop.run_for(50)
        assert self.outcomes == ["answered"]

    async def serve(self) -> None:
        answer = {1: lambda _connection, request: make_response(request, 0)}
        self.server = RemotingServer(name="there", handlers=answer)
        await self.server.start("10.0.0.2", PORT)

    async def ask(self) -> None:
        if not self.outcomes:
            self.client = RemotingClient()
        try:
            await self.client.request(ADDR, RemotingCommand(1), 1_000)
        except RemotingError as error:
            self.outcomes.append(type(error).__name__)
        else:
            self.outcomes.append("answered")

    def ask_into_the_cut(self, for_ms: int) -> None:
        self.loop.network.cut("10.0.0.1", "10.0.0.2")
        self.loop.spawn(self.here, self.ask())
        self.loop.run_for(for_ms)

    @property
    def is_connected(self) -> bool:
        return self.client.maybe_connection(ADDR) is not None


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.loop.close()


def test_a_connection_that_nobody_acknowledges_anything_on_is_given_up(world: World) -> None:
    world.ask_into_the_cut(DEAD_AFTER_MS - 100)
    assert world.outcomes[1:] == ["RequestTimeout"]
    assert world.is_connected, "a late answer is no reason yet"
    world.loop.run_for(200)
    assert not world.is_connected
    world.loop.network.heal("10.0.0.1", "10.0.0.2")
    world.loop.spawn(world.here, world.ask())
    world.loop.run_for(1_000)
    assert world.outcomes[2:] == ["answered"]


def test_without_that_it_is_kept_for_a_quarter_of_an_hour() -> None:
    with planted(BY_TESTS["dead-connection-kept"]):
        world = World()
    world.ask_into_the_cut(4 * DEAD_AFTER_MS)
    assert world.is_connected
    world.loop.close()


def test_one_on_which_nothing_waits_is_kept(world: World) -> None:
    world.loop.network.cut("10.0.0.1", "10.0.0.2")
    world.loop.run_for(2 * DEAD_AFTER_MS)
    assert world.is_connected

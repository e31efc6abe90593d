"""A client that has read its answers is listened to."""

import asyncio
from types import SimpleNamespace

import pytest

from ledgermq.remoting.transport.config import TransportConfig
from ledgermq.remoting.transport.connection import Connection
from mutants.patches import BY_TESTS
from mutants.planting import planted
from sim.oracles.base import Violation
from sim.oracles.listening import NAME, UNHEARD_TICKS, Listening


class End:
    """A broker's end of a connection, which it does not read."""

    remote = ("10.0.2.1", 5)

    def __init__(self, reads=False):
        self.reads = reads

    def is_reading(self):
        return self.reads


class Tap:
    """Listens there."""

    def __init__(self, end, is_closed=False, is_unread=False):
        self.end, self.is_closed, self.is_unread = end, is_closed, is_unread


def look(tap, *ticks, lives=(1, 1, 1, 1)):
    """Look at a broker with one connection, at these ticks."""
    listening = Listening()
    for tick, life in zip(ticks, lives, strict=False):
        broker = SimpleNamespace(name="n0", incarnation=life, state=SimpleNamespace(tick=tick))
        listening.on_tick(broker, [tap])


def test_who_has_read_everything_is_listened_to():
    with pytest.raises(Violation, match=NAME):
        look(Tap(End()), 0, 20, 20 + UNHEARD_TICKS)


@pytest.mark.parametrize(
    "tap", [Tap(End(reads=True)), Tap(End(), is_unread=True), Tap(End(), is_closed=True)]
)
def test_who_is_read_has_not_read_or_is_gone_is_no_failure(tap):
    look(tap, 0, 20, 20 + UNHEARD_TICKS)


def test_it_may_take_a_moment():
    look(Tap(End()), 0, 20, UNHEARD_TICKS)
    look(Tap(End()), 0, 2 * UNHEARD_TICKS, lives=(1, 2))


def test_it_begins_anew_once_it_was_read():
    end = End()
    listening = Listening()
    for tick in range(0, 10 * UNHEARD_TICKS, 20):
        end.reads = tick % UNHEARD_TICKS == 0
        broker = SimpleNamespace(name="n0", incarnation=1, state=SimpleNamespace(tick=tick))
        listening.on_tick(broker, [Tap(end)])


async def read_on():
    """What a server's connection tells its transport when a slow client has read."""
    told = []
    dispatcher = SimpleNamespace(hot={}, turns=None)
    connection = Connection(dispatcher, TransportConfig(), server_side=True)
    connection._transport = SimpleNamespace(
        pause_reading=lambda: told.append("pause"), resume_reading=lambda: told.append("resume")
    )
    connection.pause_writing()
    connection.resume_writing()
    return told


def test_a_client_that_was_slow_is_read_on():
    assert asyncio.run(read_on()) == ["pause", "resume"]
    with planted(BY_TESTS["slow-client-unheard"]):
        assert asyncio.run(read_on()) == ["pause"]

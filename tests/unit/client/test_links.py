"""Connections to leaders that move while they are being made."""

import asyncio

import pytest

from ledgermq.client.errors import NoRoute
from ledgermq.client.links import Link, Links
from ledgermq.remoting.protocol.errors import ConnectFailed
from mutants.patches import BY_TESTS
from mutants.planting import planted


class Connection:
    closed = False


class Routes:
    """Names one leader after the other, the next one at each connection; then it stays."""

    def __init__(self, *leaders):
        self.leaders = list(leaders)

    def master(self, _broker_name):
        return self.leaders[0]

    async def connect(self, _addr):
        """Be the client, too: while it connects, the leader moves."""
        await asyncio.sleep(0)
        if len(self.leaders) > 1:
            self.leaders.pop(0)
        return Connection()


def connect(*leaders):
    """Return whom the link leads to that was made while ``leaders`` followed each other."""
    routes = Routes(*leaders)
    links = Links(routes, routes, None)

    return asyncio.run(links.connect("a", 1_000)).addr


def test_a_leader_that_moves_while_it_is_connected_to_is_followed():
    """The route changed before there was a link to forget, and will not change again."""
    assert connect("x:1", "y:1") == "y:1"
    assert connect("x:1", "y:1", "z:1") == "z:1"
    with planted(BY_TESTS["link-to-who-led-when-it-was-made"]):
        assert connect("x:1", "y:1") == "x:1"


class Refusing(Routes):
    """As `Routes`; those in ``refused`` take no connection."""

    refused = ("x:1",)

    async def connect(self, addr):
        connection = await super().connect(addr)
        if addr in self.refused:
            raise ConnectFailed(f"{addr} refuses")
        return connection


def test_who_refuses_and_leads_no_more_is_not_the_end_of_it():
    def connect_to_the_next():
        moved = Refusing("x:1", "y:1")
        return asyncio.run(Links(moved, moved, None).connect("a", 1_000)).addr

    assert connect_to_the_next() == "y:1"
    with planted(BY_TESTS["refused-by-a-former-leader"]), pytest.raises(ConnectFailed):
        connect_to_the_next()
    for leaders in (("x:1",), ("x:1", None)):
        stays = Refusing(*leaders)
        with pytest.raises(ConnectFailed, match="x:1 refuses"):
            asyncio.run(Links(stays, stays, None).connect("a", 1_000))


def test_an_open_link_that_another_one_replaces_is_watched_on():
    """What it owes may stall."""

    async def body():
        routes = Routes("x:1")
        links = Links(routes, routes, None)
        connecting = asyncio.ensure_future(links.connect("a", 1_000))
        await asyncio.sleep(0)
        other = Link("a", "y:1", Connection())
        other.pending = 1
        links._by_name["a"] = other  # made meanwhile, before the route named nobody
        routes.leaders[0] = None
        link = await connecting
        assert links.maybe_link("a") is link
        return links.stalled(1_000_000_000, 500) == [other]

    assert asyncio.run(body())
    with planted(BY_TESTS["replaced-link-unwatched"]):
        assert not asyncio.run(body())


def test_while_nobody_leads_who_led_is_connected_to():
    assert connect("x:1", None) == "x:1"
    with pytest.raises(NoRoute):
        connect(None)


def test_leaders_that_move_without_end_are_given_up_in_time():
    async def body():
        routes = Routes(*(f"x:{number}" for number in range(100_000)))
        with pytest.raises(ConnectFailed):
            await Links(routes, routes, None).connect("a", 5)

    asyncio.run(body())

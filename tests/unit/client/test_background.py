"""Periodic work of a client: when it runs, and that nothing wakes up while there is none."""

from types import SimpleNamespace

import pytest

from ledgermq.client.background import Background
from ledgermq.client.errors import NoRoute
from ledgermq.client.group_member import GroupMember
from ledgermq.client.links import Link, Links
from ledgermq.client.upkeep import Upkeep
from sim.loop import SimLoop

MS = 1_000_000


class Bench:
    """Work every 100 ms on a loop of its own; ``idle_ms`` is what it answers for."""

    def __init__(self):
        self.loop = SimLoop(1)
        self.background = Background()
        self.calls = []
        self.asked = []
        self.idle_ms = 0

    def start(self, work=None):
        self.loop.call(None, self.background.every, 100, work or self.work, "work", self.idle)

    def idle(self):
        self.asked.append(self.loop.now_ns // MS)
        if isinstance(self.idle_ms, Exception):
            raise self.idle_ms
        return self.idle_ms

    async def work(self):
        self.calls.append(self.loop.now_ns // MS)


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.loop.close()


def test_work_is_done_at_intervals_while_there_is_some(bench):
    bench.start()
    bench.loop.run_for(350)
    assert bench.calls == [100, 200, 300]


def test_nothing_wakes_up_while_there_is_surely_nothing_to_do(bench):
    bench.start()
    bench.idle_ms = 500
    bench.loop.run_for(1_650)
    assert bench.asked == [100, 600, 1_100, 1_600]
    assert bench.calls == []
    bench.idle_ms = 0
    bench.loop.run_for(500)
    assert bench.calls == [2_100]


def test_it_looks_no_more_often_than_the_interval(bench):
    bench.start()
    bench.idle_ms = 1
    bench.loop.run_for(350)
    assert bench.asked == [100, 200, 300]


def test_it_ends_with_the_client_while_it_waits(bench):
    bench.start()
    bench.idle_ms = 500
    bench.loop.run_for(250)
    bench.loop.run_until_complete(bench.background.stop())
    bench.loop.run_for(5_000)
    assert bench.asked == [100]


class Connection:
    closed = False


def links(*pending):
    """Links that owe ``pending`` answers each, and have given the last one at the time beside."""
    made = Links(None, None, None)
    for number, (count, progress_ms) in enumerate(pending):
        link = Link(f"b{number}", "x:1", Connection())
        link.pending, link.t_progress_ns = count, progress_ms * MS
        made._by_name[link.broker_name] = link
    return made


def test_what_owes_nothing_cannot_have_stalled_within_the_limit():
    assert links().stall_free_ms(700 * MS, 500) == 500
    assert links((0, 100)).stall_free_ms(700 * MS, 500) == 500


def test_what_owes_an_answer_may_stall_when_the_limit_is_over():
    several = links((0, 0), (1, 400), (2, 300))
    assert several.stall_free_ms(700 * MS, 500) == 100
    assert several.stall_free_ms(799 * MS, 500) == 1
    assert several.stall_free_ms(900 * MS, 500) == 0
    assert several.stalled(800 * MS, 500) == []
    assert [link.broker_name for link in several.stalled(801 * MS, 500)] == ["b2"]


class Routes:
    """Routes of three topics; name servers do not tell the one of the first."""

    topics = ("a", "b", "c")

    def __init__(self):
        self.asked = []

    def peek(self, _topic):
        return SimpleNamespace(provisional=True)

    def representative_topics(self):
        return self.topics

    async def refresh(self, topic):
        self.asked.append(topic)
        if topic == "a":
            raise NoRoute("nobody knows it")


def test_a_topic_that_nobody_knows_keeps_no_other_from_being_looked_at():
    routes = Routes()
    upkeep = Upkeep(SimpleNamespace(routes=routes), None, None, 500)
    SimLoop(1).run_until_complete(upkeep._poll_provisional())
    assert routes.asked == ["a", "b", "c"]


def test_a_topic_without_a_route_keeps_no_leader_of_others_from_being_seen():
    routes = Routes()
    member = SimpleNamespace(routes=routes, _subscriptions={})
    SimLoop(1).run_until_complete(GroupMember._check_leaders(member))
    assert routes.asked == ["a", "b", "c"]

"""Routes: which queues they give, which of several answers is believed, how often is asked."""

import asyncio

import msgspec
import pytest

from ledgermq.client.errors import NameServersUnreachable, NoRoute
from ledgermq.client.message import MessageQueue
from ledgermq.client.name_servers import NameServers, choose_route
from ledgermq.client.route import RouteCache, make_provisional_route, make_route
from ledgermq.remoting.protocol.bodies import BrokerData, QueueData, TopicRouteData
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import ConnectFailed
from ledgermq.runtime.clock import SystemClock
from mutants.patches import BY_TESTS, MUTANTS
from mutants.planting import planted


def route(*brokers, perm=6, queues=2, order=None):
    return TopicRouteData(
        broker_datas=[BrokerData(broker_name=name, broker_addrs=ids) for name, ids in brokers],
        queue_datas=[
            QueueData(broker_name=name, perm=perm, read_queue_nums=queues, write_queue_nums=queues)
            for name, _ in brokers
        ],
        order_topic_conf=order,
    )


def encoded(data):
    return msgspec.json.encode(data)


class FakeCaller:
    """Answers route requests from a table: address to route, None (code 17) or an error."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []
        self.gate = None

    async def request(self, addr, command, timeout_ms):
        self.asked.append(addr)
        if self.gate is not None:
            await self.gate.wait()
        answer = self.answers[addr]
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            return RemotingCommand(code=17, flag=1, remark="No topic route info")
        return RemotingCommand(code=0, flag=1, body=encoded(answer))


def cache_of(answers, **settings):
    caller = FakeCaller(answers)
    return caller, RouteCache(NameServers(list(answers), caller, 100), SystemClock(), **settings)


def test_queues_follow_permissions():
    both = make_route("t", route(("a", {0: "x:1"}), ("b", {1: "y:1"})))
    assert both.publish_queues == both.subscribe_queues
    assert [(q.broker_name, q.queue_id) for q in both.publish_queues] == [
        ("a", 0), ("a", 1), ("b", 0), ("b", 1),
    ]  # fmt: skip
    readable = make_route("t", route(("a", {0: "x:1"}), perm=4))
    assert (len(readable.publish_queues), len(readable.subscribe_queues)) == (0, 2)


def test_an_ordered_topic_publishes_only_to_the_queues_of_its_order():
    data = route(("a", {0: "x:1"}), ("b", {0: "y:1"}), order="b:3;broken")
    assert make_route("t", data).publish_queues == tuple(
        MessageQueue("t", "b", i) for i in range(3)
    )


def test_queues_that_a_name_server_tells_twice_are_read_by_one_member():
    data = route(("a", {0: "x:1"}))
    data.queue_datas *= 3
    assert [queue.queue_id for queue in make_route("t", data).subscribe_queues] == [0, 1]


def test_a_provisional_route_has_few_queues_and_nothing_to_read():
    view = make_provisional_route("new", route(("a", {0: "x:1"}), queues=8), 4)
    assert (len(view.publish_queues), view.subscribe_queues, view.provisional) == (4, (), True)


def test_the_route_with_most_healthy_masters_wins():
    stale, fresh = route(("a", {0: "old:1"})), route(("a", {0: "new:1"}))
    leaderless = route(("a", {1: "old:1"}))
    suspects = frozenset({"old:1"})
    assert choose_route([stale, leaderless, fresh], suspects) is fresh
    assert choose_route([stale, leaderless], suspects) is stale
    assert choose_route([], suspects) is None


def test_name_servers_are_tried_in_turn_and_the_good_one_is_remembered():
    async def body():
        caller, cache = cache_of({"n1:1": ConnectFailed("down"), "n2:1": route(("a", {0: "x:1"}))})
        await cache.refresh("t")
        await cache.refresh("t")
        assert caller.asked == ["n1:1", "n2:1", "n2:1"]

    asyncio.run(body())


def test_no_answer_at_all_is_told_apart_from_no_route():
    async def body():
        _, cache = cache_of({"n1:1": ConnectFailed("down")})
        with pytest.raises(NameServersUnreachable):
            await cache.refresh("t")
        with pytest.raises(NameServersUnreachable):
            await cache.refresh("t", failed_at_ns=1)
        _, cache = cache_of({"n1:1": None})
        with pytest.raises(NoRoute):
            await cache.refresh("t")

    asyncio.run(body())


def test_concurrent_refreshes_are_one():
    async def body():
        caller, cache = cache_of({"n1:1": route(("a", {0: "x:1"}))})
        caller.gate = asyncio.Event()
        waiting = [asyncio.ensure_future(cache.refresh("t")) for _ in range(50)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        caller.gate.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert len(set(map(id, results[1:]))) == 1
        assert caller.asked == ["n1:1"]

    asyncio.run(body())


def test_a_route_fetched_after_the_failure_is_not_fetched_again():
    async def body():
        caller, cache = cache_of({"n1:1": route(("a", {0: "x:1"}))})
        before_ns = SystemClock().monotonic_ns()
        await cache.refresh("t")
        await cache.refresh("t", failed_at_ns=before_ns)
        assert len(caller.asked) == 1
        await cache.refresh("t", failed_at_ns=SystemClock().monotonic_ns())
        assert len(caller.asked) == 2

    asyncio.run(body())


def test_a_failure_asks_all_name_servers_and_believes_the_new_leader():
    async def body():
        answers = {"n1:1": route(("a", {0: "x:1"})), "n2:1": route(("a", {0: "x:1"}))}
        changes = []
        caller, cache = cache_of(answers, on_change=changes.append)
        await cache.refresh("t")
        answers["n2:1"] = route(("a", {0: "y:1", 1: "x:1"}))
        await cache.refresh("t", failed_at_ns=1 << 62, suspects=frozenset({"x:1"}))
        assert cache.master("a") == "y:1"
        assert cache.address("a", 1) == "x:1"
        assert changes == [frozenset({"a"}), frozenset({"a"})]
        assert sorted(caller.asked[1:]) == ["n1:1", "n2:1"]

    asyncio.run(body())


def test_an_older_answer_of_another_topic_does_not_bring_the_former_leader_back():
    """Who leads is one table for all topics, and fetches of two may overtake each other."""

    async def main():
        caller, cache = cache_of({"ns": route(("a", {0: "old:1"}))})
        caller.gate = gate = asyncio.Event()
        first = asyncio.ensure_future(cache.refresh("first"))
        while not caller.asked:
            await asyncio.sleep(0)
        stays, caller.gate = caller.answers["ns"], None
        caller.answers["ns"] = route(("a", {0: "new:1"}))
        await cache.refresh("second")
        assert cache.master("a") == "new:1"
        caller.answers["ns"] = stays  # what was on its way since before
        gate.set()
        await first
        known = cache.master("a")
        assert cache.peek("first").publish_queues
        caller.answers["ns"] = route(("a", {0: "newest:1"}))
        await cache.refresh("first")
        assert cache.master("a") == "newest:1"
        return known

    assert asyncio.run(main()) == "new:1"
    with planted(MUTANTS["older-route-believed"]):
        assert asyncio.run(main()) == "old:1"


def test_a_topic_that_vanishes_in_an_election_is_kept():
    async def body():
        answers = {"n1:1": route(("a", {0: "x:1"}))}
        _, cache = cache_of(answers)
        first = await cache.refresh("t")
        answers["n1:1"] = None
        assert await cache.refresh("t", failed_at_ns=1 << 62) is first
        answers["n1:1"] = route(("a", {1: "x:1"}))
        await cache.refresh("t")
        assert cache.master("a") is None

    asyncio.run(body())


def test_stopping_fails_the_callers_instead_of_cancelling_them():
    async def body():
        caller, cache = cache_of({"n1:1": None})
        caller.gate = asyncio.Event()
        waiting = asyncio.ensure_future(cache.refresh("t"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await cache.close()
        (failure,) = await asyncio.gather(waiting, return_exceptions=True)
        assert type(failure).__name__ == "NotRunning"

    asyncio.run(body())


def test_a_few_topics_represent_all_brokers():
    async def body():
        answers = {"n1:1": route(("a", {0: "x:1"}))}
        _, cache = cache_of(answers)
        await cache.refresh("t1")
        await cache.refresh("t2")
        answers["n1:1"] = route(("a", {0: "x:1"}), ("b", {0: "y:1"}))
        await cache.refresh("t3")
        assert cache.representative_topics() == ["t1", "t3"]

    asyncio.run(body())


class FakeTopics(FakeCaller):
    """Answers route requests by topic."""

    async def request(self, addr, command, timeout_ms):
        data = self.answers[command.ext_fields["topic"]]
        if data is None:
            return RemotingCommand(code=17, flag=1, remark="No topic route info")
        return RemotingCommand(code=0, flag=1, body=encoded(data))


async def queues_while_no_route_has_the_topic():
    """Have the only leader of a topic's group die; return the queues that a producer has then."""
    answers = {"t": route(("a", {0: "x:1"})), "TBW102": route(("a", {}), ("b", {0: "y:1"}))}
    servers = NameServers(["n1:1"], FakeTopics(answers), 100)
    cache = RouteCache(servers, SystemClock(), default_topic="TBW102")
    await cache.refresh("t")
    answers["t"] = None
    now = await cache.refresh("t", failed_at_ns=1 << 62)
    return {queue.broker_name for queue in now.publish_queues}


def test_a_producer_keeps_the_queues_of_a_topic_that_it_knew():
    assert asyncio.run(queues_while_no_route_has_the_topic()) == {"a"}
    with planted(BY_TESTS["client-known-topic-made-anew"]):
        assert asyncio.run(queues_while_no_route_has_the_topic()) == {"a", "b"}

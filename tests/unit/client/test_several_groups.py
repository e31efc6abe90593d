"""Two broker groups: one that does not answer, or is gone, holds up nothing of the other."""

import asyncio

import pytest

from ledgermq.client import ConsumeStatus, MessageQueue, Producer, PushConsumer
from ledgermq.client.name_servers import NameServers
from ledgermq.client.route import RouteCache
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.runtime.clock import SystemClock
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, run
from tests.unit.client.test_route import FakeCaller, cache_of, route

OF_THE_SECOND = [MessageQueue(TOPIC, "group-1", number) for number in range(4)]


def hang(broker):
    """Have a broker answer nothing any more, as one that stands still."""

    async def never(_connection, _request):
        broker.tasks.add(asyncio.current_task())
        await asyncio.Event().wait()

    for code in broker._server._handlers:
        broker._server._handlers[code] = never


async def joins_while_the_first_group_hangs(cluster, wait_s):
    hang(cluster.brokers["group-0"][0])
    config = cluster.config(request_timeout_ms=100, leader_check_ms=50)
    consumer = PushConsumer(config, lambda *_: ConsumeStatus.CONSUME_SUCCESS)
    consumer.subscribe(TOPIC)
    async with consumer, asyncio.timeout(wait_s):
        while consumer.assigned_queues != OF_THE_SECOND:
            await asyncio.sleep(0.02)


def test_a_broker_that_does_not_answer_does_not_keep_the_queues_of_others():
    run(lambda cluster: joins_while_the_first_group_hangs(cluster, 5), groups=2, replicas=1)


def test_the_planted_bug_takes_none_of_them():
    async def body(cluster):
        with planted(BY_TESTS["one-broker-knows-the-group"]), pytest.raises(TimeoutError):
            await joins_while_the_first_group_hangs(cluster, 2)

    run(body, groups=2, replicas=1)


def of_both_and_then_of_one():
    """Poll the route of a topic whose first broker goes; return the brokers that are known."""

    async def body():
        caller, cache = cache_of({"n": route(("a", {0: "a:1"}), ("b", {0: "b:1"}))})
        await cache.refresh("t")
        caller.answers["n"] = route(("b", {0: "b:1"}))
        await cache.refresh("t")
        assert set(cache.brokers) == {"a", "b"}, "it may be back in a moment"
        await cache.poll()
        return dict(cache.brokers)

    return asyncio.run(body())


def test_a_broker_that_no_route_names_any_more_is_forgotten_by_the_next_poll():
    assert of_both_and_then_of_one() == {"b": {0: "b:1"}}


def test_the_planted_bug_knows_it_for_good():
    with planted(BY_TESTS["former-brokers-known-on"]):
        assert set(of_both_and_then_of_one()) == {"a", "b"}


def test_one_that_another_topic_names_is_not_forgotten():
    async def body():
        caller = FakeCaller({"n": route(("a", {0: "a:1"}))})
        cache = RouteCache(NameServers(["n"], caller, 100), SystemClock())
        await cache.refresh("t")
        caller.answers["n"] = route(("b", {0: "b:1"}))
        await cache.refresh("u")
        caller.answers["n"] = None  # of both, as in an election
        await cache.poll()
        assert set(cache.brokers) == {"a", "b"}

    asyncio.run(body())


def test_topics_are_made_where_brokers_are_and_not_where_they_were():
    async def body(cluster):
        async with Producer(cluster.config(route_poll_ms=50)) as producer:
            await producer.fetch_publish_queues(TOPIC)
            (gone,) = cluster.brokers.pop("group-0")
            await gone.stop()
            cluster.publish()
            await asyncio.sleep(0.2)
            await producer.create_topic(TOPIC, 4)
            (left,) = cluster.brokers["group-1"]
            assert left.count(RequestCode.UPDATE_AND_CREATE_TOPIC) == 1

    run(body, groups=2, replicas=1)

"""Consumers hand out what they hold, once; routes, leaderships and logs are what they should be."""

import asyncio
import logging
from types import SimpleNamespace

import pytest

from dledger.core.model import Role
from ledgermq.client import ConsumeContext, ConsumeStatus, MessageQueue
from ledgermq.remoting.protocol.bodies import TopicConfig, TopicConfigWrapper
from namesrv.route_table import Registration, RouteTable
from sim.context import CURRENT
from sim.oracles.base import Findings, Violation
from sim.oracles.consuming import (
    AGAIN,
    BEGUN,
    GIVEN_BACK,
    HINDERED,
    OTHERS_MAX,
    Consuming,
)
from sim.oracles.healthy import CALM_NS, Healthy
from sim.oracles.replica import Change
from sim.oracles.routes import GONE_NS, check_gone, missing
from sim.oracles.tasks import Ear
from sim.oracles.truth import Truth

QUEUE = MessageQueue("orders", "b", 0)


class Push:
    """A consumer that does as it is told."""

    client_id = "c"

    def __init__(self):
        self.assignment = SimpleNamespace(_take=self.take, _release=self.release, _held={})
        self.service = SimpleNamespace(_listener=self.listen)
        self._listener = SimpleNamespace(_begun={})
        self.hindrances = SimpleNamespace(_queues={}, _since_ms={})
        self.status = ConsumeStatus.CONSUME_SUCCESS
        self.findings = Findings()
        Consuming(self.findings).follow(self)

    async def take(self, queue):
        self.assignment._held[queue] = SimpleNamespace(
            puller=SimpleNamespace(_on_illegal_offset=self.jump, _take=self.jump)
        )
        return True

    async def release(self, queue):
        del self.assignment._held[queue]
        return True

    async def jump(self, result):
        pass

    def listen(self, messages, context):
        return self.status

    def hand_out(self, *offsets):
        messages = [SimpleNamespace(queue_offset=offset, store_timestamp=0) for offset in offsets]
        asyncio.run(self.service._listener(messages, ConsumeContext(QUEUE)))
        return None if self.findings.first is None else self.findings.first.oracle

    def do(self, what):
        asyncio.run(getattr(self.assignment, what)(QUEUE))


def test_a_message_is_handed_out_once():
    push = Push()
    push.do("_take")
    assert push.hand_out(1, 2) is None
    assert push.hand_out(2) == AGAIN


def test_a_second_time_has_a_cause():
    push = Push()
    push.do("_take")
    push.hand_out(1)
    push.do("_release")
    push.do("_take")
    assert push.hand_out(1) is None
    asyncio.run(push.assignment._held[QUEUE].puller._on_illegal_offset(None))
    assert push.hand_out(1) is None
    push.status = ConsumeStatus.RECONSUME_LATER
    assert push.hand_out(2) is None
    push.status = ConsumeStatus.CONSUME_SUCCESS
    assert push.hand_out(2) is None


def test_what_was_under_way_when_the_queue_was_taken_anew_may_come_again():
    push = Push()
    push.do("_take")
    may_end = asyncio.Event()

    async def slow(_messages, _context):
        await may_end.wait()
        return ConsumeStatus.CONSUME_SUCCESS

    async def hand_out_meanwhile():
        message = SimpleNamespace(queue_offset=1, store_timestamp=0)
        listen, messages = push.service._listener, [message]
        under_way = asyncio.create_task(listen(messages, ConsumeContext(QUEUE)))
        await asyncio.sleep(0)
        await push.assignment._release(QUEUE)
        await push.assignment._take(QUEUE)
        may_end.set()
        await under_way
        await listen(messages, ConsumeContext(QUEUE))
        assert push.findings.first is None
        await listen(messages, ConsumeContext(QUEUE))

    push.service._listener.__self__._listener = slow
    asyncio.run(hand_out_meanwhile())
    assert push.findings.first.oracle == AGAIN


def test_calls_that_are_over_are_forgotten():
    push = Push()
    push.do("_take")
    push._listener._begun.update(dict.fromkeys(range(OTHERS_MAX), 7))
    assert push.hand_out(1) is None
    push._listener._begun[OTHERS_MAX] = 7
    assert push.hand_out(2) == BEGUN


@pytest.mark.parametrize("what", ["_queues", "_since_ms"])
def test_a_problem_of_a_queue_that_is_pulled_is_told_no_more(what):
    push = Push()
    push.do("_take")
    puller = push.assignment._held[QUEUE].puller
    getattr(push.hindrances, what)[MessageQueue("orders", "b", 1)] = 7
    asyncio.run(puller._take(None))
    assert push.hand_out(1) is None
    getattr(push.hindrances, what)[QUEUE] = 7
    asyncio.run(puller._take(None))
    assert push.hand_out(2) == HINDERED


def test_a_queue_that_was_given_back_is_not_handed_out():
    push = Push()
    push.do("_take")
    push.do("_release")
    assert push.hand_out(1) == GIVEN_BACK


def table(addr="n0:1", term=3, queues=4):
    routes = RouteTable()
    config = TopicConfig(topic_name="orders", read_queue_nums=queues, write_queue_nums=4)
    routes.register(
        Registration(
            cluster="c", broker_name="g", broker_id=0, addr=addr, raft_term=term,
            topics=TopicConfigWrapper(topic_config_table={"orders": config}),
        ),
        0,
    )  # fmt: skip
    return routes


TOPICS = {"orders": {"readQueueNums": 4, "writeQueueNums": 4}}


def test_a_route_names_the_leader_and_the_topics():
    assert not missing(table(), "g", "n0:1", TOPICS)
    assert missing(table(), "other", "n0:1", TOPICS)
    assert missing(table(addr="n1:1"), "g", "n0:1", TOPICS)
    assert missing(table(queues=3), "g", "n0:1", TOPICS)
    assert missing(table(), "g", "n0:1", {**TOPICS, "more": TOPICS["orders"]})


def test_a_broker_that_has_ended_is_told_to_nobody():
    check_gone("ns0", table(), {"n0:1": 0}, GONE_NS)
    check_gone("ns0", table(), {"n1:1": 0}, 2 * GONE_NS)
    with pytest.raises(Violation, match="A45"):
        check_gone("ns0", table(), {"n0:1": 0}, GONE_NS + 1)


def key(role, term=3):
    return (role, term, 0, 0, 3, 0, 0)


@pytest.mark.parametrize(
    ("role", "led_ns", "disturbed_ns", "is_sound"),
    [
        (Role.FOLLOWER, 2 * CALM_NS, 0, False),
        (Role.FOLLOWER, 2 * CALM_NS, CALM_NS + 1, True),
        (Role.FOLLOWER, CALM_NS - 1, 0, True),
        (Role.LEADER, 2 * CALM_NS, 0, True),
    ],
)
def test_a_leader_that_nothing_blocks_stays(role, led_ns, disturbed_ns, is_sound):
    truth, one = Truth(("n0",)), SimpleNamespace(name="n0")
    healthy = Healthy(truth)
    healthy.disturbed_ns = lambda: disturbed_ns
    healthy.on_boot(one)
    healthy.on_change(one, Change(key(Role.CANDIDATE), key(Role.LEADER), 0, 0))
    truth.now_ns = lambda: led_ns
    change = Change(key(Role.LEADER), key(role), 0, 0)
    if is_sound:
        healthy.on_change(one, change)
    else:
        with pytest.raises(Violation, match="A43 leader deposed"):
            healthy.on_change(one, change)


@pytest.mark.parametrize(
    ("name", "text", "is_blocked", "is_heard"),
    [
        ("broker.send", "event=bug", False, True),
        ("broker.send", "event=bug", True, False),
        ("sim.world", "event=bug", False, False),
        ("dledger.node", "event=slow_write node=n0", False, False),
    ],
)
def test_errors_in_the_log_are_findings(name, text, is_blocked, is_heard):
    findings, ear = Findings(), Ear()
    ear.follow(findings, lambda _host: is_blocked)
    token = CURRENT.set(SimpleNamespace(host=SimpleNamespace(name="n0")))
    try:
        ear.handle(logging.LogRecord(name, logging.ERROR, "f", 1, text, (), None))
    finally:
        CURRENT.reset(token)
    assert (findings.first is not None) == is_heard

"""Strategies and selectors choose as RocketMQ 4.9.7's do (java_choices.jsonl: its own answers)."""

import asyncio
import itertools
import json
import logging
from pathlib import Path

import pytest

from ledgermq.client import (
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateNearby,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageQueue,
    PushConsumer,
    SelectorFailed,
    StrategyFailed,
    allocate_averagely,
    allocate_by_circle,
    select_by_hash,
    select_by_random,
    strategies,
)
from ledgermq.client.selectors import choose
from ledgermq.runtime.rng import SystemRng
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, run

QUEUES = [
    MessageQueue("orders", name, number)
    for name in ("east@a", "east@b", "west@c")
    for number in range(5)
]
STRATEGIES = {
    "average": allocate_averagely,
    "circle": allocate_by_circle,
    "room": AllocateByMachineRoom({"east"}),
    "nearby": AllocateNearby(
        allocate_averagely, lambda queue: queue.broker_name.split("@")[0],
        lambda consumer_id: consumer_id.split("-")[0],
    ),
    "hash10": AllocateByConsistentHash(),
    "hash3": AllocateByConsistentHash(3),
}  # fmt: skip
ANSWERS = [
    json.loads(line)
    for line in Path(__file__).with_name("java_choices.jsonl").read_text().splitlines()
]
SHARES = [row for row in ANSWERS if "strategy" in row]
KEYS = [row for row in ANSWERS if "key" in row]
MESSAGE = Message("orders", b"x")


def test_the_answers_are_all_there():
    assert {row["strategy"] for row in SHARES} == set(STRATEGIES)
    assert len(SHARES) == 89
    assert len(KEYS) == 32


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_member_gets_what_it_would_get_in_java(name):
    for row in SHARES:
        if row["strategy"] == name:
            expected = [MessageQueue("orders", *place) for place in row["share"]]
            for queues in (QUEUES, QUEUES[::-1]):
                members = row["members"][::-1]
                assert STRATEGIES[name](row["member"], queues, members) == expected, row


def test_a_key_gets_the_queue_that_it_would_get_in_java():
    for row in KEYS:
        queues = QUEUES[: row["queues"]]
        assert select_by_hash(row["key"])(queues, MESSAGE) == QUEUES[row["chosen"]], row


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_who_is_no_member_gets_nothing(strategy):
    assert strategy("east-9", QUEUES, ["east-1", "west-1"]) == []


def test_few_queues_change_hands_on_a_ring():
    queues = [MessageQueue("t", "b", number) for number in range(200)]
    members = [f"10.0.0.{number}@1#1" for number in range(8)]
    ring = AllocateByConsistentHash(100)
    before = {queue: one for one in members for queue in ring(one, queues, members)}
    after = {queue: one for one in members[1:] for queue in ring(one, queues, members[1:])}
    assert len(before) == len(after) == 200
    kept = [queue for queue, one in before.items() if one != members[0]]
    assert all(after[queue] == before[queue] for queue in kept)
    with pytest.raises(ValueError, match="virtual_nodes"):
        AllocateByConsistentHash(0)


def test_configured_queues_are_taken_and_unlisted_topics_shared():
    mine = AllocateByConfig([QUEUES[3], QUEUES[1], MessageQueue("other", "b", 0)])
    assert mine("a", QUEUES, ["a", "b"]) == [QUEUES[1], QUEUES[3]]
    retries = [MessageQueue("%RETRY%g", "east@a", 0)]
    assert mine("a", retries, ["a", "b"]) == retries
    assert mine("b", retries, ["a", "b"]) == []


def broken(_consumer_id, _queues, _consumer_ids):
    raise KeyError("room")


WRONG = {
    "raises": (broken, "KeyError"),
    "is no list": (lambda *_: None, "NoneType"),
    "gives others": (lambda *_: [MessageQueue("other", "b", 0)], "not to be shared"),
    "gives twice": (lambda _me, queues, _ids: [queues[0], queues[0]], "twice"),
    "nowhere": (AllocateNearby(allocate_averagely, lambda _: "", lambda _: "x"), "no machine room"),
}


@pytest.mark.parametrize(("strategy", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_share_is_a_clear_error(strategy, said):
    with pytest.raises(StrategyFailed, match=said):
        strategies.share_of(strategy, "a", QUEUES, ["a"])


@pytest.mark.parametrize("name", ["gives others", "gives twice"])
def test_a_planted_belief_is_noticed(name):
    with planted(BY_TESTS["strategy-believed"]), pytest.raises(pytest.fail.Exception):
        test_a_wrong_share_is_a_clear_error(*WRONG[name])


def test_a_strategy_that_fails_is_told_and_costs_nothing_that_is_held(caplog):
    async def body(cluster):
        fails = []

        def strategy(consumer_id, queues, consumer_ids):
            if fails:
                raise KeyError("room")
            return allocate_by_circle(consumer_id, queues, consumer_ids)

        consumer = PushConsumer(
            cluster.config(rebalance_ms=50),
            lambda _messages, _context: ConsumeStatus.CONSUME_SUCCESS,
            ConsumeOptions(allocate=strategy, suspend_ms=200, pull_timeout_ms=1_000),
        )
        consumer.subscribe(TOPIC)
        async with consumer:
            await consumer.wait_joined(5)
            fails.append(1)
            async with asyncio.timeout(5):
                while not consumer.problems:
                    await asyncio.sleep(0.01)
            assert isinstance(consumer.problems[TOPIC], StrategyFailed)
            assert len(consumer.assigned_queues) == 4

    with caplog.at_level(logging.WARNING):
        run(body)
    assert "KeyError" in caplog.text


def test_random_choices_use_all_queues_and_odd_keys_are_refused():
    select = select_by_random(SystemRng(1))
    assert {select(QUEUES, MESSAGE) for _ in range(400)} == set(QUEUES)
    for key in (1 << 63, -(1 << 63) - 1):
        with pytest.raises(ValueError, match="64 bits"):
            select_by_hash(key)
    for key in (1.5, None, True, b"x"):
        with pytest.raises(TypeError, match="key"):
            select_by_hash(key)


@pytest.mark.parametrize(
    ("select", "said"),
    [
        (lambda _queues, _message: None, "no writable queue"),
        (lambda _queues, _message: MessageQueue("orders", "east@a", 99), "no writable queue"),
        (lambda queues, _message: queues[len(queues)], "IndexError"),
        (lambda queues, _message: tuple(queues[0]), "no writable queue"),
        (lambda queues, _message: list(queues[0]), "no writable queue"),
    ],
)
def test_a_wrong_choice_is_a_clear_error(select, said):
    with pytest.raises(SelectorFailed, match=said):
        choose(select, MESSAGE, QUEUES)


def test_neighbours_see_the_same_queues_once():
    for name, strategy in STRATEGIES.items():
        members = ["east-1", "east-2", "west-1"]
        shares = [strategy(one, QUEUES, members) for one in members]
        assert not any(set(a) & set(b) for a, b in itertools.combinations(shares, 2)), name


@pytest.mark.parametrize("make", [tuple, list, str, lambda queue: queue.queue_id])
def test_a_share_of_what_are_no_queues_ends_no_rebalancing(make):
    async def body(cluster):
        wrong = []

        def strategy(consumer_id, queues, members):
            share = allocate_averagely(consumer_id, queues, members)
            return [make(queue) for queue in share] if wrong and share else share

        options = ConsumeOptions(allocate=strategy, suspend_ms=100)
        config = cluster.config(rebalance_ms=20)
        consumer = PushConsumer(config, lambda *_: ConsumeStatus.CONSUME_SUCCESS, options)
        consumer.subscribe(TOPIC)
        async with consumer:
            await consumer.wait_joined(5)
            wrong.append(True)
            async with asyncio.timeout(5):
                while not isinstance(consumer.problems.get(TOPIC), StrategyFailed):
                    await asyncio.sleep(0.01)
            wrong.clear()
            async with asyncio.timeout(5):
                while consumer.problems:
                    await asyncio.sleep(0.01)

    run(body)

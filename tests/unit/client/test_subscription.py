"""Tag expressions and the exact filter of the client."""

import pytest

from ledgermq.client import ClientConfig, ConsumeStatus, PushConsumer
from ledgermq.client.errors import InvalidMessage
from ledgermq.client.subscription import Sql92, parse_subscription
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.runtime.clock import SystemClock


def message(tags: str | None) -> MessageExt:
    properties = f"TAGS\x01{tags}".encode() if tags else b""
    return MessageExt("t", 0, 0, 0, 0, 0, 0, b"", 0, b"", 0, 0, b"x", properties)


@pytest.mark.parametrize(
    ("expression", "tags"),
    [("*", ()), ("", ()), (" A ", ("A",)), ("A || B||A", ("A", "B")), ("A|B", ("A|B",))],
)
def test_expressions_are_split_at_double_bars(expression, tags):
    assert parse_subscription("t", expression, 1).tags == tags


@pytest.mark.parametrize(
    "expression",
    ["||", " || ", "a\x01", "a ||| b", "a|| b|", None, 5, "\ud800", Sql92("a = '\ud800'")],
)
def test_expressions_without_a_tag_are_refused(expression):
    with pytest.raises(InvalidMessage):
        parse_subscription("t", expression, 1)


def test_tags_with_equal_hash_codes_are_told_apart():
    # "Aa" and "BB" have the same Java hash code.
    subscription = parse_subscription("t", "Aa", 1)
    assert subscription.select([message("Aa"), message("BB"), message(None)]) == [message("Aa")]
    assert len(parse_subscription("t", "*", 1).select([message("BB"), message(None)])) == 2


def test_sql_is_left_to_the_broker():
    subscription = parse_subscription("t", Sql92(" n > 3 "), 7)
    wire = subscription.to_wire()
    assert (wire.expression_type, wire.sub_string, wire.code_set) == ("SQL92", "n > 3", [])
    assert len(subscription.select([message("Aa"), message(None)])) == 2
    with pytest.raises(InvalidMessage):
        parse_subscription("t", Sql92("n = '\x01'"), 7)


def test_wire_form_carries_hash_codes():
    wire = parse_subscription("t", "TagA || TagB", 7).to_wire()
    assert sorted(wire.code_set) == [2598919, 2598920]
    assert (wire.sub_string, wire.sub_version, wire.topic) == ("TagA || TagB", 7, "t")


class ClockPutBack(SystemClock):
    """A clock whose wall time somebody puts back."""

    wall = 5_000

    def wall_ms(self):
        return self.wall


def test_a_subscription_that_comes_back_is_newer_whatever_the_clock_says():
    # 1. All members subscribe to A, with version 5,000. 2. The clock is put back. 3. One gives it
    # up and subscribes to B. A broker would go on with A for a version that is not newer.
    clock = ClockPutBack()
    config = ClientConfig(namesrv_addrs=("127.0.0.1:1",), group="g")
    consumer = PushConsumer(config, lambda *_: ConsumeStatus.CONSUME_SUCCESS, clock=clock)
    consumer.subscribe("t", "A")
    assert consumer.subscriptions["t"].version == 5_000
    clock.wall = 4_000
    consumer.unsubscribe("t")
    consumer.subscribe("t", "B")
    assert consumer.subscriptions["t"].version == 5_001
    clock.wall = 6_000
    consumer.subscribe("t", "C")
    assert consumer.subscriptions["t"].version == 6_000

"""Names and settings that are refused, with errors that say why."""

import re

import pytest

from ledgermq.client.config import ClientConfig, ConsumeOptions
from ledgermq.client.errors import InvalidMessage
from ledgermq.client.ids import make_client_id
from ledgermq.client.message import Message
from ledgermq.client.validation import (
    check_attributes,
    check_group,
    check_properties_size,
    check_topic,
)
from ledgermq.remoting.protocol.errors import Outcome
from ledgermq.runtime.clock import SystemClock


@pytest.mark.parametrize("topic", ["", "  ", "a b", "ä", "a" * 128, "a/b", "t\n"])
def test_bad_topics_are_refused(topic):
    with pytest.raises(InvalidMessage, match="topic") as caught:
        check_topic(topic)
    assert caught.value.outcome is Outcome.FAILED


@pytest.mark.parametrize("topic", ["a" * 127, "%RETRY%g", "A-b_c|1"])
def test_good_topics_pass(topic):
    check_topic(topic)


def test_a_group_may_be_longer_than_a_topic():
    check_group("g" * 255)
    with pytest.raises(InvalidMessage, match="256 characters"):
        check_group("g" * 256)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"namesrv_addrs": ()}, "at least one"),
        ({"namesrv_addrs": ("host",)}, "host:port"),
        ({"namesrv_addrs": ("h:70000",)}, "host:port"),
        ({"send_timeout_ms": 0}, "send_timeout_ms"),
        ({"retry_times": -1}, "retry_times"),
        ({"heartbeat_ms": 0}, "heartbeat_ms"),
        ({"rebalance_ms": -1}, "rebalance_ms"),
        ({"persist_offset_ms": 0}, "persist_offset_ms"),
        ({"leader_check_ms": 0}, "leader_check_ms"),
        ({"route_poll_ms": 0}, "route_poll_ms"),
        ({"stop_timeout_ms": -1}, "stop_timeout_ms"),
        ({"compress_over_bytes": -1}, "compress_over_bytes"),
        ({"max_message_bytes": 0}, "max_message_bytes"),
        ({"default_topic_queues": 0}, "default_topic_queues"),
        ({"backoff_ms": ()}, "backoff_ms"),
    ],
)
def test_bad_settings_are_refused(settings, why):
    with pytest.raises(ValueError, match=why):
        ClientConfig(**{"namesrv_addrs": ("h:1",), "group": "g", **settings})


def test_bad_consume_options_are_refused():
    with pytest.raises(ValueError, match="concurrency"):
        ConsumeOptions(concurrency=0)
    with pytest.raises(ValueError, match="pull_timeout_ms"):
        ConsumeOptions(suspend_ms=30_000)


def test_client_ids_are_unique_unless_named():
    clock = SystemClock()
    assert make_client_id("1.2.3.4", "me", 7, clock) == "1.2.3.4@me"
    first, second = (make_client_id("1.2.3.4", "", 7, clock) for _ in range(2))
    assert first != second
    assert first.startswith("1.2.3.4@")


@pytest.mark.parametrize(
    ("name", "value"),
    [("delay_level", "3"), ("delay_level", 1.5), ("delay_level", 19), ("delay_level", -1),
     ("tags", 5), ("keys", ["k"]), ("sharding_key", 7)],
)  # fmt: skip
def test_what_has_the_wrong_type_or_size_is_said(name, value):
    with pytest.raises(InvalidMessage, match=f"^{name} .*{re.escape(str(value))}"):
        check_attributes(Message("t", b"x", **{name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_cached_messages", 0), ("max_cached_bytes", 0), ("max_offset_span", 0),
     ("flow_control_wait_ms", 0), ("local_retry_ms", -1), ("suspend_ms", -1),
     ("consume_timestamp_ms", -1), ("max_reconsume_times", -5)],
)  # fmt: skip
def test_settings_under_which_nothing_would_be_consumed_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be at least .*, not {value}"):
        ConsumeOptions(**{name: value})


@pytest.mark.parametrize(
    "attributes",
    [{"tags": "\ud800"}, {"keys": "k \udfff"}, {"sharding_key": "\udc00"},
     {"properties": {"a": "\ud83d"}}, {"properties": {"\ud83d": "a"}}],
)  # fmt: skip
def test_half_a_surrogate_pair_is_refused(attributes):
    with pytest.raises(InvalidMessage, match="no Unicode text"):
        check_attributes(Message("t", b"x", **attributes))


def test_a_whole_surrogate_pair_is_text():
    check_attributes(Message("t", b"x", tags="\U0001f600", properties={"ä": "ö"}))


def test_properties_of_four_bytes_a_character_keep_the_limit():
    check_properties_size("\U0001f600" * 8_191)
    with pytest.raises(InvalidMessage, match="properties take 32768 bytes"):
        check_properties_size("\U0001f600" * 8_192)

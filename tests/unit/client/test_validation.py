"""Names and settings that are refused, with errors that say why."""

import pytest

from ledgermq.client.config import ClientConfig, ConsumeOptions
from ledgermq.client.errors import InvalidMessage
from ledgermq.client.ids import make_client_id
from ledgermq.client.validation import check_group, check_topic
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

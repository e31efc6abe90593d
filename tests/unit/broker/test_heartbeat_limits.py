"""What a heartbeat may say, and what of it is kept and weighed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from broker.fair_share import FairShare
from broker.groups.client_registry import ConsumerRegistry, Subscription
from broker.limits import NEW_GROUPS_OF_ADDRESS_MAX
from broker.serving_limits import (
    EXPRESSION_LENGTH_MAX,
    HEARTBEAT_GROUPS_MAX,
    SUBSCRIPTIONS_MAX,
    SUBSCRIPTIONS_PER_GROUP_MAX,
    TAGS_MAX,
)
from broker.state.kinds import StateKind
from broker.state.subscription import GroupChange, SubscriptionGroupConfig
from ledgermq.remoting.protocol.bodies import decode_heartbeat
from ledgermq.remoting.protocol.errors import InvalidHeader, RemoteProtocolError
from ledgermq.remoting.protocol.limits import CLIENT_ID_LENGTH_MAX, GROUP_LENGTH_MAX
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.broker.fakes import FakeConnection, frame
from tests.unit.broker.test_client_registry import TRAITS, client
from tests.unit.broker.test_processors import Bench


def topics(count: int, **changes: Any) -> list[dict[str, Any]]:
    return [{"topic": f"T{number}"} | changes for number in range(count)]


def groups(count: int, topic_count: int = 0, **changes: Any) -> list[dict[str, Any]]:
    data = topics(topic_count, **changes)
    return [{"groupName": f"g{number}", "subscriptionDataSet": data} for number in range(count)]


SUBSCRIPTIONS = SUBSCRIPTIONS_PER_GROUP_MAX
TOO_MUCH: dict[str, dict[str, Any]] = {
    "client id": {"clientID": "c" * (CLIENT_ID_LENGTH_MAX + 1)},
    "consumer groups": {"consumerDataSet": groups(HEARTBEAT_GROUPS_MAX + 1)},
    "producer groups": {"producerDataSet": groups(HEARTBEAT_GROUPS_MAX + 1)},
    "name of a group": {"producerDataSet": [{"groupName": "g" * (GROUP_LENGTH_MAX + 1)}]},
    "subscriptions of a group": {"consumerDataSet": groups(1, SUBSCRIPTIONS + 1)},
    "subscriptions": {"consumerDataSet": groups(SUBSCRIPTIONS_MAX // 500 + 1, 500)},
    "expression": {"consumerDataSet": groups(1, 1, subString="x" * (EXPRESSION_LENGTH_MAX + 1))},
    "tags": {"consumerDataSet": groups(1, 1, codeSet=list(range(TAGS_MAX + 1)))},
    "name of a topic": {"consumerDataSet": groups(1, 1, topic="T" * 400)},
}
JUST_SO: dict[str, dict[str, Any]] = {
    "client id": {"clientID": "c" * CLIENT_ID_LENGTH_MAX},
    "groups": {"producerDataSet": groups(HEARTBEAT_GROUPS_MAX)},
    "subscriptions": {"consumerDataSet": groups(SUBSCRIPTIONS_MAX // 1_000, SUBSCRIPTIONS)},
    "expression": {"consumerDataSet": groups(1, 1, subString="x" * EXPRESSION_LENGTH_MAX)},
    "tags": {"consumerDataSet": groups(1, 1, codeSet=list(range(TAGS_MAX)))},
}


def beat(body: dict[str, Any]) -> int:
    """Send a heartbeat; return the code of its answer."""
    bench, connection = Bench(), FakeConnection()
    sent = frame(34, json.dumps({"clientID": "c"} | body).encode())
    bench.client.handle_heartbeat(connection, sent)
    bench.work()
    return connection.answers[-1].code


@pytest.mark.parametrize("what", TOO_MUCH)
def test_a_heartbeat_that_says_too_much_is_refused_whole(what: str) -> None:
    with pytest.raises(InvalidHeader):
        beat(TOO_MUCH[what])


@pytest.mark.parametrize("what", TOO_MUCH)
def test_without_that_it_is_taken(what: str) -> None:
    with planted(BY_TESTS["heartbeats-unchecked"]):
        assert beat(TOO_MUCH[what]) in {0, 2}, "2: not all new groups were created"


@pytest.mark.parametrize("what", JUST_SO)
def test_as_much_as_may_be_is_taken(what: str) -> None:
    assert beat(JUST_SO[what]) in {0, 2}


def taken_by_one_address() -> int:
    """Return how many of a million bytes one address may take for subscriptions."""
    room = FairShare(1_000_000)
    registry = ConsumerRegistry(room)
    large = [Subscription(f"T{number}", "x" * 16_000, version=1) for number in range(50)]
    registry.register("g", TRAITS, client(1), large[:5])
    registry.register("g", TRAITS, client(1), large)
    registry.register("h", TRAITS, client(1), large)
    return room.used


def test_without_shares_one_address_takes_all_room_for_subscriptions() -> None:
    assert 80_000 < taken_by_one_address() <= 200_000
    with planted(BY_TESTS["subscriptions-without-share"]):
        assert taken_by_one_address() > 800_000


def kept_and_weighed() -> tuple[int, int]:
    """Tell large subscriptions, then small ones of an older version; return what is kept."""
    room = FairShare(10_000_000)
    registry = ConsumerRegistry(room)
    registry.register("g", TRAITS, client(1), [Subscription("T", "x" * 16_000, version=2)])
    registry.register("g", TRAITS, client(1), [Subscription("T", "*", version=1)])
    group = registry.get("g")
    assert group is not None
    kept, weighed = len(group.subscriptions["T"].expression), room.used
    registry.close(1)
    assert room.used == 0
    return kept, weighed


def test_what_is_kept_is_weighed_not_what_was_said_last() -> None:
    kept, weighed = kept_and_weighed()
    assert kept == 16_000
    assert weighed > kept


def test_without_that_what_is_kept_is_free() -> None:
    with planted(BY_TESTS["kept-subscriptions-unweighed"]):
        kept, weighed = kept_and_weighed()
    assert kept == 16_000
    assert weighed < 1_000


def read_by_number(number: int) -> str | None:
    data = [{"groupName": "g", "messageModel": number}]
    body = json.dumps({"clientID": "c", "consumerDataSet": data}).encode()
    return decode_heartbeat(body).consumer_data_set[0].message_model


@pytest.mark.parametrize("number", [-1, 2, 10**30])
def test_a_number_that_is_no_member_of_an_enumeration_is_refused(number: int) -> None:
    assert read_by_number(1) == "CLUSTERING"
    with pytest.raises(RemoteProtocolError):
        read_by_number(number)


def test_without_that_a_negative_number_is_the_last_member() -> None:
    with planted(BY_TESTS["negative-ordinal-taken"]):
        assert read_by_number(-1) == "CLUSTERING"


def heard_without_retries() -> list[int]:
    """Have a group without retry queues send a heartbeat more often than it could be new."""
    bench = Bench()
    config = SubscriptionGroupConfig(group_name="g", retry_queue_nums=0)
    payload = msgspec.json.encode(GroupChange(config, 1))
    assert bench.tables.state.apply(2, StateKind.GROUP.value, payload)
    connection = FakeConnection()
    for _ in range(NEW_GROUPS_OF_ADDRESS_MAX + 1):
        bench.beat(connection)
    bench.work()
    assert bench.tables.consumers.client_ids("g") == ["c1"]
    return [answer.code for answer in connection.answers if answer.code != 40]


def test_a_group_without_retries_lacks_no_topic() -> None:
    assert set(heard_without_retries()) == {0}


def test_the_planted_bug_takes_it_for_a_new_one_each_time() -> None:
    with planted(BY_TESTS["no-retries-no-end-of-news"]):
        assert set(heard_without_retries()) == {0, 2}

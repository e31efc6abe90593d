"""What a held pull waits for changes when its group subscribes to something else."""

from __future__ import annotations

import msgspec
import pytest

from broker.groups.client_registry import Subscription
from broker.state.subscription import GroupChange, SubscriptionGroupConfig
from ledgermq.remoting.protocol.bodies import TopicConfig
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.results import GetStatus
from tests.unit.broker.fakes import found, nothing
from tests.unit.broker.test_pull import SUBSCRIBED, WAIT, Bench


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.subscribe(Subscription.parse("T", "A", 1))
    return bench


def asked_anew(bench: Bench) -> None:
    """Have a pull wait for tag A, past a message of tag B, until the group wants B."""
    bench.store.results = [
        nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3),
        nothing(GetStatus.NO_MATCHED_MESSAGE, 4, 4),
        nothing(GetStatus.NO_MATCHED_MESSAGE, 5, 5),
    ]
    bench.pull(WAIT, subVersion=1)
    bench.processor.wake("T", 0, 4)
    assert bench.connection.answers == []
    bench.subscribe(Subscription.parse("T", "B", 2))


def assert_asks_from_where_it_did(bench: Bench) -> None:
    assert bench.answer == (20, "NO_MATCHED_MESSAGE")
    assert bench.connection.answers[0].ext_fields["nextBeginOffset"] == "3"
    assert len(bench.held) == 0


def test_who_subscribes_anew_asks_anew_from_where_it_did(bench: Bench) -> None:
    # 1. A pull for tag A is held. 2. Its group subscribes to B, by a heartbeat. 3. A message of
    # tag B comes, which the pull must not pass over: RocketMQ runs it again by what counts then.
    asked_anew(bench)
    bench.processor.wake("T", 0, 5)
    assert_asks_from_where_it_did(bench)


def test_so_does_one_whose_time_is_up(bench: Bench) -> None:
    asked_anew(bench)
    bench.processor.expire(bench.clock.now_ms + 1_100)
    assert_asks_from_where_it_did(bench)


def test_the_planted_bug_passes_over_what_the_group_wants_now(bench: Bench) -> None:
    with planted(BY_TESTS["held-by-what-was-wanted"]):
        asked_anew(bench)
        bench.processor.wake("T", 0, 5)
    assert (len(bench.held), bench.connection.answers) == (1, [])


@pytest.mark.parametrize("again", [Subscription.parse("T", "A", 2), Subscription.parse("T", "A")])
def test_the_same_said_again_changes_nothing(bench: Bench, again: Subscription) -> None:
    bench.store.results = [
        nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3),
        nothing(GetStatus.NO_MATCHED_MESSAGE, 4, 4),
        found(b"wanted", next_offset=5),
    ]
    bench.pull(WAIT, subVersion=1)
    bench.subscribe(again)
    bench.processor.wake("T", 0, 4)
    assert bench.connection.answers == []
    bench.processor.wake("T", 0, 5)
    assert bench.answer == (0, "FOUND")


def test_sql_that_takes_the_place_of_tags_is_another_wish(bench: Bench) -> None:
    bench.store.results = [
        nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3),
        nothing(GetStatus.NO_MATCHED_MESSAGE, 4, 4),
    ]
    bench.pull(WAIT, subVersion=1)
    bench.subscribe(Subscription("T", "n > 3", "SQL92", 2))
    bench.processor.wake("T", 0, 4)
    assert_asks_from_where_it_did(bench)


def test_a_pull_that_says_itself_what_it_wants_is_not_concerned(bench: Bench) -> None:
    bench.store.results = [
        nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3),
        nothing(GetStatus.NO_MATCHED_MESSAGE, 4, 4),
    ]
    bench.pull(SUBSCRIBED | WAIT, subscription="A")
    bench.subscribe(Subscription.parse("T", "B", 2))
    bench.processor.wake("T", 0, 4)
    assert (len(bench.held), bench.connection.answers) == (1, [])


def test_one_whose_group_has_left_waits_on(bench: Bench) -> None:
    bench.store.results = [
        nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3),
        found(b"wanted", next_offset=5),
    ]
    bench.pull(WAIT, subVersion=1)
    bench.consumers.unregister("g", bench.connection.id)
    bench.processor.wake("T", 0, 4)
    assert bench.answer == (0, "FOUND")


def forbidden(bench: Bench, what: str) -> tuple[int, str]:
    """Take a permission of a held pull's group or topic, have a message come; return its answer."""
    bench.store.results = [
        nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3),
        found(b"wanted", next_offset=5),
    ]
    bench.pull(SUBSCRIBED | WAIT)
    if what == "topic":
        bench.topics._put(TopicConfig(topic_name="T", perm=2))
    else:
        group = SubscriptionGroupConfig(group_name="g", consume_enable=False)
        bench.groups.apply(msgspec.json.encode(GroupChange(group, 1)))
    bench.processor.wake("T", 0, 4)
    return bench.answer


@pytest.mark.parametrize("what", ["topic", "group"])
def test_who_may_read_no_more_gets_nothing_more(what: str) -> None:
    assert forbidden(Bench(), what)[0] == 16
    with planted(BY_TESTS["held-though-forbidden"]):
        assert forbidden(Bench(), what)[0] == 0

"""Pulls: answered, held, woken, refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from broker.answers import DAMAGED, LOST
from broker.groups.client_registry import Client, ConsumerRegistry, GroupTraits, Subscription
from broker.processor.pull import SLICE, SLOW_REMARK, SUSPEND_MS_MAX, PullProcessor
from broker.pulls.long_polling import HeldPull, HoldTable
from broker.pulls.wake_up import WakeUp
from broker.state.consumer_offset import ConsumerOffsetTable
from broker.state.subscription import GroupChange, SubscriptionGroupConfig, SubscriptionGroupTable
from broker.state.topic_config import TopicTable
from broker.stats.counts import TrafficCounts
from ledgermq.remoting.protocol.bodies import TopicConfig
from ledgermq.remoting.protocol.message import MessageExt, encode_record
from mutants.patches import BY_TESTS, MUTANTS
from mutants.planting import planted
from store.results import GetStatus, RecordTest
from tests.unit.broker.fakes import (
    FakeClock,
    FakeConnection,
    FakeStore,
    found,
    frame,
    nothing,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.results import GetResult

WAIT, SUBSCRIBED, COMMIT = 2, 4, 1


class Bench:
    """A processor with fakes around it."""

    def __init__(self, permission: int = 6) -> None:
        self.topics = TopicTable([], 0, permission=permission)
        self.topics._put(TopicConfig(topic_name="T", read_queue_nums=2))
        self.topics._put(TopicConfig(topic_name="W", perm=2))
        self.groups = SubscriptionGroupTable(0)
        self.consumers, self.offsets = ConsumerRegistry(), ConsumerOffsetTable()
        self.store, self.held, self.clock = FakeStore(), HoldTable(), FakeClock()
        self.connection = FakeConnection()
        self.new_groups: list[SubscriptionGroupConfig] = []
        self.moved: list[tuple[str, str, int, int, int]] = []
        self.counts = TrafficCounts(self.clock)
        self.processor = self.make()

    def make(self, **settings: Any) -> PullProcessor:
        return PullProcessor(
            **settings,
            topics=self.topics.entries,
            groups=self.groups,
            consumers=self.consumers,
            offsets=self.offsets,
            store=self.store,
            held=self.held,
            clock=self.clock,
            on_new_group=self.new_groups.append,
            on_moved=self.on_moved,
            counts=self.counts,
        )

    def on_moved(self, pull: HeldPull, next_offset: int) -> None:
        assert self.connection.answers[-1].code == 21, "answered before"
        self.moved.append((pull.group, pull.topic, pull.queue_id, pull.offset, next_offset))

    def pull(self, flags: int = SUBSCRIBED, **fields: Any) -> None:
        header = {
            "consumerGroup": "g",
            "topic": "T",
            "queueId": 0,
            "queueOffset": 3,
            "maxMsgNums": 32,
            "sysFlag": flags,
            "commitOffset": 3,
            "suspendTimeoutMillis": 1_000,
            "subscription": "*",
            "subVersion": 0,
            "expressionType": "TAG",
        } | fields
        self.processor.handle(self.connection, frame(11, **header))

    def subscribe(self, subscription: Subscription, model: str = "CLUSTERING") -> None:
        traits = GroupTraits("CONSUME_PASSIVELY", model, "CONSUME_FROM_LAST_OFFSET")
        client = Client(self.connection, "c", 0, 407, 0)
        self.consumers.register("g", traits, client, [subscription])

    @property
    def answer(self) -> tuple[int, str]:
        last = self.connection.answers[-1]
        return last.code, last.remark or ""


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_broker_that_may_not_be_read_refuses_each_pull() -> None:
    bench = Bench(permission=2)
    bench.store.results = [found(b"one")]
    bench.pull()
    assert bench.answer == (16, "pulling message from this broker is forbidden")


def test_found_messages_are_sent_as_they_are_stored(bench: Bench) -> None:
    bench.store.results = [found(b"one", b"two", next_offset=5)]
    bench.pull()
    answer = bench.connection.answers[0]
    assert (answer.code, answer.remark, answer.body) == (0, "FOUND", b"onetwo")
    assert answer.ext_fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "5",
        "minOffset": "0",
        "maxOffset": "9",
    }


@pytest.mark.parametrize(
    ("enabled", "known", "far", "suggested"),
    [
        (False, True, True, "0"),
        (True, True, False, "4"),
        (True, True, True, "2"),
        (True, False, True, "1"),
    ],
)
def test_who_reads_far_behind_is_sent_to_a_slave_if_slaves_are_read(
    bench: Bench, enabled: bool, known: bool, far: bool, suggested: str
) -> None:
    if known:
        group = SubscriptionGroupConfig(
            group_name="g", broker_id=4, which_broker_when_consume_slowly=2
        )
        bench.groups.apply(msgspec.json.encode(GroupChange(group, 1)))
    bench.processor = bench.make(slave_read_enable=enabled)
    bench.store.results = [msgspec.structs.replace(found(b"one"), is_far_behind=far)]
    bench.pull()
    assert bench.connection.answers[0].ext_fields["suggestWhichBrokerId"] == suggested


@pytest.mark.parametrize(
    ("status", "offset", "code"),
    [
        (GetStatus.NO_MATCHED_MESSAGE, 3, 20),
        (GetStatus.MESSAGE_WAS_REMOVING, 3, 20),
        (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 19),
        (GetStatus.NO_MATCHED_LOGIC_QUEUE, 3, 21),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 0, 19),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 3, 21),
        (GetStatus.OFFSET_FOUND_NULL, 3, 19),
        (GetStatus.OFFSET_OVERFLOW_ONE, 3, 19),
        (GetStatus.OFFSET_OVERFLOW_BADLY, 3, 21),
        (GetStatus.OFFSET_TOO_SMALL, 3, 21),
    ],
)
def test_a_status_of_the_store_has_its_code(
    bench: Bench, status: GetStatus, offset: int, code: int
) -> None:
    bench.store.results = [nothing(status, 7)]
    bench.pull(queueOffset=offset)
    assert bench.answer == (code, status.name)
    assert len(bench.connection.answers[0].ext_fields) == 4
    assert bench.connection.answers[0].ext_fields["nextBeginOffset"] == "7"
    assert bench.moved == ([("g", "T", 0, offset, 7)] if code == 21 else [])


def test_what_a_held_pull_waits_for_may_go_meanwhile(bench: Bench) -> None:
    bench.store.results = [
        nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3),
        nothing(GetStatus.OFFSET_TOO_SMALL, 8),
    ]
    bench.pull(SUBSCRIBED | WAIT)
    assert bench.moved == []
    bench.processor.expire(bench.clock.now_ms + 1_100)
    assert bench.answer == (21, "OFFSET_TOO_SMALL")
    assert bench.moved == [("g", "T", 0, 3, 8)]


def test_a_pull_that_finds_nothing_is_held_until_a_message_comes(bench: Bench) -> None:
    bench.store.results = [nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3), found(b"new")]
    bench.pull(SUBSCRIBED | WAIT)
    assert bench.connection.answers == []
    bench.processor.wake("T", 0, 3)
    assert bench.connection.answers == []
    bench.processor.wake("T", 0, 4)
    assert bench.answer == (0, "FOUND")


def test_a_held_pull_whose_time_is_up_is_answered_and_never_held_again(bench: Bench) -> None:
    empty = nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3)
    bench.store.results = [empty, empty]
    bench.pull(SUBSCRIBED | WAIT)
    bench.processor.expire(bench.clock.now_ms + 999)
    assert bench.connection.answers == []
    bench.processor.expire(bench.clock.now_ms + 1_100)
    assert bench.answer == (19, "OFFSET_OVERFLOW_ONE")
    assert len(bench.held) == 0


def test_refused_messages_move_a_held_pull_on_and_do_not_wake_it(bench: Bench) -> None:
    bench.store.results = [
        nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3),
        nothing(GetStatus.NO_MATCHED_MESSAGE, 6, 6),
        found(b"wanted", next_offset=8),
    ]
    bench.pull(SUBSCRIBED | WAIT, subscription="A")
    bench.processor.wake("T", 0, 6)
    assert bench.connection.answers == []
    bench.processor.wake("T", 0, 8)
    assert bench.answer == (0, "FOUND")
    assert [get[2] for get in bench.store.gets] == [3, 3, 6]
    assert bench.store.gets[0][5] == frozenset({65})


def looked_at_in_one_turn(bench: Bench) -> int:
    """Have 100 pulls wait behind 800 messages that they do not want; return what a turn reads."""
    nothing_new = nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3)
    bench.store.results = [nothing_new] * 100 + [
        nothing(GetStatus.NO_MATCHED_MESSAGE, 803, 803)
    ] * 100
    for _ in range(100):
        bench.pull(SUBSCRIBED | WAIT, subscription="A")
    assert bench.processor.wake("T", 0, 803) == 0, "there are more"
    return 800 * (len(bench.store.gets) - 100)


def test_messages_that_woken_pulls_do_not_want_count_as_work(bench: Bench) -> None:
    assert looked_at_in_one_turn(bench) <= 800 * SLICE
    assert len(bench.held) == 100, "all wait again or still"


def test_without_that_a_turn_looks_at_all_of_them(bench: Bench) -> None:
    with planted(BY_TESTS["refused-messages-cost-nothing"]), pytest.raises(AssertionError):
        looked_at_in_one_turn(bench)


def test_a_read_that_does_not_reach_the_end_is_not_waited_on(bench: Bench) -> None:
    # 1. A pull that wants tag A is held. 2. A thousand messages of other tags come at once, and
    # one of tag A behind them. 3. A read looks at 800. 4. No further message comes.
    bench.store.results = [
        nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3),
        nothing(GetStatus.NO_MATCHED_MESSAGE, 803, 1_004),
    ]
    bench.pull(SUBSCRIBED | WAIT, subscription="A")
    bench.processor.wake("T", 0, 1_004)
    assert bench.answer == (20, "NO_MATCHED_MESSAGE")
    assert bench.connection.answers[0].ext_fields["nextBeginOffset"] == "803"
    assert len(bench.held) == 0


def test_nobody_is_held_for_ever(bench: Bench) -> None:
    bench.store.results = [nothing(GetStatus.OFFSET_OVERFLOW_ONE)] * 2
    bench.pull(SUBSCRIBED | WAIT, suspendTimeoutMillis=10**9)
    bench.processor.expire(bench.clock.now_ms + SUSPEND_MS_MAX + 200)
    assert bench.answer[0] == 19


def test_a_full_table_answers_at_once(bench: Bench) -> None:
    bench.held = HoldTable(limit=0)
    bench.processor = bench.make()
    bench.store.results = [nothing(GetStatus.OFFSET_OVERFLOW_ONE)] * 2
    bench.pull(SUBSCRIBED | WAIT)
    assert bench.answer[0] == 19


def test_a_lost_leadership_lets_go_of_held_pulls(bench: Bench) -> None:
    bench.store.results = [nothing(GetStatus.OFFSET_OVERFLOW_ONE)]
    bench.pull(SUBSCRIBED | WAIT)
    assert not bench.processor.release()
    assert bench.answer[0] == 14
    assert len(bench.held) == 0


def test_a_closed_connection_is_not_answered(bench: Bench) -> None:
    bench.store.results = [nothing(GetStatus.OFFSET_OVERFLOW_ONE)]
    bench.pull(SUBSCRIBED | WAIT)
    bench.connection.closed = True
    bench.processor.wake("T", 0, 9)
    bench.processor.expire(10**9)
    assert bench.connection.answers == []


def answered_behind_a_closed_connection(bench: Bench) -> int:
    """Return how many answers the second of two waiting clients gets, where the first hangs up."""
    bench.store.results = [nothing(GetStatus.OFFSET_OVERFLOW_ONE)] * 2
    bench.pull(SUBSCRIBED | WAIT)
    gone, bench.connection = bench.connection, FakeConnection()
    bench.connection.id = gone.id + 1
    bench.pull(SUBSCRIBED | WAIT)
    gone.closed = True  # And nobody has told the broker yet.
    bench.store.results = [found(b"x")]
    bench.processor.wake("T", 0, 9)
    return len(bench.connection.answers)


def test_a_pull_behind_a_closed_connection_is_answered(bench: Bench) -> None:
    assert answered_behind_a_closed_connection(bench) == 1


def test_a_planted_wake_that_ends_at_a_closed_connection_is_found_here(bench: Bench) -> None:
    with planted(BY_TESTS["wake-ends-at-a-closed-connection"]):
        assert answered_behind_a_closed_connection(bench) == 0


def test_a_commit_rides_on_the_first_run_only_where_the_flag_says(bench: Bench) -> None:
    bench.store.results = [found(b"x"), found(b"x")]
    bench.pull(SUBSCRIBED, commitOffset=2)
    assert bench.offsets.query("g", "T", 0) is None
    bench.pull(SUBSCRIBED | COMMIT, commitOffset=2)
    assert bench.offsets.query("g", "T", 0) == 2


@pytest.mark.parametrize(
    ("fields", "code", "word"),
    [
        ({"topic": "missing"}, 17, "not exist"),
        ({"topic": "W"}, 16, "forbidden"),
        (
            {"queueId": 2},
            1,
            "queueId[2] is illegal, topic:[T] topicConfig.readQueueNums:[2] "
            "consumer:[/127.0.0.1:4000]",
        ),
        ({"queueId": -1}, 1, "is illegal"),
        ({"consumerGroup": "bad group"}, 26, "does not exist"),
        ({"subscription": "||"}, 23, "parse"),
        ({"expressionType": "SQL92", "subscription": "n > > 3"}, 23, "line 1, column 5"),
        ({"expressionType": "SQL92", "subscription": ""}, 23, "its end"),
        ({"expressionType": "CLASS"}, 1, "filter message by CLASS"),
    ],
)
def test_a_pull_that_may_not_run_is_refused(
    bench: Bench, fields: dict[str, Any], code: int, word: str
) -> None:
    bench.pull(**fields)
    assert bench.answer[0] == code
    assert word in bench.answer[1]
    assert bench.store.gets == []


def test_without_a_subscription_of_its_own_the_heartbeat_counts(bench: Bench) -> None:
    bench.pull(0)
    assert bench.answer == (24, "the consumer's group info not exist")
    bench.subscribe(Subscription("other"))
    bench.pull(0)
    assert bench.answer == (24, "the consumer's subscription not exist")
    bench.subscribe(Subscription("T", version=5))
    bench.pull(0, subVersion=6)
    assert bench.answer == (25, "the consumer's subscription not latest")
    bench.store.results = [found(b"x")]
    bench.pull(0, subVersion=5)
    assert bench.answer == (0, "FOUND")


def test_a_group_that_may_not_consume_is_refused(bench: Bench) -> None:
    closed = SubscriptionGroupConfig(group_name="g", consume_enable=False)
    bench.groups._groups["g"] = closed
    bench.pull()
    assert bench.answer[0] == 16
    quiet = SubscriptionGroupConfig(group_name="g", consume_broadcast_enable=False)
    bench.groups._groups["g"] = quiet
    bench.subscribe(Subscription("T"), "BROADCASTING")
    bench.pull(0)
    assert bench.answer[0] == 16


def test_a_new_group_is_created_beside_the_pull(bench: Bench) -> None:
    bench.store.results = [found(b"x")]
    bench.pull()
    assert [group.group_name for group in bench.new_groups] == ["g"]
    assert bench.answer[0] == 0


def test_a_follower_sends_consumers_to_the_leader(bench: Bench) -> None:
    bench.store.writable = False
    bench.pull()
    assert bench.answer[0] == 14


def answered_by_turn(bench: Bench) -> list[int]:
    """Return how many of 300 held pulls a message has woken after each turn of the loop."""
    bench.store.results = [nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3)] * 300
    for _ in range(300):
        bench.pull(SUBSCRIBED | WAIT)
    bench.store.results = [found(b"x")] * 300
    turns: list[Callable[[], None]] = []
    waker = WakeUp(bench.held, bench.processor.wake, turns.append, {})
    waker.on_message("T", 0, 4)
    answered = []
    while turns:
        turns.pop(0)()
        answered.append(len(bench.connection.answers))
    return answered


def test_many_pulls_are_woken_in_slices(bench: Bench) -> None:
    assert answered_by_turn(bench) == [128, 256, 300]
    with planted(BY_TESTS["all-held-pulls-woken-at-once"]):
        assert answered_by_turn(Bench()) == [300]


def test_pulls_are_answered_and_released_in_slices(bench: Bench) -> None:
    bench.store.results = [nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3)] * 400
    for _ in range(200):
        bench.pull(SUBSCRIBED | WAIT)
    bench.processor.expire(10**9)
    assert len(bench.connection.answers) == SLICE
    assert bench.processor.release()
    assert len(bench.connection.answers) == 2 * SLICE


def sent_away_by_turn(bench: Bench) -> set[int]:
    """Codes of the answers to 100 pulls held by a leader that is deposed as a message comes."""
    bench.store.results = [nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3)] * 100
    for _ in range(100):
        bench.pull(SUBSCRIBED | WAIT)
    bench.store.results = [found(b"x")] * 100
    bench.store.writable = False
    assert bench.processor.release()
    bench.processor.wake("T", 0, 9)
    bench.processor.expire(10**9)
    assert len(bench.connection.answers) == 100
    return {answer.code for answer in bench.connection.answers}


def test_who_leads_no_more_wakes_nobody_with_messages(bench: Bench) -> None:
    assert sent_away_by_turn(bench) == {14}
    with planted(MUTANTS["woken-though-it-leads-no-more"]):
        assert sent_away_by_turn(Bench()) == {14, 0}


def test_a_connection_that_does_not_read_gets_no_data(bench: Bench) -> None:
    bench.store.results = [found(b"x")]
    bench.connection.slow = True
    bench.pull(SUBSCRIBED)
    assert bench.answer == (19, SLOW_REMARK)
    assert bench.connection.answers[0].body == b""


def asked_next_by_one_that_does_not_read(bench: Bench) -> str:
    bench.store.results = [found(b"x", next_offset=4)]
    bench.connection.slow = True
    bench.pull(SUBSCRIBED, queueOffset=3)
    return bench.connection.answers[0].ext_fields["nextBeginOffset"]


def test_a_connection_that_does_not_read_asks_for_the_same_again(bench: Bench) -> None:
    assert asked_next_by_one_that_does_not_read(bench) == "3"
    with planted(BY_TESTS["deaf-peer-passes-over"]):
        assert asked_next_by_one_that_does_not_read(Bench()) == "4"


def test_without_that_it_gets_more_and_more(bench: Bench) -> None:
    with planted(BY_TESTS["deaf-peer-gets-data"]), pytest.raises(AssertionError):
        test_a_connection_that_does_not_read_gets_no_data(bench)


def test_what_one_held_pull_raises_is_its_own_answer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[BaseException] = []
    monkeypatch.setattr(
        "broker.processor.pull.report_serving_failure", lambda _, error: told.append(error)
    )
    bench.store.results = [nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3)] * 2
    bench.pull(SUBSCRIBED | WAIT)
    bench.pull(SUBSCRIBED | WAIT)
    results = iter([AssertionError("a bug"), found(b"x")])

    def get(*_: object) -> GetResult:
        result = next(results)
        if isinstance(result, AssertionError):
            raise result
        return result

    monkeypatch.setattr(bench.store, "get", get)
    bench.processor.wake("T", 0, 4)
    assert [answer.code for answer in bench.connection.answers] == [1, 0]
    assert len(told) == 1


def test_a_message_that_nobody_repairs_is_passed_over(bench: Bench) -> None:
    bench.store.results = [nothing(GetStatus.LOST, 3)]
    bench.pull(SUBSCRIBED | WAIT)
    assert bench.answer == LOST
    assert bench.connection.answers[0].ext_fields["nextBeginOffset"] == "4"


def test_a_consumer_that_stays_at_it_for_ever_is_found(bench: Bench) -> None:
    with planted(BY_TESTS["lost-message-asked-for-for-ever"]), pytest.raises(AssertionError):
        test_a_message_that_nobody_repairs_is_passed_over(bench)


@pytest.mark.parametrize("is_slave", [False, True])
def test_a_message_that_another_may_have_is_waited_for(bench: Bench, is_slave: bool) -> None:
    bench.processor = bench.make(is_slave=is_slave)
    bench.store.results = [nothing(GetStatus.LOST if is_slave else GetStatus.DAMAGED, 3)]
    bench.pull(SUBSCRIBED | WAIT)
    assert bench.answer == DAMAGED
    assert bench.connection.answers[0].ext_fields["nextBeginOffset"] == "3"


@pytest.mark.parametrize("expression", ["A || " * 2_000, "x" * 20_000, "||", " || "])
def test_an_expression_that_is_too_long_is_refused(bench: Bench, expression: str) -> None:
    bench.pull(SUBSCRIBED, subscription=expression)
    assert bench.answer[0] == 23


def test_long_expressions_are_not_remembered(bench: Bench) -> None:
    bench.store.results = [found(b"x")] * 2
    bench.pull(SUBSCRIBED, subscription="A || B")
    bench.pull(SUBSCRIBED, subscription=" || ".join(f"tag-{i}" for i in range(500)))
    assert list(bench.processor._filters._codes) == ["A || B"]


def sql(expression: str, version: int = 7) -> Subscription:
    return Subscription("T", expression, "SQL92", version)


def test_sql_of_a_pull_reads_the_properties_of_each_message(bench: Bench) -> None:
    bench.store.results = [found(b"x")]
    bench.pull(SUBSCRIBED, expressionType="SQL92", subscription="n > 3")
    test = bench.store.gets[0][5]
    assert isinstance(test, RecordTest)
    records = [encode_record(message(f"n\x01{n}\x02other\x01x")) for n in (3, 4)]
    assert [test.matches(memoryview(record)) for record in records] == [False, True]
    assert test.matches(memoryview(b"no record")), (
        "what is damaged is handed on as without a filter"
    )


def test_sql_of_the_heartbeat_counts_for_pulls_without_their_own(bench: Bench) -> None:
    bench.subscribe(sql("n > 3"))
    bench.store.results = [found(b"x")] * 2
    bench.pull(0, expressionType="SQL92", subVersion=7)
    bench.pull(0, expressionType="SQL92", subVersion=7)
    first, second = (got[5] for got in bench.store.gets)
    assert first is second, "compiled once"
    bench.subscribe(sql("n > > 3", version=8))
    bench.pull(0, expressionType="SQL92", subVersion=8)
    assert bench.answer[0] == 27
    assert "line 1, column 5" in bench.answer[1]


def test_a_broker_without_property_filters_refuses_sql(bench: Bench) -> None:
    bench.processor = bench.make(enable_property_filter=False)
    bench.pull(SUBSCRIBED, expressionType="SQL92", subscription="n > 3")
    assert bench.answer == (1, "The broker does not support consumer to filter message by SQL92")
    bench.subscribe(sql("n > 3"))
    bench.pull(0, expressionType="SQL92", subVersion=7)
    assert bench.answer[0] == 1


def test_a_held_sql_pull_that_a_message_does_not_pass_goes_on_waiting(bench: Bench) -> None:
    bench.store.results = [
        nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3, 3),
        nothing(GetStatus.NO_MATCHED_MESSAGE, 4, 4),
        found(b"x", next_offset=5),
    ]
    bench.pull(SUBSCRIBED | WAIT, expressionType="SQL92", subscription="n > 3", queueOffset=3)
    bench.processor.wake("T", 0, 4)
    assert (len(bench.held), bench.connection.answers) == (1, [])
    bench.processor.wake("T", 0, 5)
    assert bench.answer[0] == 0


def test_the_planted_bug_answers_a_held_sql_pull_with_nothing(bench: Bench) -> None:
    bench.store.results = [
        nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3, 3),
        nothing(GetStatus.NO_MATCHED_MESSAGE, 4, 4),
    ]
    bench.pull(SUBSCRIBED | WAIT, expressionType="SQL92", subscription="n > 3", queueOffset=3)
    with planted(BY_TESTS["held-sql-pull-answered-empty"]):
        bench.processor.wake("T", 0, 4)
    assert (len(bench.held), bench.answer[0]) == (0, 20)


def message(properties: str) -> MessageExt:
    host = bytes(8)
    return MessageExt(
        topic="T", queue_id=0, flag=0, sys_flag=0, queue_offset=0, physical_offset=0,
        born_timestamp=0, born_host=host, store_timestamp=0, store_host=host, reconsume_times=0,
        prepared_offset=0, body=b"b", properties=properties.encode(),
    )  # fmt: skip


@pytest.fixture
def slave(bench: Bench) -> Bench:
    """A slave's: it reads, though it does not lead."""
    bench.processor = bench.make(is_slave=True)
    return bench


def check_a_slave_keeps_no_offset_of_a_pull(slave: Bench) -> None:
    slave.store.results = [found(b"one")]
    slave.pull(SUBSCRIBED | COMMIT, commitOffset=2)
    assert slave.connection.answers[0].code == 0
    assert slave.offsets.query("g", "T", 0) is None


def test_a_slave_keeps_no_offset_that_comes_with_a_pull(slave: Bench) -> None:
    check_a_slave_keeps_no_offset_of_a_pull(slave)


def check_a_slave_corrects_no_offset(slave: Bench, status: GetStatus) -> None:
    slave.store.results = [nothing(status, next_offset=9), nothing(status, next_offset=9)]
    slave.pull(SUBSCRIBED, queueOffset=30)
    answer = slave.connection.answers[0]
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (19, "30")
    slave.pull(SUBSCRIBED | WAIT, queueOffset=30)
    assert len(slave.connection.answers) == 1, "it waits: its master may have given that out"
    assert len(slave.held) == 1
    assert slave.moved == []


OUTSIDE = (
    GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_TOO_SMALL,
    GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE,
)  # fmt: skip


@pytest.mark.parametrize("status", OUTSIDE)
def test_a_slave_that_lags_corrects_no_offset(slave: Bench, status: GetStatus) -> None:
    check_a_slave_corrects_no_offset(slave, status)


def test_planted_correction_by_a_slave_is_found(slave: Bench) -> None:
    with planted(BY_TESTS["slave-corrects-offsets"]), pytest.raises((AssertionError, IndexError)):
        check_a_slave_corrects_no_offset(slave, GetStatus.OFFSET_OVERFLOW_BADLY)


def test_planted_way_back_by_a_slave_is_found(slave: Bench) -> None:
    with planted(BY_TESTS["slave-sends-consumers-back"]), pytest.raises(AssertionError):
        check_a_slave_corrects_no_offset(slave, GetStatus.OFFSET_OVERFLOW_BADLY)


def test_planted_offsets_kept_of_pulls_at_a_slave_are_found(slave: Bench) -> None:
    with planted(BY_TESTS["slave-keeps-offsets-of-pulls"]), pytest.raises(AssertionError):
        check_a_slave_keeps_no_offset_of_a_pull(slave)


def test_looks_into_queues_are_counted(bench: Bench) -> None:
    empty = nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3)
    bench.store.results = [found(b"one"), empty, empty]
    for _ in range(3):
        bench.pull()
    assert (bench.counts.pulls.found, bench.counts.pulls.missed) == (1, 2)

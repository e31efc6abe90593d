"""Messages given back by consumers: the copy, its topic and delay, dead letters, refusals."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from broker.config import BrokerConfig
from broker.processor.send import SendProcessor
from broker.processor.send_back import SendBackProcessor
from broker.processor.traffic import TrafficProcessor
from broker.sends.copy_budget import DRAIN_BYTES_PER_S
from broker.sends.creation import Creator
from broker.sends.properties import items_of
from broker.state.kinds import StateKind
from broker.state.queue_lock import LockChange
from broker.state.subscription import GroupChange, SubscriptionGroupConfig
from broker.state.topic_config import TopicChange
from broker.tables import Tables
from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.bodies import QueueKey, TopicConfig
from ledgermq.remoting.protocol.message import MessageExt, encode_record
from ledgermq.remoting.protocol.properties import format_properties, parse_properties
from mutants.patches import ALL, BY_TESTS
from mutants.planting import planted
from store.results import PutStatus
from tests.unit.broker.fakes import (
    ApplyingProposer,
    FakeClock,
    FakeConnection,
    FakePublisher,
    FakeRng,
    FakeStore,
    frame,
    free_room,
    no_wait,
    request,
)
from tests.unit.broker.test_send import STORE_HOST, door

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ledgermq.remoting.protocol.command import RemotingCommand
    from store.results import PutMessage

AT = 40_797
MESSAGE = MessageExt(
    topic="orders",
    queue_id=3,
    flag=7,
    sys_flag=0x301,
    queue_offset=5,
    physical_offset=AT,
    born_timestamp=11,
    born_host=bytes((10, 0, 0, 9)) + (99).to_bytes(4, "big"),
    store_timestamp=12,
    store_host=STORE_HOST,
    reconsume_times=0,
    prepared_offset=0,
    body=b"poison",
    properties=b"KEYS\x01bad\x02UNIQ_KEY\x01U\x02CLUSTER\x01C\x02TAGS\x01T",
)
MESSAGE_ID = "7F00000100002A9F0000000000009F5D"


class Store(FakeStore):
    """A store with records at physical offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.records: dict[int, MessageExt] = {AT: MESSAGE}
        self.damaged: set[int] = set()

    def message_at(self, physical_offset: int) -> memoryview | None:
        if physical_offset in self.damaged:
            raise DamagedEntry(1, "damaged")
        message = self.records.get(physical_offset)
        return None if message is None else memoryview(encode_record(message))


class Bench:
    """Sends and what is given back, over one set of tables."""

    def __init__(self, **settings: Any) -> None:
        clock = self.clock = FakeClock()
        config = BrokerConfig(broker_cluster_name="C", broker_name="b", **settings)
        self.tables = Tables(config, clock)
        self.store = Store()
        self.proposer = ApplyingProposer(self.tables.state)
        self.spawned: list[Coroutine[Any, Any, None]] = []
        self.scheduled: list[int] = []
        self.new_groups: list[str] = []
        self.admits = True
        self.creator = Creator(
            topics=self.tables.topics,
            groups=self.tables.groups,
            proposer=self.proposer,
            publisher=FakePublisher(),
            clock=clock,
            serve=lambda _, coroutine: self.spawned.append(coroutine),
            enter=no_wait,
            is_orderly=self.tables.locks.has_some,
        )
        self.processor = SendBackProcessor(
            tables=self.tables,
            store=self.store,
            creator=self.creator,
            on_new_group=self._on_new_group,
            schedule=self._schedule,
            room=free_room(),
            rng=FakeRng(),
        )
        self.connection = FakeConnection()
        self.sends = SendProcessor(
            topics=self.tables.topics.entries,
            store=self.store,
            maker=self.creator,
            door=door(),
            rng=FakeRng(),
            store_host=STORE_HOST,
            on_half=lambda *_: None,
            room=free_room(),
            puts=defaultdict(int),
        )

    def _on_new_group(self, group: SubscriptionGroupConfig) -> bool:
        self.new_groups.append(group.group_name)
        return self.admits

    def _schedule(self, message: PutMessage, level: int) -> PutMessage:
        self.scheduled.append(level)
        return message

    def put_group(self, name: str = "g", **settings: Any) -> None:
        change = GroupChange(SubscriptionGroupConfig(group_name=name, **settings), 1)
        self.tables.state.apply(1, StateKind.GROUP.value, msgspec.json.encode(change))

    def put_topic(self, name: str, queues: int = 1, perm: int = 6) -> None:
        config = TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
        )
        change = TopicChange(config, 1)
        assert self.tables.state.apply(1, StateKind.TOPIC.value, msgspec.json.encode(change))

    def store_message(self, **changes: Any) -> None:
        self.store.records[AT] = msgspec.structs.replace(MESSAGE, **changes)

    def give_back(
        self, status: PutStatus | None = PutStatus.OK, /, **fields: Any
    ) -> RemotingCommand:
        """Give the message back; the put ends so, None if none is expected."""
        header = {"offset": AT, "group": "g", "delayLevel": 0, "originMsgId": "U"}
        header |= {"originTopic": "orders", "unitMode": "false", "maxReconsumeTimes": 16}

        async def run() -> RemotingCommand:
            giving = asyncio.create_task(
                self.processor.handle(self.connection, request(36, **(header | fields)))
            )
            if status is not None:
                while not self.store.puts:
                    assert not giving.done(), giving.result()
                    await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert not giving.done()
                self.puts = [message for message, _ in self.store.puts]
                self.store.finish(status)
            return await giving

        answer = asyncio.run(run())
        assert not self.store.puts
        return answer

    async def try_to_give_back(self) -> int:
        """Give the message back as often as that is asked for; return the code of the answer."""
        header = {"offset": AT, "group": "g", "delayLevel": 0, "originMsgId": "U"}
        header |= {"originTopic": "orders", "unitMode": "false", "maxReconsumeTimes": 16}
        giving = asyncio.create_task(self.processor.handle(self.connection, request(36, **header)))
        while not giving.done():
            if self.store.puts:
                self.store.finish(PutStatus.OK)
            await asyncio.sleep(0)
        return giving.result().code

    def send(self, **fields: Any) -> None:
        header = {"a": "p", "b": "%RETRY%g", "c": "", "d": 0, "e": 0, "f": 0, "g": 5, "h": 0}
        header |= {"i": "UNIQ_KEY\x01u\x02RETRY_TOPIC\x01T\x02DELAY\x014", "m": "false"} | fields
        self.sends.handle(self.connection, frame(310, b"x", 0, **header))

    def work(self) -> None:
        async def run() -> None:
            while self.spawned:
                await self.spawned.pop(0)

        asyncio.run(run())


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.put_group(retry_queue_nums=2)
    return made


def test_a_copy_goes_to_the_retry_topic_as_rocketmq_stores_it(bench: Bench) -> None:
    assert bench.give_back(delayLevel=1).code == 0
    (copy,) = bench.puts
    assert (copy.topic, copy.queue_id) == (b"%RETRY%g", 1)
    assert (copy.flag, copy.sys_flag, copy.body) == (7, 0x301, b"poison")
    assert (copy.born_timestamp, copy.born_host) == (11, MESSAGE.born_host)
    assert (copy.reconsume_times, copy.prepared_offset) == (1, 0)
    assert copy.tags_code == ord("T")
    # The order is that of the recorded session of the 4.9.7 broker.
    assert copy.properties.split(b"\x02") == [
        b"ORIGIN_MESSAGE_ID\x01" + MESSAGE_ID.encode(), b"RETRY_TOPIC\x01orders", b"KEYS\x01bad",
        b"UNIQ_KEY\x01U", b"CLUSTER\x01C", b"WAIT\x01false", b"DELAY\x011", b"TAGS\x01T",
    ]  # fmt: skip
    assert bench.scheduled == [1]
    made = bench.tables.topics.get("%RETRY%g")
    assert made is not None
    assert (made.write_queues, made.read_queues, made.config.perm) == (2, 2, 6)
    assert bench.new_groups == []


def test_a_broker_that_may_not_be_written_takes_nothing_back() -> None:
    bench = Bench(broker_permission=4)
    assert bench.give_back(None, group="no/group").code == 26
    answer = bench.give_back(None)
    assert (answer.code, answer.remark) == (16, "sending message to this broker is forbidden")
    assert bench.tables.topics.get("%RETRY%g") is None


def test_what_was_given_back_is_counted_under_its_first_topic(bench: Bench) -> None:
    bench.give_back()
    bench.store_message(topic="%RETRY%g", properties=b"RETRY_TOPIC\x01orders\x02")
    bench.give_back()
    bench.give_back(PutStatus.FULL)
    counts = bench.tables.counts
    assert counts.backs == {("orders", "g"): 2}
    asked = request(315, statsName="SNDBCK_PUT_NUMS", statsKey="orders@g")
    told = TrafficProcessor(counts, "C", FakeClock()).handle_view(None, asked)
    assert msgspec.json.decode(told.body)["statsMinute"]["sum"] == 2


@pytest.mark.parametrize(("times", "level"), [(0, 3), (1, 4), (14, 17), (-9, 1)])
def test_the_delay_grows_with_the_deliveries(bench: Bench, times: int, level: int) -> None:
    bench.store_message(reconsume_times=times)
    assert bench.give_back().code == 0
    assert bench.scheduled == [level]
    assert bench.puts[0].reconsume_times == times + 1
    assert parse_properties(bench.puts[0].properties)["DELAY"] == str(level)


def test_a_second_retry_keeps_the_original_topic_and_id(bench: Bench) -> None:
    bench.store_message(
        topic="%RETRY%g",
        reconsume_times=1,
        properties=format_properties(
            {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "first", "REAL_TOPIC": "%RETRY%g"}
        ),
    )
    assert bench.give_back().code == 0
    properties = parse_properties(bench.puts[0].properties)
    assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("orders", "first")
    assert bench.puts[0].reconsume_times == 2


def test_properties_of_a_foreign_store_become_regular(bench: Bench) -> None:
    bench.store_message(properties=b"a\x01b\x01c\x02\x02d\x02e\x01\x01f\x02\xff\x01g\x02")
    assert bench.give_back(delayLevel=18).code == 0
    assert sorted(items_of(bench.puts[0].properties)) == [
        b"DELAY\x0118", b"ORIGIN_MESSAGE_ID\x01" + MESSAGE_ID.encode(), b"RETRY_TOPIC\x01orders",
        b"WAIT\x01false", b"a\x01b", b"\xff\x01g",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("times", "fields"),
    [
        (2, {"maxReconsumeTimes": 2}),
        (5, {"maxReconsumeTimes": -1}),
        (0, {"delayLevel": -1}),
        (2**31 - 1, {}),
    ],
)
def test_too_many_deliveries_or_a_wish_make_a_dead_letter(
    bench: Bench, times: int, fields: dict[str, int]
) -> None:
    bench.put_group(retry_max_times=5)
    bench.store_message(reconsume_times=times)
    assert bench.give_back(**fields).code == 0
    (copy,) = bench.puts
    assert (copy.topic, copy.queue_id) == (b"%DLQ%g", 0)
    assert copy.reconsume_times == min(times + 1, 2**31 - 1)
    properties = parse_properties(copy.properties)
    assert (properties["DELAY"], properties["RETRY_TOPIC"]) == ("0", "orders")
    assert properties["ORIGIN_MESSAGE_ID"] == MESSAGE_ID
    assert bench.scheduled == []
    made = bench.tables.topics.get("%DLQ%g")
    assert made is not None
    assert (made.write_queues, made.read_queues, made.config.perm) == (1, 1, 6)


def test_one_delivery_too_many_is_seen(bench: Bench) -> None:
    bench.store_message(reconsume_times=2)
    with planted(ALL["retry-never-dead"]):
        assert bench.give_back(maxReconsumeTimes=2).code == 0
        assert bench.puts[0].topic == b"%RETRY%g"


def test_a_lost_origin_is_seen(bench: Bench) -> None:
    bench.store_message(topic="%RETRY%g", properties=b"RETRY_TOPIC\x01orders")
    with planted(ALL["retry-forgets-its-topic"]):
        assert bench.give_back().code == 0
        assert parse_properties(bench.puts[0].properties)["RETRY_TOPIC"] == "%RETRY%g"


def test_an_answer_before_its_copy_is_seen(bench: Bench) -> None:
    with planted(ALL["retry-answered-before-it-is-stored"]), pytest.raises(AssertionError):
        bench.give_back()


def test_limits_of_a_client_count_and_those_of_the_group_else(bench: Bench) -> None:
    bench.put_group(retry_max_times=1)
    bench.store_message(reconsume_times=1)
    assert bench.give_back(maxReconsumeTimes=2).code == 0
    assert bench.puts[0].topic == b"%RETRY%g"
    answer = bench.give_back(maxReconsumeTimes=-1)
    assert (answer.code, bench.puts[0].topic) == (0, b"%DLQ%g")


def check_that_a_negative_limit_is_that_of_the_group(bench: Bench) -> None:
    bench.put_group(retry_max_times=2)
    bench.put_topic("%RETRY%g")
    bench.store_message(reconsume_times=1)
    assert bench.give_back(maxReconsumeTimes=-1).code == 0
    assert bench.puts[0].topic == b"%RETRY%g"
    bench.send(j=2, l=-1, i="UNIQ_KEY\x01u\x02RETRY_TOPIC\x01T")
    assert [message.topic for message, _ in bench.store.puts] == [b"%RETRY%g"]


def test_a_negative_limit_of_a_client_is_that_of_the_group(bench: Bench) -> None:
    check_that_a_negative_limit_is_that_of_the_group(bench)


def test_a_negative_limit_that_counts_is_seen(bench: Bench) -> None:
    with planted(ALL["negative-limit-counts"]), pytest.raises(AssertionError, match="DLQ"):
        check_that_a_negative_limit_is_that_of_the_group(bench)


def test_a_group_without_retry_queues_has_its_failures_dropped(bench: Bench) -> None:
    bench.put_group(retry_queue_nums=0)
    assert bench.give_back(None).code == 0
    assert bench.tables.topics.get("%RETRY%g") is None
    assert bench.new_groups == []


def test_an_unknown_group_is_refused_or_made() -> None:
    strict = Bench(auto_create_subscription_group=False)
    answer = strict.give_back(None)
    assert (answer.code, answer.remark) == (26, "subscription group not exist, g")
    bench = Bench()
    assert bench.give_back().code == 0
    assert bench.new_groups == ["g"]
    bench.admits = False
    assert bench.give_back(None, group="h").code == 2


def test_what_lies_nowhere_is_refused_and_creates_nothing(bench: Bench) -> None:
    for offset in (-1, AT + 1, 2**62):
        answer = bench.give_back(None, offset=offset)
        assert (answer.code, answer.remark) == (1, f"look message by offset failed, {offset}")
    for topic in ("rmq_sys_LEDGER_STATE", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"):
        bench.store_message(topic=topic)
        assert bench.give_back(None).code == 1
    bench.store.damaged.add(AT)
    assert bench.give_back(None).code == 14
    assert bench.tables.topics.get("%RETRY%g") is None


def test_a_retry_topic_that_takes_nothing_refuses(bench: Bench) -> None:
    bench.put_topic("%RETRY%g", perm=4)
    assert bench.give_back(None).code == 16
    assert bench.give_back(None, group="g" * 200).code == 1


def test_a_retry_topic_with_fewer_queues_than_the_group_says_is_filled_within(
    bench: Bench,
) -> None:
    bench.put_topic("%RETRY%g", queues=1)
    assert bench.give_back().code == 0
    assert bench.puts[0].queue_id == 0


@pytest.mark.parametrize(
    ("status", "code", "unknown"),
    [
        (PutStatus.NOT_LEADER, 14, False),
        (PutStatus.FULL, 2, False),
        (PutStatus.UNKNOWN, 1, True),
        (PutStatus.QUORUM_TIMEOUT, 2, True),
        (PutStatus.PROPERTIES_SIZE_EXCEEDED, 13, False),
    ],
)
def test_the_answer_tells_how_the_copy_ended(
    bench: Bench, status: PutStatus, code: int, *, unknown: bool
) -> None:
    answer = bench.give_back(status)
    assert answer.code == code
    assert ("outcome unknown" in (answer.remark or "")) is unknown


def test_a_topic_that_cannot_be_made_refuses(bench: Bench) -> None:
    bench.proposer.status = PutStatus.NOT_LEADER
    assert bench.give_back(None).code == 14


def test_those_who_give_back_together_share_one_creation(bench: Bench) -> None:
    async def run() -> list[RemotingCommand]:
        header = {"offset": AT, "group": "g", "delayLevel": 0}
        giving = [
            asyncio.create_task(bench.processor.handle(bench.connection, request(36, **header)))
            for _ in range(3)
        ]
        while len(bench.store.puts) < 3:
            await asyncio.sleep(0)
        bench.store.finish()
        return await asyncio.gather(*giving)

    assert [answer.code for answer in asyncio.run(run())] == [0, 0, 0]
    assert [kind for kind, _ in bench.proposer.proposed] == [StateKind.TOPIC]


def check_that_a_copy_is_an_ordinary_message(bench: Bench) -> None:
    """On a plain log, a place in the body of a message may hold what looks like a record."""
    bench.put_topic("%RETRY%g")
    bench.store_message(sys_flag=0xC4)
    assert bench.give_back().code == 0
    assert bench.puts[0].sys_flag == 0


def test_a_copy_is_an_ordinary_message(bench: Bench) -> None:
    check_that_a_copy_is_an_ordinary_message(bench)
    with planted(ALL["copy-keeps-foreign-flags"]), pytest.raises(AssertionError):
        check_that_a_copy_is_an_ordinary_message(bench)


def test_one_message_is_read_and_copied_in_a_turn(bench: Bench) -> None:
    """A hundred requests of a few bytes may name a message of megabytes."""
    bench.put_topic("%RETRY%g")

    async def most_in_a_turn() -> int:
        header = {"offset": AT, "group": "g", "delayLevel": 0}
        giving = [
            asyncio.create_task(bench.processor.handle(bench.connection, request(36, **header)))
            for _ in range(8)
        ]
        most = done = 0
        while done < 8:
            await asyncio.sleep(0)
            most, done = max(most, len(bench.store.puts) - done), len(bench.store.puts)
        bench.store.finish()
        await asyncio.gather(*giving)
        return most

    assert asyncio.run(most_in_a_turn()) == 1
    with planted(ALL["copies-without-turns"]):
        assert asyncio.run(most_in_a_turn()) == 8


def test_who_waits_for_a_topic_holds_no_message(bench: Bench) -> None:
    """The message is read again once the topic is there; it may be gone by then."""

    async def run() -> RemotingCommand:
        header = {"offset": AT, "group": "g", "delayLevel": 0}
        ensure = bench.creator.ensure_topic

        async def forgetful(config: TopicConfig) -> Any:
            answer = await ensure(config)
            del bench.store.records[AT]
            return answer

        bench.creator.ensure_topic = forgetful  # type: ignore[method-assign]
        return await bench.processor.handle(bench.connection, request(36, **header))

    answer = asyncio.run(run())
    assert (answer.code, answer.remark) == (1, f"look message by offset failed, {AT}")
    assert not bench.store.puts


# Retries that clients send


def check_that_nobody_has_no_dead_letters() -> None:
    strict = Bench(auto_create_subscription_group=False)
    strict.send(b="%DLQ%nobody")
    strict.work()
    assert strict.connection.answers[-1].code == 17
    assert strict.tables.topics.get("%DLQ%nobody") is None


def test_a_send_makes_no_dead_letters_for_a_group_that_is_not_there() -> None:
    check_that_nobody_has_no_dead_letters()
    with planted(ALL["dead-letters-of-nobody"]), pytest.raises((AssertionError, IndexError)):
        check_that_nobody_has_no_dead_letters()


def test_a_retry_that_was_delivered_too_often_goes_to_the_dead_letters(bench: Bench) -> None:
    bench.put_topic("%RETRY%g")
    bench.send(j=3, l=2, e=7)
    assert bench.store.puts == []
    bench.work()
    message, done = bench.store.puts[0]
    assert (message.topic, message.queue_id, message.reconsume_times) == (b"%DLQ%g", 0, 3)
    assert parse_properties(message.properties) == {
        "UNIQ_KEY": "u", "RETRY_TOPIC": "T", "CLUSTER": "C"
    }  # fmt: skip
    done(PutStatus.OK, 0, AT)
    assert bench.connection.answers[-1].code == 0
    made = bench.tables.topics.get("%DLQ%g")
    assert made is not None
    assert (made.write_queues, made.config.perm) == (1, 6)


def test_the_group_says_how_often_where_the_client_does_not(bench: Bench) -> None:
    bench.put_group(retry_max_times=2)
    bench.put_topic("%RETRY%g")
    bench.put_topic("%DLQ%g")
    plain = {"i": "UNIQ_KEY\x01u\x02RETRY_TOPIC\x01T"}
    for times, topic in ((2, b"%RETRY%g"), (3, b"%DLQ%g")):
        bench.send(j=times, **plain)
        assert bench.store.puts[-1][0].topic == topic


def topic_of_a_dead_half(bench: Bench) -> bytes:
    """Return where a retry goes that was half a transaction, and delivered too often."""
    bench.put_topic("%DLQ%g")
    bench.send(j=3, l=2, i="UNIQ_KEY\x01u\x02TRAN_MSG\x01true\x02PGROUP\x01p\x02DELAY\x014")
    return bench.store.puts[-1][0].topic


def test_a_dead_letter_is_no_half_whatever_its_properties_say(bench: Bench) -> None:
    assert topic_of_a_dead_half(bench) == b"%DLQ%g"
    with planted(BY_TESTS["dead-letter-is-a-half"]):
        assert topic_of_a_dead_half(Bench()) == b"RMQ_SYS_TRANS_HALF_TOPIC"


def topics_of_the_limit(bench: Bench) -> list[bytes]:
    """Return where a message goes that was delivered as often as may be, and one less often."""
    lock = LockChange("g", "c", [QueueKey("b", 0, "T")])
    assert bench.tables.state.apply(1, StateKind.LOCK.value, msgspec.json.encode(lock))
    for topic in ("%RETRY%g", "%DLQ%g"):
        bench.put_topic(topic)
    for times in (3, 2):
        bench.send(j=times, l=3, i="UNIQ_KEY\x01u\x02RETRY_TOPIC\x01T")
    return [message.topic for message, _ in bench.store.puts]


def test_what_an_orderly_consumer_of_java_gives_up_is_a_dead_letter(bench: Bench) -> None:
    """ConsumeMessageOrderlyService of 4.9 sends it with the number of its last delivery."""
    assert topics_of_the_limit(bench) == [b"%DLQ%g", b"%RETRY%g"]
    with planted(BY_TESTS["given-up-in-order-without-end"]):
        assert topics_of_the_limit(Bench())[:1] == [b"%RETRY%g"]


def test_a_retry_of_no_group_is_refused() -> None:
    bench = Bench(auto_create_subscription_group=False)
    bench.put_topic("%RETRY%g")
    bench.send(j=3)
    assert bench.connection.answers[-1].code == 26


LARGE = 4 * 1024**2


def test_a_client_has_only_so_many_bytes_copied() -> None:
    bench = Bench()
    bench.put_group()
    bench.put_topic("%RETRY%g")
    bench.store_message(body=bytes(LARGE))
    assert copies_until_refused(bench) == 6  # a fifth of the room
    bench.connection.remote = ("10.0.0.9", 1)
    assert 0 < copies_until_refused(bench) < 6  # others have room all the same
    bench.clock.now_ms += 1_000
    assert copies_until_refused(bench) == DRAIN_BYTES_PER_S // LARGE
    bench.clock.now_ms += 60_000
    assert copies_until_refused(bench) == 6


def test_planted_copies_without_a_budget_are_found_here() -> None:
    with planted(ALL["copies-without-budget"]):
        bench = Bench()
        bench.put_group()
        bench.put_topic("%RETRY%g")
        bench.store_message(body=bytes(LARGE))
        assert copies_until_refused(bench) == 40


def copies_behind_refused_ones() -> int:
    """Return how often a message is taken back after a topic without permission refused it."""
    bench = Bench()
    bench.put_group()
    bench.put_topic("%RETRY%g", perm=4)
    bench.store_message(body=bytes(LARGE))
    assert [bench.give_back(None).code for _ in range(10)] == [16] * 10
    bench.put_topic("%RETRY%g")
    return copies_until_refused(bench)


def test_what_is_refused_costs_nothing_of_the_budget() -> None:
    assert copies_behind_refused_ones() == 6
    with planted(BY_TESTS["refused-copies-cost"]):
        assert copies_behind_refused_ones() < 6


def copies_until_refused(bench: Bench) -> int:
    """Give a message back until that is refused; return how often it was taken."""

    async def run() -> int:
        for copies in range(40):
            code = await bench.try_to_give_back()
            await asyncio.sleep(0)  # the turn of whoever comes next
            if code:
                assert code == 2
                return copies
        return 40

    return asyncio.run(asyncio.wait_for(run(), 10))

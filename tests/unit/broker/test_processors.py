"""Offsets, locks, clients, queries, administration: the ordinary processors."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from broker.config import BrokerConfig
from broker.groups.new_groups import NewGroups
from broker.limits import STATE_ENTRY_BYTES_MAX
from broker.offsets.replication import OffsetReplicator
from broker.processor.admin import AdminProcessor
from broker.processor.client import ClientProcessor
from broker.processor.lock import LockProcessor
from broker.processor.offset import OffsetProcessor
from broker.processor.query import QueryProcessor
from broker.pulls.wake_up import WakeUp
from broker.requests import broker_requests
from broker.sends.creation import Creator
from broker.state.kinds import StateKind
from broker.state.topic_config import TopicChange
from broker.tables import Tables
from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.bodies import TopicConfig
from ledgermq.remoting.protocol.errors import InvalidHeader, RemoteProtocolError
from mutants.patches import ALL, BY_TESTS
from mutants.planting import planted
from store.read.key_query import KeyResult
from store.results import Boundary, PutStatus
from tests.unit.broker.fakes import (
    ApplyingProposer,
    FakeClock,
    FakeConnection,
    FakePublisher,
    FakeStore,
    frame,
    is_there,
    no_wait,
    request,
)
from tests.unit.broker.test_guard import guard_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ledgermq.remoting.protocol.command import RemotingCommand


class FakeAlarm:
    """Goes off when it is told to."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.go_off = function
        self.delay_ms: float | None = None

    def set(self, delay_ms: float) -> None:
        self.delay_ms = delay_ms


class Bench:
    """All ordinary processors over one set of tables."""

    def __init__(self, **security: Any) -> None:
        self.clock = FakeClock()
        self.tables = Tables(BrokerConfig(broker_cluster_name="C", broker_name="b"), self.clock)
        self.store = FakeStore()
        self.proposer = ApplyingProposer(self.tables.state)
        self.spawned: list[Coroutine[Any, Any, None]] = []
        spawn = lambda _, coro, *on_error: self.spawned.append(coro)  # noqa: E731 - a one-line fake
        creator = Creator(
            topics=self.tables.topics, groups=self.tables.groups, proposer=self.proposer,
            publisher=FakePublisher(), clock=self.clock, serve=spawn, enter=no_wait,
            is_orderly=self.tables.locks.has_some,
        )  # fmt: skip
        self.put_topic("T")
        new_groups = NewGroups(creator.group_for_request, creator.is_creating_group, self.clock)
        self.offset = OffsetProcessor(self.tables, self.store, new_groups.for_request)
        self.lock = LockProcessor(self.tables, self.proposer, self.clock)
        self.client = ClientProcessor(
            producers=self.tables.producers, consumers=self.tables.consumers,
            groups=self.tables.groups, locks=self.tables.locks, creator=creator,
            new_groups=new_groups, is_writable=lambda: self.proposer.writable, clock=self.clock,
            alarm=FakeAlarm, serve=spawn,
        )  # fmt: skip
        self.admin = AdminProcessor(
            topics=self.tables.topics,
            creator=creator,
            proposer=self.proposer,
            guard=guard_of(**security),
            status=lambda: {"role": "LEADER"},
        )

    def put_topic(self, name: str, queues: int = 4) -> None:
        config = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
        payload = msgspec.json.encode(TopicChange(config, 1))
        assert self.tables.state.apply(1, StateKind.TOPIC.value, payload)

    def work(self) -> None:
        async def run() -> None:
            while self.spawned:
                await self.spawned.pop(0)

        asyncio.run(run())

    def beat(self, connection: FakeConnection, client_id: str = "c1", **consumer: Any) -> None:
        data = {
            "groupName": "g",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}],
        } | consumer
        body = {
            "clientID": client_id,
            "producerDataSet": [{"groupName": "p"}],
            "consumerDataSet": [data],
        }
        self.client.handle_heartbeat(connection, frame(34, json.dumps(body).encode()))
        self.work()


@pytest.fixture
def bench() -> Bench:
    return Bench()


QUEUE = {"consumerGroup": "g", "topic": "T", "queueId": 0}


# Offsets


def test_an_offset_is_taken_and_answered(bench: Bench) -> None:
    connection = FakeConnection()
    bench.offset.handle_update(connection, frame(15, commitOffset=8, **QUEUE))
    bench.offset.handle_update(connection, frame(15, b"", 2, commitOffset=9, **QUEUE))
    bench.work()
    assert [answer.code for answer in connection.answers] == [0]
    answer = bench.offset.handle_query(connection, request(14, **QUEUE))
    assert answer is not None
    assert (answer.code, answer.ext_fields) == (0, {"offset": "9"})


def test_a_new_group_begins_at_the_start_of_a_queue_that_is_whole(bench: Bench) -> None:
    answer = bench.offset.handle_query(FakeConnection(), request(14, **QUEUE))
    assert answer is not None
    assert (answer.code, answer.ext_fields) == (0, {"offset": "0"})
    bench.store.first_offset = 5
    answer = bench.offset.handle_query(FakeConnection(), request(14, **QUEUE))
    assert answer is not None
    assert (answer.code, (answer.remark or "")[:9]) == (22, "Not found")


def test_a_group_may_ask_to_be_told_that_it_has_no_offset(bench: Bench) -> None:
    for said, code in (("false", 22), ("true", 0)):
        asked = request(14, setZeroIfNotFound=said, **QUEUE)
        answer = bench.offset.handle_query(FakeConnection(), asked)
        assert answer is not None
        assert answer.code == code
    with planted(BY_TESTS["group-at-the-end-told-zero"]):
        asked = request(14, setZeroIfNotFound="false", **QUEUE)
        answer = bench.offset.handle_query(FakeConnection(), asked)
        assert answer is not None
        assert answer.code == 0


def test_a_negative_offset_is_none(bench: Bench) -> None:
    connection = FakeConnection()
    bench.offset.handle_update(connection, frame(15, commitOffset=-(2**63), **QUEUE))
    bench.work()
    assert connection.answers[0].code == 0
    bench.store.first_offset = 5
    answer = bench.offset.handle_query(connection, request(14, **QUEUE))
    assert answer is not None
    assert answer.code == 22


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "gone"}, 17),
        ({"topic": "x" * 50_000}, 17),
        ({"queueId": 4}, 1),
        ({"queueId": -1}, 1),
        ({"queueId": 2**31 - 1}, 1),
        ({"consumerGroup": "g" * 50_000}, 26),
        ({"consumerGroup": "a b"}, 26),
        ({"consumerGroup": ""}, 26),
    ],
)
def test_an_offset_of_what_does_not_exist_is_not_kept(
    bench: Bench, fields: dict[str, object], code: int
) -> None:
    connection = FakeConnection()
    bench.offset.handle_update(connection, frame(15, commitOffset=8, **{**QUEUE, **fields}))
    (answer,) = connection.answers
    assert answer.code == code
    assert len(answer.remark or "") < 1_000
    assert not bench.tables.offsets.has_pending
    assert bench.tables.offsets.room.used == 0
    with planted(ALL["offsets-of-nothing"]):
        bench.offset.handle_update(connection, frame(15, commitOffset=8, **{**QUEUE, **fields}))
    assert bench.tables.offsets.has_pending


def test_a_group_that_commits_first_is_created(bench: Bench) -> None:
    bench.offset.handle_update(FakeConnection(), frame(15, commitOffset=8, **QUEUE))
    bench.work()
    assert bench.tables.groups.get("g") is not None


def test_a_follower_takes_no_offset_and_says_nothing_it_does_not_know(bench: Bench) -> None:
    bench.store.writable = False
    connection = FakeConnection()
    bench.offset.handle_update(connection, frame(15, commitOffset=8, **QUEUE))
    assert connection.answers[0].code == 14
    assert bench.offset.handle_query(connection, request(14, **QUEUE)) is None


def test_offsets_are_replicated_once_a_second_and_again_after_a_refusal(bench: Bench) -> None:
    replicator = OffsetReplicator(
        bench.tables.offsets, bench.store, lambda _, function: FakeAlarm(function)
    )
    bench.tables.offsets.commit("g", "T", 0, 1)
    replicator.flush()
    replicator.flush()
    ((kind, payload, done),) = bench.store.states
    assert (kind, payload) == ("offset", b'{"T@g":{"0":1}}')
    done(PutStatus.FULL)
    replicator.flush()
    assert len(bench.store.states) == 2
    bench.store.states[1][2](PutStatus.UNKNOWN)
    replicator.flush()
    assert len(bench.store.states) == 2
    bench.store.writable = False
    bench.tables.offsets.commit("g", "T", 0, 2)
    replicator.flush()
    assert len(bench.store.states) == 2


# Locks


def lock_request(code: int, client_id: str) -> RemotingCommand:
    queue = {"brokerName": "b", "queueId": 0, "topic": "T"}
    body = {"clientId": client_id, "consumerGroup": "g", "mqSet": [queue]}
    return request(code, json.dumps(body).encode())


def granted(answer: RemotingCommand) -> int:
    assert answer.code == 0, answer
    return len(json.loads(answer.body)["lockOKMQSet"])


def test_a_queue_is_locked_for_one_client_until_it_lets_go(bench: Bench) -> None:
    async def scenario() -> None:
        ask, release = bench.lock.handle_lock, bench.lock.handle_unlock
        assert granted(await ask(None, lock_request(41, "c1"))) == 1
        assert granted(await ask(None, lock_request(41, "c2"))) == 0
        assert (await release(None, lock_request(42, "c1"))).code == 0
        assert granted(await ask(None, lock_request(41, "c2"))) == 1

    asyncio.run(scenario())


def test_a_grant_that_is_not_replicated_is_none(bench: Bench) -> None:
    async def scenario() -> None:
        bench.proposer.status = PutStatus.UNKNOWN
        answer = await bench.lock.handle_lock(None, lock_request(41, "c1"))
        assert answer.code == 1
        bench.proposer.status = PutStatus.OK
        assert granted(await bench.lock.handle_lock(None, lock_request(41, "c2"))) == 1

    asyncio.run(scenario())


def test_a_follower_locks_nothing(bench: Bench) -> None:
    bench.proposer.writable = False
    for code, handle in ((41, bench.lock.handle_lock), (42, bench.lock.handle_unlock)):
        assert asyncio.run(handle(None, lock_request(code, "c1"))).code == 14


def lock_body(count: int, topic: str = "T", **other: Any) -> bytes:
    queues = [{"brokerName": "b", "queueId": number, "topic": topic} for number in range(count)]
    return json.dumps({"clientId": "c1", "consumerGroup": "g", "mqSet": queues, **other}).encode()


def ask_lock(bench: Bench, body: bytes, code: int = 41) -> RemotingCommand:
    handle = bench.lock.handle_lock if code == 41 else bench.lock.handle_unlock
    return asyncio.run(handle(None, request(code, body)))


def test_only_queues_that_exist_are_granted_and_get_into_the_log(bench: Bench) -> None:
    assert granted(ask_lock(bench, lock_body(9))) == 4
    assert granted(ask_lock(bench, lock_body(9, "gone"))) == 0
    assert granted(ask_lock(bench, b'{"clientId":"c1","consumerGroup":"g","mqSet":[{}]}')) == 0
    assert len(bench.tables.locks) == 4
    assert len(bench.proposer.proposed) == 1
    with planted(BY_TESTS["locks-of-nothing"]):
        assert granted(ask_lock(bench, lock_body(9, "gone"))) == 9


def test_a_long_request_becomes_several_entries(bench: Bench) -> None:
    topic = "t" * 127
    bench.put_topic(topic, 9_000)
    assert granted(ask_lock(bench, lock_body(9_000, topic))) == 9_000
    sizes = [len(payload) for _, payload in bench.proposer.proposed]
    assert len(sizes) > 5
    assert max(sizes) <= STATE_ENTRY_BYTES_MAX
    assert len(bench.tables.locks) == 9_000
    assert ask_lock(bench, lock_body(9_000, topic), 42).code == 0
    assert max(len(payload) for _, payload in bench.proposer.proposed) <= STATE_ENTRY_BYTES_MAX
    assert len(bench.tables.locks) == 0
    with planted(BY_TESTS["lock-entries-unbounded"]):
        ask_lock(bench, lock_body(9_000, topic))
    assert max(len(payload) for _, payload in bench.proposer.proposed) > STATE_ENTRY_BYTES_MAX


def test_what_is_not_held_is_released_without_an_entry(bench: Bench) -> None:
    assert ask_lock(bench, lock_body(4), 42).code == 0
    assert bench.proposer.proposed == []


@pytest.mark.parametrize(
    "other",
    [
        {"consumerGroup": "g" * 256},
        {"consumerGroup": "a/b"},
        {"consumerGroup": None},
        {"clientId": "c" * 256},
        {"clientId": ""},
        {"clientId": None},
        {"mqSet": [{"queueId": number} for number in range(10_001)]},
        {"mqSet": 5},
        {"mqSet": [5]},
        {"mqSet": [{"queueId": "x"}]},
    ],
)
def test_a_lock_request_of_odd_content_is_refused(bench: Bench, other: dict[str, object]) -> None:
    with pytest.raises((InvalidHeader, RemoteProtocolError)):
        ask_lock(bench, lock_body(1, **other))
    assert bench.proposer.proposed == []


# Clients


def test_a_heartbeat_creates_the_group_then_registers_and_notifies(bench: Bench) -> None:
    first, second = FakeConnection(1), FakeConnection(2)
    bench.beat(first)
    assert bench.tables.groups.get("g") is not None
    assert bench.tables.topics.get("%RETRY%g") is not None
    assert [answer.code for answer in first.answers] == [0]
    assert [command.code for command in first.sent] == [40]
    bench.beat(second, "c2")
    assert [command.ext_fields for command in first.sent] == [{"consumerGroup": "g"}] * 2
    assert len(second.sent) == 1
    listed = bench.client.handle_list(first, request(38, consumerGroup="g"))
    assert json.loads(listed.body) == {"consumerIdList": ["c1", "c2"]}
    assert len(bench.tables.producers.clients("p")) == 2


def flood(bench: Bench, connection: FakeConnection, count: int, start: int = 0) -> int:
    """Send a heartbeat with so many new groups; return the code of its answer."""
    groups = [{"groupName": f"g{number}"} for number in range(start, start + count)]
    body = json.dumps({"clientID": "c", "consumerDataSet": groups}).encode()
    bench.client.handle_heartbeat(connection, frame(34, body))
    bench.work()
    return connection.answers[-1].code


def flooded(bench: Bench) -> list[int]:
    first, second = FakeConnection(1), FakeConnection(2)
    second.remote = ("127.0.0.2", 1)
    codes = [flood(bench, first, 600), flood(bench, first, 600, 600)]
    codes.append(flood(bench, second, 10, 5_000))
    codes.append(flood(bench, first, 1_200))
    bench.clock.now_ms += 200_000
    codes.append(flood(bench, first, 1_200))
    return codes


def test_an_address_has_a_stock_of_new_groups(bench: Bench) -> None:
    before = len(bench.tables.groups)
    assert flooded(bench) == [0, 2, 0, 2, 0]
    assert len(bench.tables.groups) == before + 1_210


def test_planted_any_number_of_new_groups(bench: Bench) -> None:
    with planted(BY_TESTS["groups-without-stock"]):
        assert flooded(bench) == [0] * 5


def test_commits_of_too_many_new_groups_are_refused(bench: Bench) -> None:
    connection = FakeConnection()
    for number in range(1_001):
        fields = {**QUEUE, "consumerGroup": f"g{number}"}
        bench.offset.handle_update(connection, frame(15, commitOffset=8, **fields))
    bench.work()
    codes = [answer.code for answer in connection.answers]
    assert codes == [0] * 1_000 + [2]
    bench.clock.now_ms += 100
    fields = {**QUEUE, "consumerGroup": "later"}
    bench.offset.handle_update(connection, frame(15, commitOffset=8, **fields))
    bench.work()
    assert connection.answers[-1].code == 0


def test_a_member_that_leaves_or_is_lost_is_told_to_the_others(bench: Bench) -> None:
    first, second, third = (FakeConnection(number) for number in (1, 2, 3))
    for connection in (first, second, third):
        bench.beat(connection, f"c{connection.id}")
    first.sent.clear()
    answer = bench.client.handle_unregister(
        second, request(35, clientID="c2", consumerGroup="g", producerGroup="p")
    )
    assert (answer.code, answer.empty_ext_fields) == (0, True)
    bench.client.on_close(third)
    assert len(first.sent) == 2
    bench.clock.now_ms += 120_001
    bench.client.expire()
    gone = bench.client.handle_list(first, request(38, consumerGroup="g"))
    assert (gone.code, gone.remark) == (1, "no consumer for this group, g")


def test_broadcasting_and_quiet_groups_are_not_notified(bench: Bench) -> None:
    connection = FakeConnection()
    bench.beat(connection, messageModel="BROADCASTING")
    assert connection.sent == []
    config = bench.tables.groups.get("g")
    assert config is not None
    bench.tables.groups._groups["g"] = msgspec.structs.replace(
        config, notify_consumer_ids_changed_enable=False
    )
    bench.client.notify("g")
    assert connection.sent == []


def test_a_follower_registers_clients_and_creates_nothing(bench: Bench) -> None:
    bench.proposer.writable = False
    connection = FakeConnection()
    bench.beat(connection)
    assert connection.answers[0].code == 0
    assert bench.proposer.proposed == []
    assert bench.tables.consumers.client_ids("g") == ["c1"]


# Queries and administration


class FakeQueues:
    """A store with one queue of five messages."""

    def __init__(self, *, writable: bool = True) -> None:
        self.writable = writable

    def max_offset(self, _topic: str, _queue_id: int) -> int:
        return 5

    def min_offset(self, _topic: str, _queue_id: int) -> int:
        return 2

    def earliest_store_time(self, _topic: str, _queue_id: int) -> int:
        return -1

    def offset_by_time(
        self, _topic: str, _queue_id: int, _timestamp: int, boundary: Boundary | None
    ) -> int:
        return {None: 2, Boundary.LOWER: 3, Boundary.UPPER: 4}[boundary]

    def message_at(self, physical_offset: int) -> memoryview | None:
        return memoryview(b"record") if physical_offset == 48 else None


def test_limits_and_times_of_a_queue_are_told() -> None:
    made = QueryProcessor(FakeQueues(), is_there)

    def ask(
        handle: Callable[[object, RemotingCommand], RemotingCommand], **more: object
    ) -> dict[str, str]:
        answer = handle(None, request(30, topic="T", queueId=0, **more))
        assert answer.code == 0
        return answer.ext_fields

    assert ask(made.handle_max_offset) == {"offset": "5"}
    assert ask(made.handle_min_offset) == {"offset": "2"}
    assert ask(made.handle_earliest) == {"timestamp": "-1"}
    assert ask(made.handle_by_time, timestamp=9) == {"offset": "2"}
    assert ask(made.handle_by_time, timestamp=9, boundaryType="LOWER") == {"offset": "3"}
    assert ask(made.handle_by_time, timestamp=9, boundaryType="UPPER") == {"offset": "4"}
    with pytest.raises(InvalidHeader):
        made.handle_max_offset(None, request(30, topic="T"))


def queries(store: FakeQueues) -> dict[int, Any]:
    """Return what the processor declares, as a broker registers it."""
    guard = SimpleNamespace(protect=lambda handler: handler)
    made = broker_requests(guard, lambda: store.writable, lambda: store.writable)  # type: ignore[arg-type]
    made.add(QueryProcessor(store, is_there))
    return made.commands


@pytest.mark.parametrize("code", [29, 30, 31, 32])
def test_only_a_leader_tells_limits(code: int) -> None:
    # 1. A leader is cut off, another one acknowledges messages. 2. The first one is asked where
    # the queue ends. Its end lies before them: a reader that begins there, or that compares, errs.
    commands = queries(FakeQueues(writable=False))
    answer = commands[code](None, request(code, topic="T", queueId=0, timestamp=9))
    assert (answer.code, answer.ext_fields) == (14, {})
    assert commands[33](None, request(33, offset=48)).body == b"record"


class FakeKeys(FakeQueues):
    """A store that finds what it was given, and notes what it was asked."""

    def __init__(self, found: list[bytes], *, writable: bool = True, corrupt: bool = False) -> None:
        super().__init__(writable=writable)
        self.found = found
        self.corrupt = corrupt
        self.asked: list[tuple[object, ...]] = []

    def messages_of_key(self, topic: str, key: str, limit: int, span: tuple[int, int]) -> KeyResult:
        self.asked.append((topic, key, limit, span))
        if self.corrupt:
            raise DamagedEntry(7, "here")
        return KeyResult([memoryview(one) for one in self.found], 99, 48)


def key_request(**more: object) -> RemotingCommand:
    fields = {"topic": "T", "key": "k", "maxNum": 5, "beginTimestamp": 1, "endTimestamp": 2}
    return request(12, **{**fields, **more})


def test_messages_of_a_key_are_answered_side_by_side() -> None:
    store = FakeKeys([b"one", b"two"])
    answer = QueryProcessor(store, is_there).handle_by_key(None, key_request())
    assert (answer.code, answer.remark, answer.body) == (0, None, b"onetwo")
    assert answer.ext_fields == {
        "indexLastUpdateTimestamp": "99", "indexLastUpdatePhyoffset": "48",
    }  # fmt: skip
    assert store.asked == [("T", "k", 5, (1, 2))]


@pytest.mark.parametrize(("flag", "limit"), [("true", 32), ("false", 5), ("TRUE", 5), (None, 5)])
def test_a_query_by_unique_key_has_the_brokers_limit(flag: str | None, limit: int) -> None:
    store = FakeKeys([])
    more = {} if flag is None else {"_UNIQUE_KEY_QUERY": flag}
    QueryProcessor(store, is_there).handle_by_key(None, key_request(**more))
    assert store.asked == [("T", "k", limit, (1, 2))]


def test_a_key_that_nothing_has_is_answered_22_with_the_fields() -> None:
    answer = QueryProcessor(FakeKeys([]), is_there).handle_by_key(None, key_request())
    assert (answer.code, answer.remark) == (
        22, "can not find message, maybe time range not correct",
    )  # fmt: skip
    assert set(answer.ext_fields) == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}


def test_a_key_whose_only_message_is_damaged_is_refused_for_now() -> None:
    answer = QueryProcessor(FakeKeys([], corrupt=True), is_there).handle_by_key(None, key_request())
    assert answer.code == 14


def test_only_a_leader_looks_for_keys() -> None:
    store = FakeKeys([b"one"], writable=False)
    answer = queries(store)[12](None, key_request())
    assert (answer.code, answer.body, store.asked) == (14, b"", [])


@pytest.mark.parametrize(
    "wrong", [{"maxNum": "x"}, {"maxNum": 2**31}, {"beginTimestamp": ""}, {"endTimestamp": "now"}]
)
def test_a_query_with_a_field_that_is_no_number_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidHeader):
        QueryProcessor(FakeKeys([]), is_there).handle_by_key(None, key_request(**wrong))


def test_a_message_is_found_by_its_place() -> None:
    made = QueryProcessor(FakeQueues(), is_there)
    assert made.handle_by_id(None, request(33, offset=48)).body == b"record"
    missing = made.handle_by_id(None, request(33, offset=49))
    assert (missing.code, missing.remark) == (1, "can not find message by the offset, 49")


def update(bench: Bench, **fields: object) -> RemotingCommand:
    return asyncio.run(bench.admin.handle_update_topic(FakeConnection(), topic_request(**fields)))


def topic_request(**fields: object) -> RemotingCommand:
    values = {"topic": "T", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} | fields
    return request(17, **values)


def test_a_topic_is_created_by_administration(bench: Bench) -> None:
    answer = asyncio.run(
        bench.admin.handle_update_topic(
            FakeConnection(), topic_request(order="true", attributes="+message.type=FIFO")
        )
    )
    assert (answer.code, answer.remark) == (0, "not set any response code")
    entry = bench.tables.topics.get("T")
    assert entry is not None
    assert (entry.write_queues, entry.config.order) == (4, True)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"topic": "TBW102"}, "conflict with system topic"),
        ({"topic": "bad name"}, "illegal characters"),
        ({"writeQueueNums": -1}, "queues"),
        ({"readQueueNums": 10**6}, "queues"),
        ({"topic": "t" * 128}, "longer than"),
        ({"topic": "../../etc"}, "illegal characters"),
        ({"topic": "rmq_sys_" + "x" * 50_000}, "conflict with system topic"),
        ({"perm": 8}, "perm = [8] value invalid"),
        ({"perm": -1}, "perm = [-1] value invalid"),
        ({"topicFilterType": "x" * 50_000}, "value invalid"),
        ({"topicFilterType": "0"}, "topicFilterType = [0] value invalid"),
        ({"attributes": "+message.type=FIFO,+queue.type=BatchCQ"}, "the attribute queue.type is"),
    ],
)
def test_a_topic_that_may_not_be_created_is_refused(
    bench: Bench, fields: dict[str, object], word: str
) -> None:
    answer = asyncio.run(bench.admin.handle_update_topic(FakeConnection(), topic_request(**fields)))
    assert answer.code == 1
    assert word in (answer.remark or "")
    assert len(answer.remark or "") < 1_000
    assert bench.proposer.proposed == []


def test_a_topic_takes_no_more_of_a_request_than_is_bounded(bench: Bench) -> None:
    large = topic_request(topicFilterType="x" * 200_000)
    with planted(BY_TESTS["any-topic-filter-type"]):
        asyncio.run(bench.admin.handle_update_topic(FakeConnection(), large))
    ((_, payload),) = bench.proposer.proposed
    assert len(payload) > STATE_ENTRY_BYTES_MAX


def test_a_full_table_takes_changes_and_no_topics(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.state.topic_config.TOPICS_BYTES_MAX", 0)
    answer = asyncio.run(
        bench.admin.handle_update_topic(FakeConnection(), topic_request(topic="new"))
    )
    assert (answer.code, answer.remark) == (
        2, "the topic table is full: name servers take no larger one",
    )  # fmt: skip
    answer = update(bench, perm=4)
    assert answer.code == 0


def test_a_follower_changes_no_topic(bench: Bench) -> None:
    bench.proposer.writable = False
    answer = asyncio.run(bench.admin.handle_update_topic(FakeConnection(), topic_request()))
    assert answer.code == 1
    assert "slave broker" in (answer.remark or "")


def test_the_view_of_the_log_is_told(bench: Bench) -> None:
    assert json.loads(bench.admin.handle_raft_status(None, request(29_001)).body) == {
        "role": "LEADER"
    }


# Waking


def test_a_queue_wakes_its_pulls_once_a_turn_with_its_last_offset(bench: Bench) -> None:
    from tests.unit.broker.test_long_polling import pull

    woken: list[tuple[str, int, int]] = []
    turns: list[Callable[[], None]] = []

    def wake(topic: str, queue_id: int, max_offset: int, work: int) -> int:
        woken.append((topic, queue_id, max_offset))
        return work

    waker = WakeUp(bench.tables.held, wake, turns.append, {})
    waker.on_message("T", 0, 1)
    assert turns == []
    bench.tables.held.hold(pull())
    waker.on_message("T", 0, 2)
    waker.on_message("T", 0, 3)
    assert len(turns) == 1
    assert woken == []
    turns[0]()
    assert woken == [("T", 0, 3)]

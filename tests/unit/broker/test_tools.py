"""What tools ask: what is left out, what is passed on to consumers, and what is refused."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from broker.config import BrokerConfig
from broker.delays.progress import DelayProgress
from broker.groups.client_registry import Client, GroupTraits, Subscription
from broker.limits import FORWARDED_MAX
from broker.processor import members, reset
from broker.processor.forward import ForwardProcessor
from broker.processor.other_groups import OtherGroupsProcessor
from broker.processor.reset import ResetProcessor
from broker.processor.runtime import RuntimeProcessor, _readable
from broker.processor.slave_tables import SlaveTablesProcessor
from broker.processor.stats import StatsProcessor
from broker.state.kinds import StateKind
from broker.state.subscription import GroupChange, SubscriptionGroupConfig
from broker.state.topic_config import TopicChange
from broker.stats.counts import TrafficCounts
from broker.stats.walks import SLICE, Walks
from broker.tables import Tables
from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.bodies import SubscriptionData, TopicConfig
from ledgermq.remoting.protocol.codes import LanguageCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.errors import ConnectionLost, InvalidHeader, RequestTimeout
from ledgermq.remoting.protocol.tolerant_json import loads
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import Space
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.fixtures import wire
from tests.unit.broker.fakes import FakeClock, FakeConnection, request, smaller

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from store.results import Boundary

TRAITS = GroupTraits("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")
CLOCK_MS = FakeClock().wall_ms()


class Queues:
    """A store whose queues have ten messages, stored a second apart; queue 1 is damaged."""

    def max_offset(self, _topic: str, _queue_id: int) -> int:
        return 10

    def min_offset(self, _topic: str, _queue_id: int) -> int:
        return 2

    def store_time(self, _topic: str, queue_id: int, offset: int) -> int:
        if queue_id == 1:
            raise DamagedEntry(1, "here")
        return CLOCK_MS - 1_000 * (10 - offset) if 2 <= offset < 10 else -1

    def offset_by_time(
        self, _topic: str, _queue_id: int, timestamp: int, _boundary: Boundary | None = None
    ) -> int:
        return timestamp

    reader = property(lambda self: self)
    applied = 900

    def log_range(self) -> tuple[int, int]:
        return 100, 1_000

    def begin_time(self) -> int:
        return CLOCK_MS - 7_200_000

    def message_at(self, physical_offset: int) -> memoryview | None:
        return memoryview(b"a record") if physical_offset == 255 else None


class Asked(FakeConnection):
    """A member that answers, or does not."""

    def __init__(self, number: int = 1) -> None:
        super().__init__(number)
        self.says: Exception | None = None
        self.offsets: bytes | None = None
        """Body of the answer to 221."""
        self.asked: list[RemotingCommand] = []

    async def request(self, command: RemotingCommand, _timeout_ms: int) -> RemotingCommand:
        self.asked.append(command)
        if self.says is not None:
            raise self.says
        if self.offsets is not None:
            return make_response(command, 0, body=self.offsets)
        return make_response(command, 5, "said", {"f": "v"}, b"body")


class Bench:
    """Processors over one set of tables, with topics T and U of two queues and a group g."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        config = BrokerConfig(broker_cluster_name="C", broker_name="b", peer_shared_key="k" * 40)
        self.tables = Tables(config, self.clock)
        for name in ("T", "U"):
            topic = TopicConfig(
                topic_name=name, read_queue_nums=2, write_queue_nums=2, order=name == "U"
            )
            self.apply(StateKind.TOPIC, TopicChange(topic, 1))
        self.apply(StateKind.GROUP, GroupChange(SubscriptionGroupConfig(group_name="g"), 1))
        for topic in ("T", "U"):
            for queue_id in range(2):
                self.tables.offsets.commit("g", topic, queue_id, 5)
        self.is_leading = True
        self.walks = Walks(SystemClock(), lambda: self.is_leading)
        counts = TrafficCounts(self.clock)
        store = Queues()
        self.stats = StatsProcessor(self.tables, store, config, self.clock, counts, self.walks)
        self.reset = ResetProcessor(self.tables, store, "b", self.walks)
        self.forward = ForwardProcessor(self.tables.consumers, store, "b")
        self.counts, self.delays = counts, DelayProgress()
        self.space: Space | None = Space(5 << 30, 20 << 30)
        self.runtime = RuntimeProcessor(
            config, store, counts, self.clock, lambda: self.space, lambda: self.delays
        )

    def ask_runtime(self) -> dict[str, str]:
        body = bytes(self.runtime.handle_info(None, request(28)).body)
        return msgspec.json.decode(body)["table"]  # type: ignore[no-any-return]

    def apply(self, kind: StateKind, change: msgspec.Struct) -> None:
        assert self.tables.state.apply(1, kind.value, msgspec.json.encode(change))

    def join(self, number: int = 1, version: int = 407, language: int = 0) -> Asked:
        connection = Asked(number)
        client = Client(connection, f"c{number}", language, version, 0)
        self.tables.consumers.register("g", TRAITS, client, [Subscription.parse("T", "*", 1)])
        return connection


@pytest.fixture
def bench() -> Bench:
    return Bench()


def run(awaitable: Awaitable[RemotingCommand]) -> RemotingCommand:
    async def wait() -> RemotingCommand:
        return await awaitable

    return asyncio.run(wait())


def table(answer: RemotingCommand) -> dict[tuple[str, int], dict[str, int]]:
    assert answer.code == 0, answer
    offsets = loads(answer.body)["offsetTable"]
    return {(dict(key)["topic"], dict(key)["queueId"]): value for key, value in offsets.items()}


def test_what_a_group_subscribes_to_is_told_in_many_turns(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group may have a thousand subscriptions with thousands of tags each."""
    expression = "||".join(f":null{number}" for number in range(900))
    wanted = [Subscription(f"T{number}", expression, "TAG", number) for number in range(40)]
    made: list[str] = []
    data_of = members.subscription_data

    def noted(one: Subscription) -> SubscriptionData:
        made.append(one.topic)
        return data_of(one)

    monkeypatch.setattr(members, "subscription_data", noted)

    async def ask() -> tuple[RemotingCommand, int]:
        """Return the answer, and how many subscriptions at most were looked at in a turn."""
        processor = members.MembersProcessor(bench.tables, bench.clock, bench.walks)
        asking = asyncio.ensure_future(
            processor.handle_consumers(None, request(203, consumerGroup="g"))
        )
        most = 0
        while not asking.done():
            made.clear()
            await asyncio.sleep(0)
            most = max(most, len(made))
        return await asking, most

    client = Client(bench.join(), "c1", 0, 407, 0)
    bench.tables.consumers.register("g", TRAITS, client, wanted)
    answer, most = asyncio.run(ask())
    told = msgspec.json.decode(answer.body)
    assert [one["clientId"] for one in told["connectionSet"]] == ["c1"]
    assert told["subscriptionTable"].keys() == {one.topic for one in wanted}
    assert told["subscriptionTable"]["T7"]["subString"] == expression
    assert len(told["subscriptionTable"]["T7"]["tagsSet"]) == 900
    assert most <= SLICE
    with planted(BY_TESTS["subscriptions-in-one-turn"]):
        assert asyncio.run(ask())[1] == len(wanted)


def test_a_damaged_message_has_no_time(bench: Bench) -> None:
    found = table(run(bench.stats.handle_topic(None, request(202, topic="T"))))
    times = [found["T", queue_id]["lastUpdateTimestamp"] for queue_id in range(2)]
    assert times == [CLOCK_MS - 1_000, 0]
    assert found["T", 0]["minOffset"] == 2
    absent = run(bench.stats.handle_topic(None, request(202, topic="absent")))
    assert (absent.code, absent.remark) == (17, "topic[absent] not exist")


def asked_of_a_leader(bench: Bench) -> dict[int, int]:
    """Return what is answered where the leadership is lost while a question waits, by request."""
    tables = SlaveTablesProcessor(bench.tables.state, bench.tables.offsets, bench.walks)
    others = OtherGroupsProcessor(bench.tables, Queues(), bench.walks, lambda _group: True)
    fields = {"topic": "T", "group": "g", "consumerGroup": "g", "compareGroup": "g"}
    fields |= {"filterGroups": "", "isOrder": "false", "timestamp": "0", "isForce": "true"}
    handlers = {
        43: tables.handle_offsets,
        202: bench.stats.handle_topic,
        208: bench.stats.handle_group,
        222: bench.reset.handle_reset,
        303: bench.stats.handle_time_span,
        308: others.handle_correction,
        317: bench.stats.handle_all_groups,
    }
    found: dict[int, int] = {}

    async def ask() -> None:
        for code, handler in handlers.items():
            bench.is_leading = True
            asked = asyncio.ensure_future(handler(None, request(code, **fields)))
            await asyncio.sleep(0)
            bench.is_leading = False
            found[code] = (await asked).code

    bench.join()
    asyncio.run(ask())
    return found


def test_who_leads_no_more_answers_nothing_that_only_a_leader_does(bench: Bench) -> None:
    assert set(asked_of_a_leader(bench).values()) == {14}
    with planted(BY_TESTS["answered-though-it-leads-no-more"]):
        assert set(asked_of_a_leader(bench).values()) == {0}


def test_a_connected_group_shows_only_what_it_subscribes_to(bench: Bench) -> None:
    def topics(**fields: str) -> set[str]:
        answer = run(bench.stats.handle_group(None, request(208, consumerGroup="g", **fields)))
        return {topic for topic, _ in table(answer)}

    assert topics() == {"T", "U"}
    assert topics(topic="U") == {"U"}
    assert topics(topicList="T;U;absent") == {"T", "U"}
    bench.join()
    assert topics() == {"T"}
    found = table(run(bench.stats.handle_group(None, request(208, consumerGroup="g"))))
    assert found["T", 0] == {
        "brokerOffset": 10, "consumerOffset": 5, "lastTimestamp": CLOCK_MS - 6_000,
        "pullOffset": 5,
    }  # fmt: skip


def test_all_groups_or_those_of_ordered_topics(bench: Bench) -> None:
    def topics(is_order: str) -> tuple[int, int]:
        answer = run(bench.stats.handle_all_groups(None, request(317, isOrder=is_order)))
        body = loads(answer.body)
        return len(body["consumeStatsList"][0]["g"]), body["totalDiff"]

    assert topics("false") == (2, 20)
    assert topics("true") == (1, 10)


@pytest.mark.parametrize("written", [0, 2])
def test_all_groups_show_queues_that_are_written_to(bench: Bench, written: int) -> None:
    config = TopicConfig(topic_name="T", read_queue_nums=0, write_queue_nums=written)
    bench.apply(StateKind.TOPIC, TopicChange(config, 2))
    body = loads(run(bench.stats.handle_all_groups(None, request(317, isOrder="false"))).body)
    assert [len(one["offsetTable"]) for one in body["consumeStatsList"][0]["g"]] == [written, 2]


def test_groups_far_beyond_the_ends_leave_the_sum_a_long(bench: Bench) -> None:
    """RocketMQ's tools cannot read the body otherwise: NumberFormatException."""
    for queue_id in range(2):
        bench.tables.offsets.commit("g", "T", queue_id, 2**63 - 1)
    body = loads(run(bench.stats.handle_all_groups(None, request(317, isOrder="false"))).body)
    assert body["totalDiff"] == -(2**63)


def test_times_that_a_group_is_at(bench: Bench) -> None:
    answer = run(bench.stats.handle_time_span(None, request(303, topic="T", group="g")))
    span = json.loads(answer.body)["consumeTimeSpanSet"][0]
    assert span["minTimeStamp"] == CLOCK_MS - 8_000
    assert span["maxTimeStamp"] == CLOCK_MS - 1_000
    assert span["consumeTimeStamp"] == CLOCK_MS - 6_000
    assert span["delayTime"] == 5_000


def test_topics_of_a_group(bench: Bench) -> None:
    answer = run(bench.stats.handle_topics_of_group(None, request(343, group="g")))
    assert sorted(json.loads(answer.body)["topicList"]) == ["T", "U"]


RESET: dict[str, Any] = {"topic": "T", "group": "g", "timestamp": 3, "isForce": "false"}


def test_a_reset_goes_forward_only_by_force(bench: Bench) -> None:
    bench.join()
    for timestamp, force, goes in ((3, "false", 3), (8, "false", 5), (8, "true", 8)):
        fields = RESET | {"timestamp": timestamp, "isForce": force}
        answer = run(bench.reset.handle_reset(None, request(222, **fields)))
        assert set(loads(answer.body)["offsetTable"].values()) == {goes}


def test_a_client_in_cpp_is_told_in_a_list(bench: Bench) -> None:
    java, cpp = bench.join(1), bench.join(2, language=LanguageCode.CPP)
    assert run(bench.reset.handle_reset(None, request(222, **RESET))).code == 0
    (in_java,), (in_cpp,) = java.sent, cpp.sent
    assert isinstance(loads(in_java.body)["offsetTable"], dict)
    rows = json.loads(in_cpp.body)["offsetTable"]
    assert rows[0] == {"brokerName": "b", "offset": 3, "queueId": 0, "topic": "T"}
    with planted(BY_TESTS["cpp-client-told-a-map"]):
        assert run(bench.reset.handle_reset(None, request(222, **RESET))).code == 0
        assert isinstance(loads(cpp.sent[-1].body)["offsetTable"], dict)


def test_nobody_is_told_when_one_is_too_old_or_it_is_too_much(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [bench.join(1), bench.join(2, version=27)]
    answer = run(bench.reset.handle_reset(None, request(222, **RESET)))
    assert (answer.code, answer.remark) == (
        1, "the client does not support this feature. version=27"
    )  # fmt: skip
    monkeypatch.setattr(reset, "RESET_BYTES_MAX", smaller(reset.RESET_BYTES_MAX, 100))
    assert run(bench.reset.handle_reset(None, request(222, **RESET))).code == 1
    assert [one.sent for one in members] == [[], []]
    absent = run(bench.reset.handle_reset(None, request(222, **RESET | {"topic": "absent"})))
    assert absent.code == 1


INFO = {"consumerGroup": "g", "clientId": "c1"}


def test_what_a_consumer_says_is_passed_on(bench: Bench) -> None:
    member = bench.join()
    answer = run(
        bench.forward.handle_running_info(FakeConnection(), request(307, **INFO, Signature="s"))
    )
    assert (answer.code, answer.remark, answer.body) == (5, "said", b"body")
    assert answer.opaque == 7
    (asked,) = member.asked
    assert (asked.code, asked.ext_fields) == (307, INFO | {"jstackEnable": "false"})


@pytest.mark.parametrize(
    ("error", "code"), [(RequestTimeout("late"), 207), (ConnectionLost("gone"), 1)]
)
def test_a_consumer_that_does_not_answer(bench: Bench, error: Exception, code: int) -> None:
    bench.join().says = error
    answer = run(bench.forward.handle_running_info(FakeConnection(), request(307, **INFO)))
    assert answer.code == code
    assert "<g> <c1>" in (answer.remark or "")
    assert bench.forward.running == 0


def asked_at_a_time(bench: Bench, *askers: str) -> list[int]:
    """Return how many questions of addresses are passed on, one after the other, at a time."""
    member = bench.join()
    silence = asyncio.Event()

    async def say_nothing(command: RemotingCommand, _timeout_ms: int) -> RemotingCommand:
        member.asked.append(command)
        await silence.wait()
        raise RequestTimeout("silent")

    async def scenario() -> list[int]:
        member.request = say_nothing  # type: ignore[method-assign]
        found, tasks = [], []
        for asker in askers:
            connection = FakeConnection()
            connection.remote = (asker, 1)
            before = len(member.asked)
            tasks += [
                asyncio.create_task(
                    bench.forward.handle_running_info(connection, request(307, **INFO))
                )
                for _ in range(50)
            ]
            await asyncio.sleep(0.01)
            found.append(len(member.asked) - before)
        silence.set()
        await asyncio.gather(*tasks)
        return found

    return asyncio.run(scenario())


def test_who_asks_much_leaves_room_for_others(bench: Bench) -> None:
    found = asked_at_a_time(bench, "10.0.0.1", "10.0.0.2", "10.0.0.3")
    assert found[0] == 6
    assert all(found)
    assert sum(found) < FORWARDED_MAX
    assert bench.forward.running == 0


def test_planted_questions_of_one_are_found_here(bench: Bench) -> None:
    with planted(BY_TESTS["questions-without-shares"]):
        assert asked_at_a_time(bench, "10.0.0.1", "10.0.0.2") == [32, 0]


def test_who_is_not_there_or_too_old_is_not_asked(bench: Bench) -> None:
    for fields in (INFO, INFO | {"clientId": "c9"}, INFO | {"consumerGroup": "h"}):
        answer = run(bench.forward.handle_running_info(FakeConnection(), request(307, **fields)))
        assert answer.code == 1
        assert "not online" in (answer.remark or "")
    old = bench.join(1, version=61)
    assert run(bench.forward.handle_running_info(FakeConnection(), request(307, **INFO))).code == 1
    assert old.asked == []


def test_a_message_is_found_by_its_id(bench: Bench) -> None:
    member = bench.join()
    found = request(309, **INFO, msgId="7F00000100002A9F" + f"{255:016X}")
    assert run(bench.forward.handle_consume(FakeConnection(), found)).code == 5
    assert member.asked[0].body == b"a record"
    assert member.asked[0].ext_fields["brokerName"] == "b"
    absent = request(309, **INFO, msgId="7F00000100002A9F" + f"{256:016X}")
    assert run(bench.forward.handle_consume(FakeConnection(), absent)).code == 1
    for wrong in ("", "xyz", "G" * 32, "0" * 31):
        with pytest.raises(InvalidHeader):
            run(bench.forward.handle_consume(FakeConnection(), request(309, **INFO, msgId=wrong)))
    assert len(member.asked) == 1


STATUS = {"topic": "T", "group": "g"}
KEY = '{"brokerName":"b","queueId":0,"topic":"T"}'


def offsets(value: str) -> bytes:
    return f'{{"messageQueueTable":{{{KEY}:{value}}}}}'.encode()


def test_members_are_asked_for_their_offsets(bench: Bench) -> None:
    """What cannot be an offset is left out, and the others are told."""
    bench.join(1).offsets = offsets("7")
    bench.join(2).offsets = offsets("1e999")
    bench.join(3).says = RequestTimeout("late")
    answer = run(bench.reset.handle_status(None, request(223, **STATUS)))
    assert answer.code == 0
    assert b'"c1"' in bytes(answer.body)
    assert b"7" in bytes(answer.body)
    assert b'"c2"' not in bytes(answer.body)
    assert bench.reset.asking == 0


def test_a_member_that_is_named_and_not_there_leaves_the_table_empty(bench: Bench) -> None:
    """As RocketMQ 4.9.7's broker; a group without members is refused."""
    named = request(223, **STATUS, clientAddr="nobody")
    assert run(bench.reset.handle_status(None, named)).code == 1
    bench.join().offsets = offsets("7")
    answer = run(bench.reset.handle_status(None, named))
    assert (answer.code, loads(answer.body)) == (0, {"consumerTable": {}})


def test_only_so_many_groups_are_asked_at_a_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = bench.join()
    member.offsets = offsets("7")
    monkeypatch.setattr(reset, "ASKED_GROUPS_MAX", smaller(reset.ASKED_GROUPS_MAX, 0))
    assert run(bench.reset.handle_status(None, request(223, **STATUS))).code == 2
    assert member.asked == []


def test_an_answer_of_members_has_an_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.join().offsets = offsets("7")
    monkeypatch.setattr(reset, "ANSWER_BYTES_MAX", smaller(reset.ANSWER_BYTES_MAX, 10))
    answer = run(bench.reset.handle_status(None, request(223, **STATUS)))
    assert (answer.code, bytes(answer.body)) == (1, b"")


def test_no_setting_is_changed_and_no_key_is_shown(bench: Bench) -> None:
    def change(body: bytes) -> tuple[int, str]:
        answer = bench.runtime.handle_update(None, request(25, body))
        return answer.code, answer.remark or ""

    assert change(b"deleteWhen=05\n")[0] == 16
    assert "deleteWhen" in change(b"deleteWhen=05\n")[1]
    assert change(b"flushDelayOffsetInterval=5000\n")[0] == 16, "RocketMQ's"
    assert change(b"noSuchKey=1\n") == (1, "no such setting: noSuchKey")
    assert change(b"")[0] == 1
    lines = b"deleteWhen=05\n" * 600
    assert change(lines) == (1, "too large a body"), "a line costs 5 us of the loop"
    shown = bench.runtime.handle_config(None, request(26)).body
    assert b"k" * 40 not in shown
    with planted(BY_TESTS["shared-key-shown"]):
        assert b"k" * 40 in bench.runtime.handle_config(None, request(26)).body


def test_the_settings_that_an_export_reads_are_all_there(bench: Bench) -> None:
    """RocketMQ's `exportConfigs` ends at the first of these that a broker does not name."""
    wanted = (
        "brokerClusterName brokerId brokerName brokerRole fileReservedTime filterServerNums"
        " flushDiskType maxMessageSize messageDelayLevel msgTraceTopicName slaveReadEnable traceOn"
        " traceTopicEnable useTLS autoCreateTopicEnable autoCreateSubscriptionGroup"
    )
    body = bytes(bench.runtime.handle_config(None, request(26)).body).decode()
    assert set(wanted.split()) <= {line.partition("=")[0] for line in body.splitlines()}
    assert "traceOn=true" in body.splitlines()


NOT_HERE = {"putLatency99", "putLatency999", "putMessageFailedTimes"}
"""Names that RocketMQ 4.9.7 has; monitors do without them."""


def test_all_that_monitors_read_is_told(bench: Bench) -> None:
    """RocketMQ's exporter ends without some of the names: it parses most of them as numbers."""
    told = bench.ask_runtime()
    recorded = next(frame for frame in wire("dledger_failover") if frame.answers == 28)
    names = {name for name in msgspec.json.decode(recorded.row["body"])["table"] if "/" not in name}
    assert len(names) > 40
    assert names - told.keys() == NOT_HERE
    for name in names - NOT_HERE:
        if name.endswith("Tps"):
            assert len([float(rate) for rate in told[name].split()]) == 3, name
        elif name.endswith(("Size", "Capacity", "Mills", "Max", "Total", "Buffer", "Timestamp")):
            assert name == "commitLogDirCapacity" or int(told[name]) >= -1, name
    assert told["earliestMessageTimeStamp"] == str(CLOCK_MS - 7_200_000)
    assert told["putMessageDistributeTime"] == "null"
    assert float(told["remainHowManyDataToFlush"].split(" ")[0]) == -1


def test_room_and_pulls_and_delays_are_told(bench: Bench) -> None:
    bench.counts.pulls.found += 6
    bench.counts.pulls.missed += 12
    bench.clock.now_ms += 60_000
    bench.delays.apply(b"[2, 6]")
    bench.delays.apply(b"[17, 29]")
    told = bench.ask_runtime()
    assert told["commitLogDirCapacity"] == "Total : 20.0 GiB, Free : 5.0 GiB."
    assert told["commitLogDiskRatio"] == "0.75"
    rates = {name: told[f"get{name}Tps"] for name in ("Found", "Miss", "Total")}
    sums = [
        float(a) + float(b)
        for a, b in zip(rates["Found"].split(), rates["Miss"].split(), strict=True)
    ]
    assert sums == pytest.approx([float(rate) for rate in rates["Total"].split()])
    assert min(sums) > 0
    assert told["scheduleMessageOffset_3"] == "7,10"
    assert told["scheduleMessageOffset_18"] == "30,30", "never behind what is delivered"
    bench.space = None
    assert bench.ask_runtime()["commitLogDirCapacity"] == "Total : 0 B, Free : 0 B."


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (1_023, "1023 B"),
        (1_024, "1.0 KiB"),
        (5 << 40, "5.0 TiB"),
        (1 << 75, "32768.0 EiB"),
    ],
)
def test_sizes_are_written_as_rocketmq_does(size: int, words: str) -> None:
    assert _readable(size) == words

"""Topics, groups, creation, snapshots: the replicated state and how it comes about."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from broker.config import BrokerConfig
from broker.sends.creation import Creator
from broker.state.kinds import StateKind
from broker.state.snapshot import Snapshot
from broker.state.subscription import SYSTEM_GROUPS, GroupChange, SubscriptionGroupConfig
from broker.state.topic_config import TopicChange, auto_created, topic_name_error
from broker.tables import Tables
from ledgermq.remoting.protocol.bodies import TopicConfig
from ledgermq.remoting.protocol.headers import SendHeader
from ledgermq.runtime.disk import RealDisk
from mutants.patches import BY_TESTS, MUTANTS
from mutants.planting import planted
from store.results import PutStatus
from tests.unit.broker.fakes import ApplyingProposer, FakeClock, FakePublisher, no_wait

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path


def tables(**settings: Any) -> Tables:
    return Tables(BrokerConfig(broker_cluster_name="C", broker_name="b", **settings), FakeClock())


def put_topic(made: Tables, name: str, timestamp: int = 1) -> None:
    change = TopicChange(TopicConfig(topic_name=name), timestamp)
    assert made.state.apply(1, StateKind.TOPIC.value, msgspec.json.encode(change))


class Bench:
    """A creator over tables of its own."""

    def __init__(self, **settings: Any) -> None:
        self.tables = tables(**settings)
        self.proposer = ApplyingProposer(self.tables.state)
        self.publisher = FakePublisher()
        self.spawned: list[Coroutine[Any, Any, object]] = []
        self.resumed: list[tuple[int, str] | None] = []
        self.creator = Creator(
            topics=self.tables.topics,
            groups=self.tables.groups,
            proposer=self.proposer,
            publisher=self.publisher,
            clock=FakeClock(),
            serve=lambda _, coroutine: self.spawned.append(coroutine),
            enter=no_wait,
            is_orderly=self.tables.locks.has_some,
        )

    def send_to(self, topic: str, queues: int = 4) -> tuple[int, str] | None:
        return self.creator.topic_for_send(topic, "TBW102", queues, self.resumed.append, 100)

    def work(self) -> None:
        """Run what was spawned."""

        async def run() -> None:
            while self.spawned:
                await self.spawned.pop(0)

        asyncio.run(run())


# Topics


def test_system_topics_are_those_of_rocketmq() -> None:
    made = tables(trace_topic_enable=True).topics
    queues = {name: config.write_queue_nums for name, config in made.configs().items()}
    assert queues == {
        "SELF_TEST_TOPIC": 1,
        "RMQ_SYS_TRANS_HALF_TOPIC": 1,
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": 1,
        "TRANS_CHECK_MAX_TIME_TOPIC": 1,
        "TBW102": 8,
        "BenchmarkTest": 1024,
        "C": 16,
        "b": 1,
        "OFFSET_MOVED_EVENT": 1,
        "SCHEDULE_TOPIC_XXXX": 18,
        "C_REPLY_TOPIC": 1,
        "RMQ_SYS_TRACE_TOPIC": 1,
    }
    assert made.configs()["TBW102"].perm == 7
    assert all(made.is_system(name) for name in [*queues, "rmq_sys_anything"])
    assert not made.is_system("T")


def test_where_sends_make_no_topics_there_is_no_model_of_them() -> None:
    """RocketMQ's clients know by its missing route that they send to nobody."""
    made = tables(auto_create_topic_enable=False).topics
    assert made.get("TBW102") is None
    assert made.is_system("TBW102")
    made.restore(
        b'{"dataVersion":{"counter":3,"timestamp":9},"topicConfigTable":{"TBW102":{"perm":7,'
        b'"readQueueNums":8,"topicName":"TBW102","writeQueueNums":8},"T":{"topicName":"T"}}}'
    )
    assert made.get("T") is not None
    assert made.get("TBW102") is None, "of a time when sends did make topics"


def test_an_auto_created_topic_inherits_and_is_no_larger_than_its_model() -> None:
    model = tables().topics.get("TBW102")
    config = auto_created("T", model, 4)
    assert config is not None
    assert (config.write_queue_nums, config.read_queue_nums, config.perm) == (4, 4, 6)
    larger = auto_created("T", model, 100)
    assert larger is not None
    assert larger.write_queue_nums == 8
    assert auto_created("T", tables(auto_create_topic_enable=False).topics.get("TBW102"), 4) is None
    assert auto_created("T", None, 4) is None


@pytest.mark.parametrize("topic", ["", "  ", "a b", "a@b", "t" * 128, "topic\n"])
def test_bad_topic_names_are_refused(topic: str) -> None:
    assert topic_name_error(topic) is not None


def test_good_topic_names_are_taken() -> None:
    assert all(topic_name_error(one) is None for one in ("T", "%RETRY%g", "a-b_c|1", "t" * 127))


def test_a_change_moves_the_data_version() -> None:
    made = tables()
    put_topic(made, "T", 77)
    assert (made.topics.data_version.counter, made.topics.data_version.timestamp) == (1, 77)


def test_unknown_and_malformed_records_are_skipped() -> None:
    made = tables()
    assert not made.state.apply(1, "from-the-future", b"{}")
    assert not made.state.apply(2, StateKind.TOPIC.value, b"{broken")


# Groups


def test_a_group_without_settings_gets_the_defaults_where_it_may_be_created() -> None:
    groups = tables().groups
    assert groups.get("g") is None
    assert groups.find("g") == SubscriptionGroupConfig(group_name="g")
    assert groups.find("bad name") is None
    strict = tables(auto_create_subscription_group=False).groups
    assert strict.find("g") is None
    assert strict.find("CID_RMQ_SYS_x") is not None
    assert strict.find("TOOLS_CONSUMER") is not None


def test_groups_of_the_system_may_broadcast_as_rocketmqs() -> None:
    """4.9.7 tells so of all of them (201); a broadcasting tool was refused with 16."""
    groups = tables().groups
    for name in SYSTEM_GROUPS:
        assert groups.get(name) == SubscriptionGroupConfig(group_name=name)


# Creation


def test_sends_to_one_missing_topic_share_a_proposal_and_wait_for_the_routes() -> None:
    bench = Bench()
    assert bench.send_to("T") is None
    assert bench.send_to("T") is None
    assert bench.resumed == []
    bench.work()
    assert bench.resumed == [None, None]
    assert len(bench.proposer.proposed) == 1
    assert bench.publisher.published == 1
    assert bench.tables.topics.get("T") is not None


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PutStatus.NOT_LEADER, 14),
        (PutStatus.FULL, 2),
        (PutStatus.UNKNOWN, 14),
        # Of a message 10 and 12 say that it is stored.
        (PutStatus.FLUSH_TIMEOUT, 14),
        (PutStatus.SLAVE_TIMEOUT, 14),
    ],
)
def test_a_topic_that_cannot_be_created_refuses_its_sends_definitely(
    status: PutStatus, code: int
) -> None:
    bench = Bench()
    bench.proposer.status = status
    bench.send_to("T")
    bench.work()
    answer = bench.resumed[0]
    assert answer is not None
    assert answer[0] == code
    assert "unknown" not in answer[1]
    assert bench.publisher.published == 0


def test_without_a_model_a_missing_topic_stays_missing() -> None:
    bench = Bench(auto_create_topic_enable=False)
    answer = bench.send_to("T")
    assert answer is not None
    assert answer[0] == 17
    assert answer[1].startswith("topic[T] not exist, apply first please!")


def test_a_retry_topic_is_created_for_a_known_group_only() -> None:
    bench = Bench(auto_create_topic_enable=False, auto_create_subscription_group=False)
    answer = bench.creator.direct_retry(SendHeader("p", "%RETRY%g", "", 0, 0, 0, 0, 0))
    assert answer is not None
    assert answer[0] == 26
    assert bench.send_to("%RETRY%TOOLS_CONSUMER") is None
    bench.work()
    created = bench.tables.topics.get("%RETRY%TOOLS_CONSUMER")
    assert created is not None
    assert (created.write_queues, created.config.perm) == (1, 6)


def test_a_consumer_gets_its_group_and_its_retry_topic() -> None:
    bench = Bench()
    group = bench.tables.groups.find("g")
    assert group is not None
    assert bench.creator.misses(group)
    asyncio.run(bench.creator.consumer_group(group))
    assert not bench.creator.misses(group)
    assert [kind for kind, _ in bench.proposer.proposed] == [StateKind.GROUP, StateKind.TOPIC]
    bench.creator.group_for_request(SubscriptionGroupConfig(group_name="h"))
    bench.work()
    assert bench.tables.groups.get("h") is not None


class SlowProposer(ApplyingProposer):
    """Applies in order, some turns after each proposal, as a group does."""

    async def propose(self, kind: str, payload: bytes) -> PutStatus:
        for _ in range(3):
            await asyncio.sleep(0)
        return await super().propose(kind, payload)


def slow_bench() -> Bench:
    bench = Bench()
    bench.creator._proposer = SlowProposer(bench.tables.state)
    return bench


def test_a_group_that_a_tool_sets_up_is_not_made_otherwise_by_its_first_member() -> None:
    """It was: told 0, it had the settings of a group that clients make."""
    bench, wanted = slow_bench(), SubscriptionGroupConfig(group_name="g", retry_max_times=3)

    async def both() -> None:
        changing = asyncio.ensure_future(bench.creator.change_group(wanted))
        await asyncio.sleep(0)
        await bench.creator.consumer_group(SubscriptionGroupConfig(group_name="g"))
        assert await changing is PutStatus.OK

    asyncio.run(both())
    assert bench.tables.groups.get("g") == wanted


def queues_of_a_topic_set_up_amid_a_send() -> int:
    """Return how many queues a topic has that a tool sets up with one while a send makes it."""
    bench = slow_bench()
    wanted = TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1)

    async def both() -> None:
        changing = asyncio.ensure_future(bench.creator.change_topic(wanted))
        await asyncio.sleep(0)
        assert bench.send_to("T") is None
        await bench.spawned.pop()
        assert await changing is PutStatus.OK

    asyncio.run(both())
    made = bench.tables.topics.get("T")
    assert made is not None
    assert bench.resumed == [None]
    return made.config.write_queue_nums


def test_a_topic_that_a_tool_sets_up_is_not_made_otherwise_by_a_send() -> None:
    assert queues_of_a_topic_set_up_amid_a_send() == 1
    with planted(BY_TESTS["topic-made-behind-its-change"]):
        assert queues_of_a_topic_set_up_amid_a_send() > 1


def test_who_sets_a_group_up_again_and_again_does_not_hold_its_members_up() -> None:
    bench, wanted = slow_bench(), SubscriptionGroupConfig(group_name="g", retry_max_times=3)

    async def both() -> None:
        async def change_for_ever() -> None:
            while True:
                await bench.creator.change_group(wanted)

        flood = [asyncio.ensure_future(change_for_ever()) for _ in range(3)]
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await bench.creator.put_group(SubscriptionGroupConfig(group_name="g"))
        for one in flood:
            one.cancel()
        await asyncio.gather(*flood, return_exceptions=True)

    asyncio.run(both())
    assert bench.tables.groups.get("g") == wanted


def test_what_a_tool_could_not_set_up_is_made_by_who_needs_it() -> None:
    bench = slow_bench()
    bench.creator._proposer.status = PutStatus.FULL  # type: ignore[attr-defined]  # of the fake

    async def both() -> None:
        wanted = SubscriptionGroupConfig(group_name="g", retry_max_times=3)
        changing = asyncio.ensure_future(bench.creator.change_group(wanted))
        await asyncio.sleep(0)
        using = asyncio.ensure_future(
            bench.creator.put_group(SubscriptionGroupConfig(group_name="g"))
        )
        assert await changing is PutStatus.FULL
        bench.creator._proposer.status = PutStatus.OK  # type: ignore[attr-defined]  # likewise
        assert await using is PutStatus.OK

    asyncio.run(both())
    assert bench.tables.groups.get("g") == SubscriptionGroupConfig(group_name="g")


def created_at_the_second_try() -> PutStatus:
    """Have the creation of a group be refused, and asked for once more; return how that ended."""
    bench, wanted = Bench(), SubscriptionGroupConfig(group_name="g")

    async def twice() -> PutStatus:
        bench.proposer.status = PutStatus.NOT_LEADER
        assert await bench.creator.put_group(wanted) is PutStatus.NOT_LEADER
        bench.proposer.status = PutStatus.OK
        return await bench.creator.put_group(wanted)

    return asyncio.run(twice())


def test_a_group_whose_creation_failed_is_created_by_the_next_who_needs_it() -> None:
    assert created_at_the_second_try() is PutStatus.OK
    with planted(MUTANTS["failed-creation-remembered"]):
        assert created_at_the_second_try() is PutStatus.NOT_LEADER


# Snapshots


def snapshot(made: Tables, directory: Path) -> Snapshot:
    return Snapshot(str(directory / "config"), made.state, RealDisk())


def fill(made: Tables) -> None:
    put_topic(made, "T")
    change = GroupChange(SubscriptionGroupConfig(group_name="g", retry_max_times=3), 5)
    made.state.apply(2, StateKind.GROUP.value, msgspec.json.encode(change))
    made.state.apply(3, StateKind.OFFSET.value, b'{"T@g":{"0":9}}')


def test_a_snapshot_is_read_back_with_its_index(tmp_path: Path) -> None:
    made = tables()
    fill(made)
    writer = snapshot(made, tmp_path)
    writer.write(writer.capture(41))
    assert writer.capture(41).files == {}
    assert list(writer.capture(42).files) == ["appliedIndex.json"]
    again = tables()
    assert snapshot(again, tmp_path).load() == 41
    assert again.topics.get("T") is not None
    assert again.topics.data_version == made.topics.data_version
    group = again.groups.get("g")
    assert group is not None
    assert group.retry_max_times == 3
    assert again.offsets.query("g", "T", 0) == 9


def test_a_first_start_has_no_snapshot(tmp_path: Path) -> None:
    assert snapshot(tables(), tmp_path).load() == -1
    assert list(tmp_path.iterdir()) == []


def test_the_previous_content_is_kept_and_used_and_then_the_log_is_read_again(
    tmp_path: Path,
) -> None:
    made = tables()
    fill(made)
    writer = snapshot(made, tmp_path)
    writer.write(writer.capture(3))
    made.state.apply(4, StateKind.OFFSET.value, b'{"T@g":{"0":10}}')
    writer.write(writer.capture(4))
    (tmp_path / "config/consumerOffset.json").write_bytes(b"{torn")
    again = tables()
    assert snapshot(again, tmp_path).load() == -1
    assert again.offsets.query("g", "T", 0) == 9


def test_the_files_have_the_shape_of_rocketmq(tmp_path: Path) -> None:
    made = tables()
    fill(made)
    writer = snapshot(made, tmp_path)
    writer.write(writer.capture(3))
    config = tmp_path / "config"
    topics = json.loads((config / "topics.json").read_text())
    assert set(topics) == {"dataVersion", "topicConfigTable"}
    assert topics["topicConfigTable"]["T"] == {
        "order": False,
        "perm": 6,
        "readQueueNums": 16,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "T",
        "topicSysFlag": 0,
        "writeQueueNums": 16,
    }
    groups = json.loads((config / "subscriptionGroup.json").read_text())
    assert groups["subscriptionGroupTable"]["g"]["retryMaxTimes"] == 3
    offsets = json.loads((config / "consumerOffset.json").read_text())
    assert offsets == {"offsetTable": {"T@g": {"0": 9}}}


def test_numeric_keys_without_quotes_are_read_as_java_writes_them(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    text = '{"offsetTable":{"T@g":{0:7,1:8}}}'
    (tmp_path / "config/consumerOffset.json").write_text(text)
    made = tables()
    snapshot(made, tmp_path).load()
    assert made.offsets.query("g", "T", 1) == 8

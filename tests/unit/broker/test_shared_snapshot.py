"""Tables in a directory that RocketMQ may have written to: whose they are, and what is kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from broker.config import BrokerConfig
from broker.delays.progress import DelayProgress
from broker.state.kinds import StateKind
from broker.state.shared_snapshot import SharedSnapshot
from broker.state.subscription import GroupChange, SubscriptionGroupConfig
from broker.state.topic_config import TopicChange
from broker.tables import Tables
from ledgermq.remoting.protocol.bodies import TopicConfig
from ledgermq.remoting.protocol.tolerant_json import loads
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.origins import delivered
from tests.unit.broker.fakes import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

TOPICS = """{
\t"dataVersion":{"counter":53,"timestamp":1795222619004,"stateVersion":2},
\t"topicConfigTable":{
\t\t"orders":{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",
\t\t\t"topicName":"orders","topicSysFlag":0,"writeQueueNums":4,
\t\t\t"attributes":{"+message.type":"FIFO"}},
\t\t"TBW102":{"perm":4,"readQueueNums":2,"topicName":"TBW102","writeQueueNums":2}
\t}
}"""
OFFSETS = '{\n\t"offsetTable":{"orders@g":{0:5,1:4\n\t\t}\n\t}\n}'
GROUPS = """{"dataVersion":{"counter":1,"timestamp":5},"forbiddenTable":{"g":{"orders":1}},
"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":3,"groupSysFlag":7}}}"""
DELAYS = '{\n\t"offsetTable":{1:2,2:1\n\t}\n}'


class World:
    """A broker's tables over the files of one directory."""

    def __init__(
        self,
        directory: Path,
        end_index: int,
        entries: range | None = None,
        *,
        tables: Tables | None = None,
    ) -> None:
        self.directory = directory
        self.tables = tables or Tables(BrokerConfig(broker_cluster_name="C"), FakeClock())
        self.snapshot = SharedSnapshot(
            str(directory), self.tables.state, RealDisk(), self.tables.topics.is_system
        )
        self.index = self.snapshot.load_for(
            end_index, lambda index: entries is None or index in entries
        )

    def apply(self, index: int, kind: StateKind, change: Any) -> None:
        """Hand a record of the log over, unless the files have it."""
        if not self.snapshot.includes(kind.value, index):
            self.tables.state.apply(index, kind.value, msgspec.json.encode(change))

    def offset(self, index: int, value: int, queue_id: int = 0) -> None:
        self.apply(index, StateKind.OFFSET, {"orders@g": {queue_id: value}})

    def topic(self, index: int, name: str, queues: int) -> None:
        config = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
        self.apply(index, StateKind.TOPIC, TopicChange(config, 1))

    def save(self, applied_index: int) -> None:
        self.snapshot.write(self.snapshot.capture(applied_index))

    def file(self, name: str) -> Any:
        return loads((self.directory / name).read_bytes())


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    (tmp_path / "topics.json").write_text(TOPICS)
    (tmp_path / "consumerOffset.json").write_text(OFFSETS)
    (tmp_path / "subscriptionGroup.json").write_text(GROUPS)
    (tmp_path / "delayOffset.json").write_text(DELAYS)
    return tmp_path


def test_what_rocketmq_wrote_is_taken_and_the_log_does_not_overrule_it(foreign: Path) -> None:
    world = World(foreign, 1000)
    assert world.index == 1000, "nothing before the end of the log is read again"
    assert world.tables.offsets.query("g", "orders", 1) == 4
    topic = world.tables.topics.get("orders")
    assert topic is not None
    assert topic.write_queues == 4
    group = world.tables.groups.get("g")
    assert group is not None
    assert group.retry_max_times == 3
    world.offset(900, 1)
    assert world.tables.offsets.query("g", "orders", 0) == 5
    world.offset(1100, 6)
    assert world.tables.offsets.query("g", "orders", 0) == 6


def test_what_we_do_not_know_is_written_again(foreign: Path) -> None:
    world = World(foreign, 1000)
    world.topic(1100, "orders", 8)
    world.offset(1150, 9)
    world.apply(1200, StateKind.GROUP, GroupChange(SubscriptionGroupConfig(group_name="g"), 1))
    world.save(1200)
    topics = world.file("topics.json")
    assert topics["topicConfigTable"]["orders"]["attributes"] == {"+message.type": "FIFO"}
    assert topics["topicConfigTable"]["orders"]["writeQueueNums"] == 8
    assert topics["topicConfigTable"]["TBW102"]["readQueueNums"] == 2, "as RocketMQ had it"
    assert topics["dataVersion"]["stateVersion"] == 2
    assert topics["dataVersion"]["counter"] == 54
    groups = world.file("subscriptionGroup.json")
    assert groups["forbiddenTable"] == {"g": {"orders": 1}}
    assert groups["subscriptionGroupTable"]["g"]["groupSysFlag"] == 7
    assert groups["subscriptionGroupTable"]["g"]["retryMaxTimes"] == 16
    text = (foreign / "consumerOffset.json").read_text()
    assert "0: 9" in text, "integers as keys are not quoted"
    assert (foreign / "delayOffset.json").read_text() == DELAYS
    assert (foreign / "consumerOffset.json.bak").read_text() == OFFSETS
    again = World(foreign, 1300)
    assert again.index == 1200
    assert again.tables.offsets.query("g", "orders", 0) == 9
    again.topic(1300, "other", 1)
    again.save(1300)
    assert again.file("topics.json")["topicConfigTable"]["orders"]["attributes"]


def test_our_own_files_take_what_follows_them_in_the_log(foreign: Path) -> None:
    first = World(foreign, 1000)
    first.offset(1100, 7)
    first.save(1100)
    second = World(foreign, 1200)
    assert second.index == 1100
    second.offset(1100, 1)  # inside already
    second.offset(1200, 8)
    assert second.tables.offsets.query("g", "orders", 0) == 8


def test_only_the_files_that_rocketmq_wrote_since_are_foreign(foreign: Path) -> None:
    first = World(foreign, 1000)
    first.offset(1100, 7)
    first.topic(1100, "mine", 2)
    first.save(1100)
    (foreign / "consumerOffset.json").write_text(OFFSETS.replace("0:5", "0:50"))
    second = World(foreign, 2000)
    assert second.index == 1100
    second.offset(1500, 8)
    second.topic(1500, "late", 3)
    assert second.tables.offsets.query("g", "orders", 0) == 50
    assert second.tables.topics.get("late") is not None
    assert second.tables.topics.get("mine") is not None
    second.save(1200)  # the log is not dispatched to its end: the foreign file has all of it
    third = World(foreign, 2100)
    third.offset(1900, 8)
    third.offset(2100, 51, 1)
    assert third.tables.offsets.query("g", "orders", 0) == 50
    assert third.tables.offsets.query("g", "orders", 1) == 51


def test_an_unchanged_file_need_not_be_read_up_to(foreign: Path) -> None:
    first = World(foreign, 1000)
    first.save(1000)
    first.save(5000)
    assert first.file("topics.json")["ledgerIndex"] == 1000
    assert World(foreign, 6000).index == 5000


def test_crash_between_a_table_and_the_index_file(foreign: Path) -> None:
    first = World(foreign, 1000)
    first.save(1000)
    index = (foreign / "appliedIndex.json").read_bytes()
    first.offset(1100, 7)
    first.save(1100)
    (foreign / "appliedIndex.json").write_bytes(index)
    second = World(foreign, 1200)
    assert second.index == 1000
    second.offset(1050, 1)
    assert second.tables.offsets.query("g", "orders", 0) == 7, "that file is newer"


def test_a_log_that_lost_its_end_takes_new_records(foreign: Path) -> None:
    first = World(foreign, 1000)
    first.offset(1500, 7)
    first.save(1500)
    second = World(foreign, 1200)
    assert second.index == 1200
    second.save(1200)
    second.offset(1300, 8)
    assert World(foreign, 1300).index == 1200


class Delayed(World):
    """As `World`, with the progress of delayed messages."""

    def __init__(self, directory: Path, end_index: int) -> None:
        self.progress = DelayProgress()
        tables = Tables(BrokerConfig(broker_cluster_name="C"), FakeClock())
        tables.state.add(self.progress)
        super().__init__(directory, end_index, tables=tables)

    def deliver(self, index: int, offset: int) -> None:
        if not self.snapshot.includes(StateKind.DELIVERED, index):
            self.progress.apply(delivered(0, offset))


def check_progress_is_not_ahead_of_a_log_that_lost_its_end(directory: Path) -> None:
    """The copies of 8 and 9 went with the power; the messages that wait are in the log."""
    first = Delayed(directory, 1000)
    assert first.progress.delivered_before(0) == 2, "RocketMQ's"
    first.deliver(1100, 7)
    first.deliver(2000, 9)
    first.save(2000)
    second = Delayed(directory, 1500)
    assert second.index == -1, "all of the log is read"
    second.deliver(1100, 7)
    assert second.progress.delivered_before(0) == 8
    second.save(1500)
    assert Delayed(directory, 1500).progress.delivered_before(0) == 8


def test_progress_is_not_ahead_of_a_log_that_lost_its_end(foreign: Path) -> None:
    check_progress_is_not_ahead_of_a_log_that_lost_its_end(foreign)


def test_progress_that_is_ahead_is_seen(foreign: Path) -> None:
    with planted(BY_TESTS["progress-ahead-of-the-log"]), pytest.raises(AssertionError):
        check_progress_is_not_ahead_of_a_log_that_lost_its_end(foreign)


def test_a_file_of_another_log_takes_all_records_of_this_one(foreign: Path) -> None:
    first = World(foreign, 1000)
    first.offset(1100, 7)
    first.save(1100)
    assert not first.tables.offsets.is_ahead
    second = World(foreign, 1200, entries=range(0, 1200, 300))
    assert second.index == -1
    assert second.tables.offsets.is_ahead, "of what the log was written over"
    second.offset(900, 1)
    assert second.tables.offsets.query("g", "orders", 0) == 1
    second.save(1200)
    assert World(foreign, 1200).index == 1200


@pytest.mark.parametrize("broken", [b"", b"  ", b"{", b"\xff\xfe", None])
def test_the_backup_stands_in(foreign: Path, broken: bytes | None) -> None:
    first = World(foreign, 1000)
    first.offset(1100, 7)
    first.save(1100)
    first.offset(1200, 8)
    first.save(1200)
    path = foreign / "consumerOffset.json"
    if broken is None:
        path.unlink()
    else:
        path.write_bytes(broken)
    second = World(foreign, 1200)
    assert second.index == 1100
    assert second.tables.offsets.query("g", "orders", 0) == 7
    second.offset(1200, 8)
    assert second.tables.offsets.query("g", "orders", 0) == 8


def test_without_any_readable_file_the_whole_log_is_read(foreign: Path) -> None:
    World(foreign, 1000).save(1000)
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (foreign / name).write_bytes(b"{")
    assert World(foreign, 1000).index == -1


def test_a_mark_of_the_byte_order_is_read_over_as_by_rocketmq(foreign: Path) -> None:
    (foreign / "topics.json").write_bytes(b"\xef\xbb\xbf" + TOPICS.encode())
    assert World(foreign, 1000).tables.topics.get("orders") is not None


def test_members_that_an_operator_left_out_are_empty_as_for_rocketmq(foreign: Path) -> None:
    (foreign / "topics.json").write_text(TOPICS.replace('"dataVersion"', '"another"'))
    (foreign / "subscriptionGroup.json").write_text("{}")
    (foreign / "consumerOffset.json").write_text('{"offsetTable":null}')
    world = World(foreign, 1000)
    assert world.index == 1000
    assert world.tables.topics.get("orders") is not None
    assert world.tables.groups.get("g") is None
    assert not world.tables.offsets.applied_keys()
    world.save(1000)
    assert World(foreign, 1000).tables.topics.get("orders") is not None


@pytest.mark.parametrize("backup", [b"{", b"\0" * 9, None])
def test_a_table_that_rocketmq_left_unreadable_is_not_written_over(
    foreign: Path, backup: bytes | None
) -> None:
    """Nothing in the log tells what it said."""
    (foreign / "subscriptionGroup.json").write_bytes(b"\0" * 40)
    if backup is not None:
        (foreign / "subscriptionGroup.json.bak").write_bytes(backup)
    with pytest.raises(FatalError, match=r"subscriptionGroup.json cannot be read.*from a copy"):
        World(foreign, 1000)
    (foreign / "subscriptionGroup.json.bak").write_text(GROUPS)
    assert World(foreign, 1000).tables.groups.get("g") is not None
    for name in ("subscriptionGroup.json", "subscriptionGroup.json.bak"):
        (foreign / name).unlink()
    assert World(foreign, 1000).index == 1000


def test_a_table_that_rocketmq_left_unreadable_behind_us_is_not_written_over(foreign: Path) -> None:
    """What the log has of it is from before RocketMQ had the directory again."""
    World(foreign, 1000).save(1000)
    assert World(foreign, 1000).index == 1000
    for name in ("subscriptionGroup.json", "subscriptionGroup.json.bak"):
        (foreign / name).write_bytes(b"\0" * 40)
    assert World(foreign, 1000).index == -1, "all of it is in the log"
    (foreign / "consumerOffset.json").write_text(OFFSETS)
    with pytest.raises(FatalError, match=r"subscriptionGroup.json cannot be read"):
        World(foreign, 1000)
    with planted(BY_TESTS["unreadable-table-behind-us-made-of-the-log"]):
        assert World(foreign, 1000).index == -1
    for name in ("subscriptionGroup.json", "subscriptionGroup.json.bak"):
        (foreign / name).unlink()
    assert World(foreign, 1000).index == -1


def test_an_index_that_cannot_be_read_tells_nothing(foreign: Path) -> None:
    World(foreign, 1000).save(1000)
    (foreign / "appliedIndex.json").write_bytes(b"\xff")
    assert World(foreign, 2000).index == 1000


def test_a_new_directory_begins_with_nothing(tmp_path: Path) -> None:
    world = World(tmp_path / "config", -1)
    assert world.index == -1
    world.topic(50, "t", 2)
    world.save(60)
    assert json.loads((tmp_path / "config/topics.json").read_text())["ledgerIndex"] == 60
    assert World(tmp_path / "config", 60).tables.topics.get("t") is not None

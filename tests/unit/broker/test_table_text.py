"""Large tables are encoded in slices, to the same text, while entries go on changing them."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import pytest

from broker.limits import GROUPS_MAX
from broker.state import consumer_offset, queue_lock, subscription, topic_config
from broker.state.consumer_offset import ConsumerOffsetTable
from broker.state.queue_lock import LockChange, QueueLockTable
from broker.state.subscription import SubscriptionGroupConfig, SubscriptionGroupTable
from broker.state.topic_config import TopicTable
from ledgermq.remoting.protocol.bodies import QueueKey, TopicConfig
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.broker.test_state import snapshot, tables

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from broker.state.snapshot import Capture

SLICE_MS_MAX = 20


def topics(count: int) -> TopicTable:
    table = TopicTable([TopicConfig(topic_name="system")], 1)
    for number in range(count):
        table._put(TopicConfig(topic_name=f"T{number}"))
    return table


def groups(count: int) -> SubscriptionGroupTable:
    table = SubscriptionGroupTable(1)
    for number in range(count):
        table._groups[f"g{number}"] = SubscriptionGroupConfig(group_name=f"g{number}")
    return table


def offsets(count: int) -> ConsumerOffsetTable:
    table = ConsumerOffsetTable()
    for number in range(count):
        table._applied.setdefault(f"T@g{number // 3}", {})[number % 3] = number
    return table


def locks(count: int) -> QueueLockTable:
    table = QueueLockTable(lambda: 0)
    queues = [QueueKey("", number, "T") for number in range(count)]
    for number in range(0, count, 100):
        change = LockChange("g", "c", queues[number : number + 100])
        table.apply_lock(msgspec.json.encode(change), 0)
    return table


def whole(table: object) -> bytes:
    """Return what a snapshot was when it was made at once."""
    if isinstance(table, TopicTable):
        rows = {name: c for name, c in table.configs().items() if name != "system"}
        text: object = topic_config._Snapshot(table.data_version, rows)
    elif isinstance(table, SubscriptionGroupTable):
        text = subscription._Snapshot(table.data_version, table._groups)
    elif isinstance(table, ConsumerOffsetTable):
        text = consumer_offset._Snapshot(table._applied)
    else:
        assert isinstance(table, QueueLockTable)
        text = queue_lock._saved(list(table._leases.items()))
    return msgspec.json.format(msgspec.json.encode(text), indent=8)


MAKERS = [topics, groups, offsets, locks]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1_000, 3_217])
def test_slices_make_the_same_text(make: Callable[[int], TopicTable], count: int) -> None:
    table = make(count)
    parts = list(table.snapshot_steps())
    assert b"".join(parts) == whole(table) == table.snapshot()
    assert len(parts) > 1 or count < 3_217


def slowest_ms(steps: Iterator[bytes]) -> float:
    """Return the processor time of the slowest slices, but for two that may be the collector's."""
    times = [time.process_time()]
    times += [time.process_time() for _ in steps]
    return sorted(1000 * (after - before) for before, after in pairwise(times))[-3]


@pytest.mark.parametrize(
    ("make", "count"), [(topics, 40_000), (groups, GROUPS_MAX), (offsets, 300_000), (locks, 50_000)]
)
def test_no_slice_of_a_full_table_takes_long(make: Callable[[int], TopicTable], count: int) -> None:
    assert slowest_ms(make(count).snapshot_steps()) < SLICE_MS_MAX


def test_without_that_a_table_is_one_slice() -> None:
    with planted(BY_TESTS["tables-encoded-at-once"]):
        assert len(list(locks(50_000).snapshot_steps())) == 1


def finish(steps: Generator[None, None, Capture]) -> Capture:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def test_what_is_applied_between_slices_is_captured_again(tmp_path: Path) -> None:
    made = tables()
    state, saved = made.state, snapshot(made, tmp_path)
    for number in range(4_000):
        state.apply(number, "offset", b'{"T@g%d":{"0":1}}' % number)
    steps = saved.capture_steps(3_999)
    for number in range(3):
        next(steps)
        state.apply(4_000 + number, "offset", b'{"T@g3999":{"0":7},"T@new%d":{"0":9}}' % number)
    capture = finish(steps)
    assert capture.applied_index == 3_999
    text = json.loads(b"".join(capture.files["consumerOffset.json"]))["offsetTable"]
    assert len(text) == 4_000
    assert text["T@g3999"]["0"] == 1, "as of the index"
    saved.write(capture)
    assert "consumerOffset.json" in saved.capture(4_002).files

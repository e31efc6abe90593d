"""What has to change in a slave's tables so that they say what its master's do. Pure.

Changes are records of state, as the log has them, so that the tables take them the same way. What
the master no longer has goes when it was missing twice in a row. What is behind ours moves back
when the next answer, which was asked for later, is behind what we had then as well: between an
answer and now, the log may have brought what is newer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from broker.limits import STATE_ENTRY_BYTES_MAX
from broker.state.consumer_offset import room_of
from broker.state.kinds import StateKind
from broker.state.subscription import SYSTEM_GROUPS, GroupChange, GroupRemoval
from broker.state.topic_config import TopicChange, TopicRemoval

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from broker.delays.progress import DelayProgress
    from broker.slave_sync.told import Told
    from broker.state.consumer_offset import ConsumerOffsetTable, OffsetMap
    from broker.state.subscription import SubscriptionGroupTable
    from broker.state.topic_config import TopicTable
    from ledgermq.remoting.protocol.bodies import TopicConfig

Change = tuple[StateKind, bytes]
Step = Change | None
"""None: so many rows were looked at, and nothing changes."""
ROWS_PER_STEP = 500
_ROW_BYTES = 48


class SlaveTables(NamedTuple):
    """The tables of this broker that follow those of its master."""

    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsetTable
    delays: DelayProgress


class Changes:
    """Compares the tables of a slave with what its master tells, round by round."""

    def __init__(self, tables: SlaveTables) -> None:
        self._tables = tables
        self._missing: frozenset[str] = frozenset()
        self._missing_groups: frozenset[str] = frozenset()
        self._ahead: dict[tuple[str, int], int] = {}
        """What we had of those offsets that were behind it when they were told last."""

    def of_names(self, told: Told, now_ms: int) -> Iterator[Step]:
        """Return what changes in topics and groups, step by step."""
        yield from self._of_topics(told.topics, now_ms)
        groups = self._tables.groups
        for number, (group, config) in enumerate(told.groups.items(), 1):
            if number % ROWS_PER_STEP == 0:
                yield None
            if groups.get(group) != config:
                yield StateKind.GROUP, msgspec.json.encode(GroupChange(config, now_ms))
        mine = {one.group_name for one in groups.configs()}
        missing = frozenset(mine - told.groups.keys() - set(SYSTEM_GROUPS))
        for group in sorted(missing & self._missing_groups):
            yield StateKind.FORGET_GROUP, msgspec.json.encode(GroupRemoval(group, now_ms))
        self._missing_groups = missing

    def _of_topics(self, told: Mapping[str, TopicConfig], now_ms: int) -> Iterator[Step]:
        topics = self._tables.topics
        for number, (name, config) in enumerate(told.items(), 1):
            if number % ROWS_PER_STEP == 0:
                yield None
            entry = topics.get(name)
            if not topics.is_of_settings(name) and (entry is None or entry.config != config):
                yield StateKind.TOPIC, msgspec.json.encode(TopicChange(config, now_ms))
        mine = {name for name in topics.entries if not topics.is_system(name)}
        missing = frozenset(mine - told.keys())
        for name in sorted(missing & self._missing):
            yield StateKind.FORGET_TOPIC, msgspec.json.encode(TopicRemoval(name, now_ms))
        self._missing = missing

    def of_progress(self, told: Told) -> Iterator[Step]:
        """Return what changes in offsets and delays, of which the log must have come so far."""
        for queue_id, offset in told.delays.items():
            if offset > self._tables.delays.delivered_before(queue_id):
                yield StateKind.DELIVERED, msgspec.json.encode((queue_id, offset - 1))
        for rows in self._of_offsets(told.offsets):
            yield (StateKind.OFFSET, msgspec.json.encode(rows)) if rows else None

    def _of_offsets(self, told: OffsetMap) -> Iterator[OffsetMap]:
        """Return what changes, or nothing where so many rows were looked at."""
        offsets = self._tables.offsets
        rows: OffsetMap = {}
        ahead: dict[tuple[str, int], int] = {}
        size_bytes = looked_at = 0
        for key, queues in told.items():
            looked_at += 1 + len(queues)
            if looked_at >= ROWS_PER_STEP:
                looked_at = 0
                yield {}
            for queue_id, offset in queues.items():
                mine = offsets.applied_offset(key, queue_id)
                if mine is not None and offset < mine:
                    ahead[key, queue_id] = mine
                    if offset >= self._ahead.get((key, queue_id), offset):
                        continue
                if mine == offset or offset < 0:  # as RocketMQ reads it, that is none
                    continue
                rows.setdefault(key, {})[queue_id] = offset
                size_bytes += _ROW_BYTES + len(key)
            if size_bytes > STATE_ENTRY_BYTES_MAX // 2:
                yield rows
                rows, size_bytes = {}, 0
        if rows:
            yield rows
        self._ahead = ahead

    def offsets_room_steps(self, told: Told) -> Generator[None, None, int]:
        """Return what all offsets would take with those that are told: none goes that is not."""
        offsets = self._tables.offsets
        more = looked_at = 0
        for key, queues in told.offsets.items():
            looked_at += 1 + len(queues)
            if looked_at >= ROWS_PER_STEP:
                looked_at = 0
                yield
            is_new = [
                offsets.applied_offset(key, queue_id) is None
                and offsets.pending_offset(key, queue_id) is None
                for queue_id in queues
            ]
            more += room_of(key) * sum(is_new)
        return offsets.room.used + more

"""Has offsets removed that nobody can read any more: through the log, so on all replicas alike.

These are offsets of topics that do not exist, of queues that their topic does not have, and of
groups that do not exist and have no members. A topic that is made anew, or gets queues back, goes
on where it was, and so do its groups: as long as messages of a queue are left, so are their
offsets. The leader proposes to remove an offset that it has found twice, with a whole walk over the
table in between. A walk goes on a little at every tick.

A broker on its own leaves what it begins with. RocketMQ may have written it, which keeps offsets of
groups that are in no table, and so do those who lost a table of topics or groups: they come back.
What is deleted later was there, and its offsets go.
Source: RocketMQ ConsumerOffsetManager.scanUnsubscribedTopic, called by nobody in 4.9.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Final

from broker.leader.service import LeaderService
from broker.state.consumer_offset import split_removal
from broker.state.kinds import StateKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.state.replicated_state import StateLog
    from broker.tables import Tables
    from store.results import PutStatus

_log = logging.getLogger(__name__)

TICK_MS: Final = 1_000
OFFSETS_PER_TICK: Final = 5_000
ENTRIES_PER_WALK: Final = 10
"""The next walks find what is left."""

_Found = tuple[str, list[int]]


class OffsetCleaner(LeaderService):
    """Walks over the offsets of one broker.

    Args:
        leaves_first: whether what is there when it begins stays, until its topic or its group is
            deleted.
        holds: whether a queue has messages, by topic and queue id.
    """

    name: ClassVar = "offsets without a reader"
    period_ms: ClassVar = TICK_MS

    def __init__(
        self,
        tables: Tables,
        log: StateLog,
        *,
        leaves_first: bool = False,
        holds: Callable[[str, int], bool] = lambda _topic, _queue_id: False,
    ) -> None:
        self._tables = tables
        self._log = log
        self._holds = holds
        self._leaves_first = leaves_first
        self._left: frozenset[str] = frozenset()
        self._there: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()
        """Topics and groups when it began."""
        self._walk: Iterator[tuple[str, list[int]]] = iter(())
        self._found: dict[str, list[int]] = {}
        self._found_before: dict[str, list[int]] = {}

    def start(self, term: int) -> None:
        """Note what is there, if that is to stay."""
        del term
        if self._leaves_first:
            tables = self._tables
            self._left = tables.offsets.applied_keys()
            groups = frozenset(config.group_name for config in tables.groups.configs())
            self._there = frozenset(tables.topics.entries), groups

    def stop(self) -> None:
        """Forget what was found: the next leader walks on its own."""
        self._walk, self._found, self._found_before = iter(()), {}, {}

    def tick(self) -> None:
        """Look at some offsets more."""
        seen = 0
        while seen < OFFSETS_PER_TICK:
            item = next(self._walk, None)
            if item is None:
                self._end_walk()
                return
            key, queue_ids = item
            seen += 1 + len(queue_ids)
            topic, _, group = key.rpartition("@")
            if key in self._left and not self._was_deleted(topic, group):
                continue
            useless = self._useless(topic, group, queue_ids)
            if useless:
                # By its own name: one without @, which no broker writes, is removed, too.
                self._found[key] = useless

    def _was_deleted(self, topic: str, group: str) -> bool:
        """Tell whether a topic or a group is gone that was there when this began."""
        topics, groups = self._there
        tables = self._tables
        is_topic_gone = topic in topics and tables.topics.get(topic) is None
        return is_topic_gone or (group in groups and tables.groups.get(group) is None)

    def _useless(self, topic: str, group: str, queue_ids: list[int]) -> list[int]:
        """Return the queue ids under which nobody can commit or ask."""
        tables = self._tables
        entry = tables.topics.get(topic)
        if entry is None and tables.topics.is_system(topic):
            return []  # of RocketMQ, which may have written the table
        if not self._exists(group):
            return queue_ids
        gone = queue_ids
        if entry is not None:
            gone = [queue_id for queue_id in queue_ids if not 0 <= queue_id < entry.queues]
        return [queue_id for queue_id in gone if not self._holds(topic, queue_id)]

    def _exists(self, group: str) -> bool:
        tables = self._tables
        return tables.groups.get(group) is not None or tables.consumers.get(group) is not None

    def _end_walk(self) -> None:
        """Remove what was found in two walks, and begin the next."""
        gone: dict[str, list[int]] = {}
        for key, queue_ids in self._found.items():
            before = set(self._found_before.get(key, ()))
            ids = [queue_id for queue_id in queue_ids if queue_id in before]
            # A long walk found it some time ago: it may be somebody's by now.
            topic, _, group = key.rpartition("@")
            if ids and (ids := self._useless(topic, group, ids)):
                gone[key] = ids
        if gone:
            _log.info("event=offsets_without_a_reader keys=%d action=remove", len(gone))
        for payload in islice(split_removal(gone), ENTRIES_PER_WALK):
            self._log.propose_state(StateKind.FORGET_OFFSETS.value, payload, _settled)
        self._found_before, self._found = self._found, {}
        self._walk = self._tables.offsets.applied()


def _settled(status: PutStatus) -> None:
    """Whatever became of it: what is still there is found again."""
    del status

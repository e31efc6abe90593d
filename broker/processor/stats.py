"""What tools ask about topics and groups: 202, 208, 300, 303, 317, 343. Looks only.

Where queues end and when their messages were stored belongs to the leader, as for 29 to 32. A
message that is damaged on this disk has no time here: 0, as for a queue without messages.
Source: spec/wire.md 3.9; RocketMQ AdminBrokerProcessor.getTopicStatsInfo, getConsumeStats,
queryTopicConsumeByWho, queryConsumeTimeSpan, fetchAllConsumeStatsInBroker 4.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from broker.answers import shown
from broker.limits import ANSWER_BYTES_MAX, ANSWER_ROWS_MAX, WALKS_WAITING_MAX
from broker.state.consumer_offset import OFFSET_MAX, OFFSET_MIN
from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.administration import (
    AllConsumeStats,
    AllConsumeStatsHeader,
    ConsumedOffsets,
    ConsumeStats,
    ConsumeStatsHeader,
    GroupHeader,
    GroupList,
    QueueOffsets,
    QueueTimeSpan,
    TimeSpanHeader,
    TimeSpans,
    TopicHeader,
    TopicStats,
    joined_map,
    queue_member,
)
from ledgermq.remoting.protocol.bodies import (
    QueueKey,
    TopicList,
    encode_body,
)
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.headers import decode_header
from ledgermq.remoting.transport.requests import ServedBy, serves

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from broker.config import BrokerConfig
    from broker.state.topic_config import TopicEntry
    from broker.stats.counts import TrafficCounts
    from broker.stats.walks import Walks
    from broker.tables import Tables
    from ledgermq.runtime.clock import Clock

_END: Final = b"}}"
"""What closes the table of a topic without queues, and what it is in."""
_LIMITS: Final = (ANSWER_ROWS_MAX, ANSWER_BYTES_MAX, WALKS_WAITING_MAX)


class Row(NamedTuple):
    """A queue of a group: how far the group is behind, and what is told of it, as text."""

    topic: str
    behind: int
    text: bytes


class StatsStore(Protocol):
    """What statistics need of the store."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return one past the last queue offset, 0 for no queue."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset held."""

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when a message was stored in milliseconds, -1 if there is none."""


class StatsProcessor:
    """Answers questions about topics and groups of one broker."""

    def __init__(
        self,
        tables: Tables,
        store: StatsStore,
        config: BrokerConfig,
        clock: Clock,
        counts: TrafficCounts,
        walks: Walks,
    ) -> None:
        self._tables = tables
        self._store = store
        self._name = config.registered_name
        self._addr = config.broker_addr
        self._clock = clock
        self._counts = counts
        self._walks = walks

    @serves(
        RequestCode.GET_TOPIC_STATS_INFO,
        what="limits of a topic's queues, and when they got their last message",
        header=TopicHeader,
        limits=_LIMITS,
        served_by=ServedBy.LEADER,
    )
    async def handle_topic(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_TOPIC_STATS_INFO (202)."""
        topic = decode_header(request, TopicHeader).topic
        entry = self._tables.topics.get(topic)
        if entry is None:
            return _no_topic(request, topic)
        return await self._walks.answer(
            request,
            (self._limits_of(topic, queue_id) for queue_id in range(entry.queues)),
            lambda rows: encode_body(TopicStats(offset_table=joined_map(rows))),
            of_leader=True,
        )

    @serves(
        RequestCode.GET_CONSUME_STATS,
        what="where a group is in its queues",
        header=ConsumeStatsHeader,
        limits=_LIMITS,
        served_by=ServedBy.LEADER,
    )
    async def handle_group(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_CONSUME_STATS (208)."""
        header = decode_header(request, ConsumeStatsHeader)
        group = header.consumer_group
        named = [name for name in (header.topic, *header.topic_list.split(";")) if name]
        return await self._walks.answer(
            request,
            self._rows_of_group(group, set(named)),
            lambda rows: encode_body(
                self._stats_of(
                    group, dict.fromkeys(row.topic for row in rows), (row.text for row in rows)
                )
            ),
            of_leader=True,
        )

    @serves(
        RequestCode.GET_BROKER_CONSUME_STATS,
        what="where all groups are in their queues",
        header=AllConsumeStatsHeader,
        limits=_LIMITS,
        served_by=ServedBy.LEADER,
    )
    async def handle_all_groups(
        self, _connection: object, request: RemotingCommand
    ) -> RemotingCommand:
        """Take GET_BROKER_CONSUME_STATS (317)."""
        ordered = decode_header(request, AllConsumeStatsHeader).is_order
        return await self._walks.answer(
            request, self._rows_of_all(ordered), self._all_stats, of_leader=True
        )

    @serves(
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        what="groups that consume a topic, or have",
        header=TopicHeader,
        limits=_LIMITS,
    )
    async def handle_groups_of_topic(
        self, _connection: object, request: RemotingCommand
    ) -> RemotingCommand:
        """Take QUERY_TOPIC_CONSUME_BY_WHO (300)."""
        topic = decode_header(request, TopicHeader).topic

        def steps() -> Iterator[str | None]:
            for group in self._tables.consumers.groups():
                yield group.name if topic in group.subscriptions else None
            for one, name in self._tables.offsets.readers():
                yield name if one == topic else None

        return await self._walks.answer(
            request, steps(), lambda names: encode_body(GroupList(group_list=_each_once(names)))
        )

    @serves(
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        what="topics in which a group has offsets",
        header=GroupHeader,
        limits=_LIMITS,
    )
    async def handle_topics_of_group(
        self, _connection: object, request: RemotingCommand
    ) -> RemotingCommand:
        """Take QUERY_TOPICS_BY_CONSUMER (343)."""
        group = decode_header(request, GroupHeader).group
        return await self._walks.answer(
            request,
            (topic if name == group else None for topic, name in self._tables.offsets.readers()),
            lambda names: encode_body(TopicList(topic_list=_each_once(names))),
        )

    @serves(
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        what="times of a topic's messages, and of those that a group is at",
        header=TimeSpanHeader,
        limits=_LIMITS,
        served_by=ServedBy.LEADER,
    )
    async def handle_time_span(
        self, _connection: object, request: RemotingCommand
    ) -> RemotingCommand:
        """Take QUERY_CONSUME_TIME_SPAN (303)."""
        header = decode_header(request, TimeSpanHeader)
        entry = self._tables.topics.get(header.topic)
        if entry is None:
            return _no_topic(request, header.topic)
        return await self._walks.answer(
            request,
            (self._span_of(header, queue_id) for queue_id in range(entry.queues)),
            lambda spans: encode_body(TimeSpans(consume_time_span_set=spans)),
            of_leader=True,
        )

    # Rows

    def _limits_of(self, topic: str, queue_id: int) -> bytes:
        end = self._store.max_offset(topic, queue_id)
        offsets = QueueOffsets(
            last_update_timestamp=self._time_of(topic, queue_id, end - 1),
            max_offset=end,
            min_offset=self._store.min_offset(topic, queue_id),
        )
        return queue_member(self._key(topic, queue_id), offsets)

    def _rows_of_group(self, group: str, named: set[str]) -> Iterator[Row | None]:
        if named:
            topics = sorted(named)
        else:
            topics = []
            for topic, name in self._tables.offsets.readers():
                if name == group:
                    topics.append(topic)
                yield None
        for topic in topics:
            entry = self._consumed(group, topic)
            if entry is not None:
                yield from (self._row(group, topic, one) for one in range(entry.read_queues))

    def _rows_of_all(self, ordered: bool) -> Iterator[tuple[str, int, bytes] | None]:  # noqa: FBT001 - the request's
        for topic, group in self._tables.offsets.readers():
            entry = self._consumed(group, topic)
            if entry is None or (ordered and not entry.config.order):
                yield None
            elif self._tables.groups.get(group) is not None:
                # As in RocketMQ, though of one group (208) queues are those that may be read.
                yield from self._part_of_all(group, topic, entry.write_queues)

    def _part_of_all(self, group: str, topic: str, queues: int) -> Iterator[tuple[str, int, bytes]]:
        """Return the text of a topic of a group in the body of 317, and a comma; by queue."""
        empty = encode_body(self._stats_of(group, [topic], ()))
        begin, end = empty[: -len(_END)], _END + b","
        if not queues:
            yield group, 0, empty + b","
        for queue_id in range(queues):
            _, behind, text = self._row(group, topic, queue_id)
            head = b"," if queue_id else begin
            yield group, behind, head + text + (end if queue_id == queues - 1 else b"")

    def _consumed(self, group: str, topic: str) -> TopicEntry | None:
        """Return a topic that exists, unless the group is connected and no longer wants it."""
        live = self._tables.consumers.get(group)
        if live is not None and live.subscriptions and topic not in live.subscriptions:
            return None
        return self._tables.topics.get(topic)

    def _row(self, group: str, topic: str, queue_id: int) -> Row:
        offset = max(0, self._tables.offsets.query(group, topic, queue_id) or 0)
        consumed = ConsumedOffsets(
            broker_offset=self._store.max_offset(topic, queue_id),
            consumer_offset=offset,
            last_timestamp=self._time_of(topic, queue_id, offset - 1),
            pull_offset=offset,
        )
        behind = consumed.broker_offset - offset
        return Row(topic, behind, queue_member(self._key(topic, queue_id), consumed))

    def _span_of(self, header: TimeSpanHeader, queue_id: int) -> QueueTimeSpan:
        topic, store = header.topic, self._store
        first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        offset = max(0, self._tables.offsets.query(header.group, topic, queue_id) or 0)
        begin = self._time_of(topic, queue_id, first)
        waits_since = self._time_of(topic, queue_id, offset) if offset < end else 0
        return QueueTimeSpan(
            consume_time_stamp=self._time_of(topic, queue_id, offset - 1) or begin,
            delay_time=max(0, self._clock.wall_ms() - waits_since) if waits_since else 0,
            max_time_stamp=self._time_of(topic, queue_id, end - 1),
            message_queue=self._key(topic, queue_id),
            min_time_stamp=begin,
        )

    def _time_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when a message was stored, 0 for none."""
        try:
            return max(0, self._store.store_time(topic, queue_id, offset))
        except DamagedEntry:
            return 0

    def _key(self, topic: str, queue_id: int) -> QueueKey:
        return QueueKey(self._name, queue_id, topic)

    # Bodies

    def _stats_of(
        self, group: str, topics: Iterable[str], members: Iterable[bytes]
    ) -> ConsumeStats:
        now_ms = self._clock.monotonic_ms()
        found = [self._counts.of_group(topic, group) for topic in topics]
        tps = sum(series.rates(now_ms)[0].per_second for series in found if series is not None)
        return ConsumeStats(consume_tps=float(tps), offset_table=joined_map(members))

    def _all_stats(self, rows: list[tuple[str, int, bytes]]) -> bytes:
        """Return the body of 317: a table for each topic of each group."""
        found: dict[str, list[bytes]] = {}
        behind = 0
        for group, of_queue, text in rows:
            found.setdefault(group, []).append(text)
            behind += of_queue
        stats = [
            b"{" + msgspec.json.encode(group) + b":[" + b"".join(texts)[:-1] + b"]}"
            for group, texts in found.items()
        ]
        table = msgspec.Raw(b"[" + b",".join(stats) + b"]")
        # A group may commit any int64, and tools cannot read a sum of two that is none.
        total = min(max(behind, OFFSET_MIN), OFFSET_MAX)
        return encode_body(
            AllConsumeStats(broker_addr=self._addr, consume_stats_list=table, total_diff=total)
        )


def _each_once(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _no_topic(request: RemotingCommand, topic: str) -> RemotingCommand:
    remark = f"topic[{shown(topic)}] not exist"
    return make_response(request, ResponseCode.TOPIC_NOT_EXIST, remark)

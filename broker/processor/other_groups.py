"""Offsets of one group by those of others: 308 compares them, 314 copies them.

RocketMQ's tools copy queue by queue, with 208 and 15; what forwards messages between clusters asks
for both at once. A copy is answered once it is applied: nobody commits it a second time.
Source: spec/wire.md 3.9; RocketMQ AdminBrokerProcessor.queryCorrectionOffset, cloneGroupOffset and
ConsumerOffsetManager.queryMinOffsetInAllGroup, which removes the groups that it is to pass over;
ours does not.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from broker.answers import shown
from broker.limits import ANSWER_BYTES_MAX, ANSWER_ROWS_MAX, WALKS_WAITING_MAX
from broker.state.topic_config import RETRY_PREFIX
from ledgermq.remoting.protocol.administration import (
    CloneOffsetsHeader,
    CorrectionHeader,
    CorrectionOffsets,
)
from ledgermq.remoting.protocol.bodies import encode_body
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.headers import decode_header
from ledgermq.remoting.transport.requests import ServedBy, serves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from broker.state.subscription import SubscriptionGroupConfig
    from broker.stats.walks import Walks
    from broker.tables import Tables

    Place = tuple[int, int]

NEVER: Final = (1 << 63) - 1
"""What 308 answers for a queue in which the compared group is behind all others."""
APPLIED_MS: Final = 5_000
"""So long a copy may take to be applied; offsets are proposed once a second."""
_LOOK_MS: Final = 50
_LIMITS: Final = (ANSWER_ROWS_MAX, ANSWER_BYTES_MAX, WALKS_WAITING_MAX)
_FULL: Final = "the table of consumer offsets is full; what was copied before stays"
_LATE: Final = "the copied offsets were not applied in time, outcome unknown"
_LOST: Final = "this broker has lost the leadership meanwhile, outcome unknown"


class QueueStore(Protocol):
    """What is needed of the store."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset held."""


class OtherGroupsProcessor:
    """Answers for one broker.

    ``on_new_group`` has a group created that has no settings yet; False if it may not be now.
    """

    def __init__(
        self,
        tables: Tables,
        store: QueueStore,
        walks: Walks,
        on_new_group: Callable[[SubscriptionGroupConfig], bool],
    ) -> None:
        self._tables = tables
        self._store = store
        self._walks = walks
        self._on_new_group = on_new_group

    @serves(
        RequestCode.QUERY_CORRECTION_OFFSET,
        what="the smallest offset of all groups in each queue, where another is not behind it",
        header=CorrectionHeader,
        limits=_LIMITS,
        served_by=ServedBy.LEADER,
    )
    async def handle_correction(
        self, _connection: object, request: RemotingCommand
    ) -> RemotingCommand:
        """Take QUERY_CORRECTION_OFFSET (308)."""
        header = decode_header(request, CorrectionHeader)
        topic, compared = header.topic, header.compare_group

        def body(places: list[Place]) -> bytes:
            found: dict[int, int] = {}
            for queue_id, offset in places:
                found[queue_id] = min(offset, found.get(queue_id, offset))
            for queue_id, offset in found.items():
                own = self._tables.offsets.query(compared, topic, queue_id)
                if own is not None and 0 <= own < offset:  # a negative one is none
                    found[queue_id] = NEVER
            return encode_body(CorrectionOffsets(correction_offsets=found))

        left_out = set(header.filter_groups.split(","))
        return await self._walks.answer(
            request, self._offsets_in(topic, left_out), body, of_leader=True
        )

    @serves(
        RequestCode.CLONE_GROUP_OFFSET,
        what="give a group the offsets of another",
        header=CloneOffsetsHeader,
        limits=_LIMITS,
        served_by=ServedBy.LEADER,
    )
    async def handle_clone(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take CLONE_GROUP_OFFSET (314)."""
        header = decode_header(request, CloneOffsetsHeader)
        name = header.dest_group
        if self._tables.groups.get(name) is None:
            group = self._tables.groups.find(name)
            if group is None:
                remark = f"Group {shown(name)} not exist!"
                return make_response(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
            if not self._on_new_group(group):
                busy = "too many new consumer groups, try again later"
                return make_response(request, ResponseCode.SYSTEM_BUSY, busy)
        copied: list[tuple[str, int]] = []
        drops = self._tables.offsets.drops
        answer = await self._walks.answer(
            request, self._copied(header, copied, drops), lambda _: b""
        )
        if answer.code != ResponseCode.SUCCESS:
            return answer
        if copied and copied[-1][1] < 0:
            return make_response(request, ResponseCode.SYSTEM_BUSY, _FULL)
        problem = await self._unapplied(name, copied, drops)
        return make_response(request, ResponseCode.SYSTEM_ERROR, problem) if problem else answer

    def _offsets_in(self, topic: str, left_out: set[str]) -> Iterator[Place | None]:
        """Return queue and offset of all groups in a topic; of dropped messages there are none."""
        for one, group in self._tables.offsets.readers():
            if one != topic or group in left_out:
                yield None
                continue
            for queue_id in self._queues(topic):
                offset = self._tables.offsets.query(group, topic, queue_id)
                known = offset is not None and offset >= self._store.min_offset(topic, queue_id)
                yield (queue_id, offset) if known and offset is not None else None

    def _copied(
        self, header: CloneOffsetsHeader, copied: list[tuple[str, int]], drops: int
    ) -> Iterator[tuple[str, int] | None]:
        """Commit the offsets one by one; a negative queue is the one that found no room.

        None any more once the leadership is lost, which may be before this has its turn: nobody
        would drop them, and they would be proposed whenever it came back. ``drops``: how often it
        had been lost when this broker led.
        """
        source, target = header.src_group, header.dest_group
        for topic, group in self._tables.offsets.readers():
            if group != source or not self._is_wanted(header, topic):
                yield None
                continue
            for queue_id in self._queues(topic):
                if self._tables.offsets.drops != drops:
                    return
                offset = self._tables.offsets.query(source, topic, queue_id)
                if offset is not None:
                    kept = self._tables.commits.commit(target, topic, queue_id, offset)
                    copied.append((topic, queue_id if kept else -1))
                    if not kept:
                        return
                yield None

    def _is_wanted(self, header: CloneOffsetsHeader, topic: str) -> bool:
        """Tell whether a topic is copied: not one that a connected source no longer wants."""
        if header.topic not in {"", topic} or topic.startswith(RETRY_PREFIX):
            return False
        source = self._tables.consumers.get(header.src_group)
        is_left = source is not None and source.subscriptions and topic not in source.subscriptions
        return header.offline or not is_left

    def _queues(self, topic: str) -> Iterable[int]:
        entry = self._tables.topics.get(topic)
        return range(0 if entry is None else entry.queues)

    async def _unapplied(self, group: str, copied: list[tuple[str, int]], drops: int) -> str:
        """Wait until nothing that was copied is pending; return why it is not applied, or ""."""
        offsets = self._tables.offsets
        for _ in range(APPLIED_MS // _LOOK_MS):
            if offsets.drops != drops:
                return _LOST  # what is pending no more was dropped
            copied = [
                (topic, queue_id)
                for topic, queue_id in copied
                if offsets.pending_offset(f"{topic}@{group}", queue_id) is not None
            ]
            if not copied:
                return ""
            await asyncio.sleep(_LOOK_MS / 1000)
        return _LATE

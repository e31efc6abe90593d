"""The log as retention sees it: its segments with their age, and how the first ones are dropped.

Both kinds of log drop in the same order, so that a start after a crash between any two steps finds
a sound store: tables and queues are saved, what stands for the beginning is written, the queues
begin where the log will, the files of the log go, then the files of queues and index, which nothing
refers to any more. A start removes the files that such a crash has left over.
Source: spec/disk.md 5.8; docs/adr/0002.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from broker.retention_policy import Segment
from dledger.errors import DamagedEntry
from store.layout import stored_or_zero

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from broker.retention.compaction import Compactor
    from dledger.node import DLedgerNode
    from dledger.replicated_log import ReplicatedLog


ALL_DUE: Final = "no more is due in this round"


class Dropped(NamedTuple):
    """The entries that were dropped, and the reason why no more were."""

    bytes: int
    reason: str


class RetainedLog(Protocol):
    """A log whose beginning can be dropped."""

    def segments(self) -> list[Segment]:
        """Return what it consists of, the oldest first."""
        ...

    async def drop_before(self, position: int) -> Dropped:
        """Let it begin at ``position``, or before where something is not covered on disk."""
        ...


class BodyWalk(Protocol):
    """What the age of segments needs of a log; see `store.ports.Log`."""

    @property
    def committed_position(self) -> int:
        """Where the last committed entry ends."""
        ...

    def walk(
        self, start: int, end: int, limit: int
    ) -> Iterator[tuple[int, bytes | memoryview, int, int]]:
        """Walk bodies; yields (physical offset, chunk, where in it, bytes)."""
        ...


class SegmentAges:
    """The store timestamps of the first messages of segments; each is read once."""

    def __init__(self, log: BodyWalk) -> None:
        self._log = log
        self._stamps: dict[int, int] = {}

    def segments(self, heads: Sequence[int], end: int) -> list[Segment]:
        """Return the segments that begin at ``heads``; ``end``: where the last one ends."""
        starts = set(heads)
        for position in [known for known in self._stamps if known not in starts]:
            del self._stamps[position]
        found: list[Segment] = []
        closed_ms: int | None = None
        for position in reversed(heads):
            found.append(Segment(position, end, closed_ms))
            end = position
            # Where the first message cannot be read, the next one that can is younger.
            closed_ms = self._stamp(position) or closed_ms
        return found[::-1]

    def _stamp(self, position: int) -> int | None:
        stamp = self._stamps.get(position)
        if stamp is None:
            try:
                committed = self._log.committed_position
                for _, chunk, at, _ in self._log.walk(position, committed, 1):
                    stamp = self._stamps[position] = stored_or_zero(chunk[at:])
            except DamagedEntry:
                return None
        return stamp


class RaftLog:
    """The log of one replica: it trims for itself, behind a snapshot (ADR 9)."""

    def __init__(self, node: DLedgerNode, log: ReplicatedLog, compactor: Compactor) -> None:
        self._node = node
        self._compactor = compactor
        self._ages = SegmentAges(log)

    def segments(self) -> list[Segment]:
        """Return the segments that begin with a committed entry."""
        heads = [head.position for head in self._node.trimmer.segment_heads()]
        return self._ages.segments(heads, self._node.end_position)

    async def drop_before(self, position: int) -> Dropped:
        """Let the log begin at ``position``, a start of a segment, as far as a snapshot may."""
        for head in self._node.trimmer.segment_heads():
            if head.position == position:
                # That entry itself stays; it is named since it must be there to stay.
                report = await self._compactor.compact(head.first_index)
                is_done = self._node.first_position >= position
                return Dropped(report["dropped_bytes"], ALL_DUE if is_done else report["reason"])
        return Dropped(0, "the log does not begin a segment there any more")

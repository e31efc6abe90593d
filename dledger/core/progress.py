"""How far one follower is, as its leader sees it.

```
            reply                      reject, silence, broken connection
  PROBE ------------> REPLICATE ------------------------------------------> PROBE
  one message at a    many in flight, bounded in number and bytes,
  time: where do      next_index runs ahead of what is acknowledged
  the logs part?
```

A probe that nobody answers is repeated every ``RETRY_TICKS``; so is a window whose oldest message
nobody acknowledges. That, and nothing else, repairs lost messages.

A follower that needs entries which the leader has no more is sent a snapshot: a chunk is under way,
or a question (see `dledger.core.install`).

Invariant: ``match_index < next_index``. ``match_index`` is the only thing a commit counts.
Source: etcd raft, tracker/progress.go; Raft paper 5.3 (nextIndex, matchIndex).
"""

from collections import deque
from enum import Enum
from typing import Final

from dledger.core.model import NO_INDEX, LogIndex, NodeId, SnapshotId

RETRY_TICKS: Final = 8
"""Ticks without an answer after which a probe is repeated, or a window is given up."""


class Pace(Enum):
    """How a leader sends to one follower."""

    PROBE = "PROBE"
    REPLICATE = "REPLICATE"
    SNAPSHOT = "SNAPSHOT"


PACES: Final[dict[tuple[Pace, Pace], str]] = {
    (Pace.PROBE, Pace.PROBE): "rejected: asks further back; unanswered: asks again",
    (Pace.PROBE, Pace.REPLICATE): "acknowledges an entry: the logs are equal up to there",
    (Pace.REPLICATE, Pace.PROBE): "rejected, silent for too long, or its connection broke",
    (Pace.PROBE, Pace.SNAPSHOT): "rejected: needs entries that are in the log no more",
    (Pace.SNAPSHOT, Pace.SNAPSHOT): "the log was trimmed again: another snapshot",
    (Pace.SNAPSHOT, Pace.REPLICATE): "acknowledges the last entry of the snapshot",
    (Pace.SNAPSHOT, Pace.PROBE): "its connection broke",
}
"""Every legal change of pace, and why it happens."""


class Progress:
    """Replication to one follower."""

    __slots__ = (
        "commit_sent", "contact_tick", "inflight", "inflight_bytes", "match_index", "next_index",
        "node_id", "probing", "round_heard", "sent_tick", "silent", "snapshot", "snapshot_offset",
    )  # fmt: skip

    def __init__(self, node_id: NodeId, next_index: LogIndex, tick: int) -> None:
        self.node_id = node_id
        self.match_index: LogIndex = NO_INDEX
        self.next_index = next_index
        self.probing = True
        self.silent = False
        """A probe went unanswered: do not send entries again until something comes back."""
        self.sent_tick: int | None = None
        """When the probe, or the oldest unacknowledged message, left; None when nothing is out."""
        self.contact_tick = tick
        """When anything was heard of the follower; counts for the leader's check of its quorum."""
        self.round_heard = 0
        """The last round of heartbeats that it answered; what a read waits for."""
        self.commit_sent: LogIndex = NO_INDEX
        self.inflight: deque[tuple[LogIndex, int]] = deque()
        """Last index and size of each message with entries that is not acknowledged, in order."""
        self.inflight_bytes = 0
        self.snapshot: SnapshotId | None = None
        """What it is sent instead of entries; it counts as probing then."""
        self.snapshot_offset = -1
        """How much of the snapshot it has; -1 until it has said so."""

    @property
    def pace(self) -> Pace:
        """How entries are sent to it."""
        if self.snapshot is not None:
            return Pace.SNAPSHOT
        return Pace.PROBE if self.probing else Pace.REPLICATE

    def become_snapshot(self, snapshot: SnapshotId) -> None:
        """Send a snapshot; first goes the question how much of it is there."""
        self.become_probe(snapshot.last_index + 1)
        self.snapshot = snapshot
        self.snapshot_offset = -1

    def become_probe(self, next_index: LogIndex) -> None:
        """Stop streaming; ask at ``next_index`` where the logs part."""
        assert next_index > self.match_index, (next_index, self.match_index)
        self.probing = True
        self.snapshot = None
        self.next_index = next_index
        self.sent_tick = None
        self.inflight.clear()
        self.inflight_bytes = 0

    def become_replicate(self) -> None:
        """Stream from behind the last acknowledged entry."""
        self.probing = False
        self.snapshot = None
        self.silent = False
        self.next_index = self.match_index + 1
        self.sent_tick = None
        self.inflight.clear()
        self.inflight_bytes = 0

    def can_send(self, inflight_max: int, inflight_bytes_max: int) -> bool:
        """Tell whether another message with entries may leave."""
        if self.probing:
            return self.sent_tick is None
        return len(self.inflight) < inflight_max and self.inflight_bytes < inflight_bytes_max

    def on_sent(self, last_index: LogIndex, size_bytes: int, tick: int) -> None:
        """Note that entries up to ``last_index`` left; a probe waits for its answer instead."""
        if self.sent_tick is None:
            self.sent_tick = tick
        if self.probing:
            return
        self.inflight.append((last_index, size_bytes))
        self.inflight_bytes += size_bytes
        self.next_index = last_index + 1

    def on_match(self, match_index: LogIndex, tick: int) -> bool:
        """Take an acknowledgement; return whether it says anything new about the log."""
        advanced = match_index > self.match_index
        if advanced:
            self.match_index = match_index
        self.silent = False
        inflight = self.inflight
        while inflight and inflight[0][0] <= match_index:
            self.inflight_bytes -= inflight.popleft()[1]
        if self.probing:
            self.become_replicate()
        elif advanced:
            self.next_index = max(self.next_index, self.match_index + 1)
            self.sent_tick = tick if inflight else None
        return advanced

    def is_stalled(self, tick: int) -> bool:
        """Tell whether what was sent has gone unanswered for too long."""
        return self.sent_tick is not None and tick - self.sent_tick >= RETRY_TICKS

    def describe(self) -> str:
        """Render for logs and golden files."""
        pace = self.pace.value.lower()
        if self.snapshot is not None:
            return f"{self.node_id} {pace} {self.snapshot.describe()} at={self.snapshot_offset}"
        return f"{self.node_id} {pace} match={self.match_index} next={self.next_index}"

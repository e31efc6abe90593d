"""`Ready`: everything the core wants done, in the order of duty. This is the durability contract.

The core never writes, sends or applies. It collects what must happen; the driver takes it with
`Raft.ready` and works through the fields from top to bottom:

1. ``hard_state``: on disk and synced before anything below, *in every flush mode*. A vote that can
   be forgotten elects two leaders.
2. ``truncate_from``, then ``entries``: written, in this order, before anything below.
3. ``messages``: may leave now. A leader's appends are among them: it replicates in parallel with
   its own sync, since it does not count itself before the sync has returned.
4. ``replies``: may leave when the entries written so far are *held as the flush mode asks*
   (ASYNC_FLUSH: written; SYNC_FLUSH: synced). They say to the receiver "you may count me".
   ``snapshot``, where there is one, is kept aside in step 2, and installed with its last bytes.
5. ``committed``: entries up to here may be applied.
6. ``events``: to be logged.
7. ``reads``: linearizable reads whose leader was still one when they were asked for.

Then `Raft.advance` says that 1 and 2 are done, and `Raft.persisted` how far the log is held as the
flush mode asks; for ASYNC_FLUSH that is the same moment, for SYNC_FLUSH each time a sync returns.
If writing the entries failed for want of space, `Raft.abort` makes the core forget them instead;
then nothing from this `Ready` may leave.

One `Ready` is in flight at a time; what is stepped meanwhile makes the next one (group commit).
"""

from enum import Enum

import msgspec

from dledger.core.configuration import ConfigEntry
from dledger.core.messages import (
    AppendReject,
    AppendReply,
    Message,
    PreVoteReply,
    RecoveringReply,
    VoteReply,
)
from dledger.core.model import HardState, LogIndex, NodeId, Role, Span, Term
from dledger.core.snapshot import StageWork


class EventKind(Enum):
    """What happened, for the log of the process and for a history."""

    ROLE = "role"
    VOTE = "vote"
    VOTE_REFUSED = "vote_refused"
    TRUNCATE = "truncate"
    CONFIG = "config"
    """A configuration takes effect; ``extra`` describes it."""
    SNAPSHOT = "snapshot"
    """A snapshot was taken, or installed; ``extra`` says which."""
    TRANSFER = "transfer"
    """A hand-over of leadership: ``peer`` is the target, ``extra`` says what became of it."""
    FRESH = "fresh"
    """A member came with an empty directory (``peer``), or the sender is fresh no more."""
    PROBE = "probe"
    LOST_QUORUM = "lost_quorum"
    RIVAL = "rival"
    """Another leader of the own term: somebody forgot a vote."""
    BLOCKED = "blocked"
    """This replica may not lead, or may again: ``extra`` has the reason, or that there is none."""
    ABORT = "abort"
    REFUSED = "refused"
    """A message of ``peer`` that cannot be true, ``extra`` says what of it; not one for each."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One rare thing worth a log line; never one per entry."""

    kind: EventKind
    term: Term
    role: Role
    peer: NodeId | None = None
    index: LogIndex = -1
    prev_index: LogIndex = -1
    """Of two indexes the earlier one: see `dledger.recorder` for what each kind puts here."""
    extra: str = ""
    """A word more, without spaces."""


class ReadConfirmed(msgspec.Struct, frozen=True, gc=False):
    """Read batch ``batch`` may be answered by whoever has applied the log up to ``index``."""

    batch: int
    index: LogIndex


Reply = AppendReply | RecoveringReply | AppendReject | VoteReply | PreVoteReply


class Ready(msgspec.Struct, frozen=True, gc=False):
    """Duties in order; see the module."""

    hard_state: HardState | None
    truncate_from: LogIndex | None
    entries: tuple[Span, ...]
    messages: tuple[Message, ...]
    replies: tuple[Reply, ...]
    committed: LogIndex | None
    events: tuple[Event, ...]
    reads: tuple[ReadConfirmed, ...] = ()
    snapshot: StageWork | None = None
    configs: tuple[ConfigEntry, ...] | None = None
    """On disk and synced behind the cut, and before the entries they are."""


def describe_event(event: Event) -> str:
    """Render an event as ``key=value`` words, node not included."""
    words = [f"event={event.kind.value}", f"term={event.term}", f"role={event.role.value}"]
    if event.peer is not None:
        words.append(f"peer={event.peer}")
    if event.index >= 0:
        words.append(f"index={event.index}")
    if event.extra:
        words.append(event.extra)
    return " ".join(words)

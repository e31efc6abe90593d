"""What replicas say to each other: one frozen class a message, and one text for each.

Every message has ``sender``, ``receiver`` and ``term``. The term is the sender's current term, but
for a `PreVoteRequest` and a granted `PreVoteReply`: there it is the term the candidate *would*
take.
The group is not the core's business; the transport adds and checks it.

Source: Raft paper Figure 2; pre-vote from Ongaro's dissertation 9.6; heartbeats apart from appends
(their ``round`` is what linearizable reads will confirm leadership with) from dissertation 6.4.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from dledger.core.configuration import Configuration
from dledger.core.model import LogIndex, NodeId, SnapshotId, Span, Term

NO_ROUND: Final = 0
"""What a `Heartbeat` of no round says; the first round is 1."""


class PreVoteRequest(msgspec.Struct, frozen=True, gc=False):
    """Would you vote for me in ``term``? Changes nothing at the receiver."""

    sender: NodeId
    receiver: NodeId
    term: Term
    last_index: LogIndex
    last_term: Term


class PreVoteReply(msgspec.Struct, frozen=True, gc=False):
    """Answer to a `PreVoteRequest`."""

    sender: NodeId
    receiver: NodeId
    term: Term
    granted: bool


class VoteRequest(msgspec.Struct, frozen=True, gc=False):
    """RequestVote: the sender is a candidate of ``term``; with ``transfer``, at its leader's wish.

    Who still hears a leader ignores the others (dissertation 4.2.3), but not one of those (3.10).
    """

    sender: NodeId
    receiver: NodeId
    term: Term
    last_index: LogIndex
    last_term: Term
    transfer: bool = False


class VoteReply(msgspec.Struct, frozen=True, gc=False):
    """Answer to a `VoteRequest`; leaves only once the vote is on disk."""

    sender: NodeId
    receiver: NodeId
    term: Term
    granted: bool


class Append(msgspec.Struct, frozen=True, gc=False):
    """AppendEntries: what follows entry ``prev_index``. Without a span it only asks."""

    sender: NodeId
    receiver: NodeId
    term: Term
    prev_index: LogIndex
    prev_term: Term
    commit_index: LogIndex
    span: Span | None


class AppendReply(msgspec.Struct, frozen=True, gc=False):
    """The sender holds the leader's log up to ``match_index``, as firmly as the flush mode asks."""

    sender: NodeId
    receiver: NodeId
    term: Term
    match_index: LogIndex


class AppendReject(msgspec.Struct, frozen=True, gc=False):
    """The sender's log has no entry ``prev_index`` of the leader's term.

    The logs can be equal at most up to ``hint_index``, where the sender has ``hint_term``.
    """

    sender: NodeId
    receiver: NodeId
    term: Term
    prev_index: LogIndex
    hint_index: LogIndex
    hint_term: Term
    last_index: LogIndex


class Heartbeat(msgspec.Struct, frozen=True, gc=False):
    """The leader is alive; ``commit_index`` is never beyond what the receiver is known to hold.

    One of round `NO_ROUND` only tells that, between two rounds, and wants no answer.
    """

    sender: NodeId
    receiver: NodeId
    term: Term
    commit_index: LogIndex
    round: int


class HeartbeatReply(msgspec.Struct, frozen=True, gc=False):
    """Answer to a `Heartbeat`, or to any message of an older term: it carries the newer one."""

    sender: NodeId
    receiver: NodeId
    term: Term
    round: int


class TimeoutNow(msgspec.Struct, frozen=True, gc=False):
    """The leader wishes the receiver to lead: campaign at once (dissertation 3.10).

    ``last_index`` is where the leader's log ends. A receiver that ends elsewhere has been asked
    long ago, by a message that was held up, and stays as it is.
    """

    sender: NodeId
    receiver: NodeId
    term: Term
    last_index: LogIndex


class FetchEntries(msgspec.Struct, frozen=True, gc=False):
    """Send me these committed entries: mine are damaged. Any member answers; no term is checked."""

    sender: NodeId
    receiver: NodeId
    term: Term
    first_index: LogIndex
    last_index: LogIndex


class FetchedEntries(msgspec.Struct, frozen=True, gc=False):
    """Answer to a `FetchEntries`: some of them from ``first_index`` on, or None."""

    sender: NodeId
    receiver: NodeId
    term: Term
    first_index: LogIndex
    span: Span | None


class InstallSnapshot(msgspec.Struct, frozen=True, gc=False):
    """A chunk of the snapshot ``id`` at ``offset``; without data it asks how much is there."""

    sender: NodeId
    receiver: NodeId
    term: Term
    id: SnapshotId
    offset: int
    data: bytes | memoryview


class SnapshotReply(msgspec.Struct, frozen=True, gc=False):
    """The sender has the first ``offset`` bytes of the snapshot ``id``."""

    sender: NodeId
    receiver: NodeId
    term: Term
    id: SnapshotId
    offset: int


class RecoveringReply(msgspec.Struct, frozen=True, gc=False):
    """What a fresh replica says instead of `AppendReply` and `HeartbeatReply`: count me not yet.

    ``match_index`` as there, -1 where it says nothing new; ``generation`` tells one life of its
    directory from another.
    """

    sender: NodeId
    receiver: NodeId
    term: Term
    match_index: LogIndex
    generation: int


class RejoinGrant(msgspec.Struct, frozen=True, gc=False):
    """The leader to a fresh replica: you may vote from now on, see `dledger.core.rejoin`."""

    sender: NodeId
    receiver: NodeId
    term: Term
    generation: int


class Rejoined(msgspec.Struct, frozen=True, gc=False):
    """Answer to `RejoinGrant`, once it is on disk."""

    sender: NodeId
    receiver: NodeId
    term: Term
    generation: int


class FetchSnapshot(msgspec.Struct, frozen=True, gc=False):
    """Go on with your snapshot that ends at ``last_index``: I have its first ``offset`` bytes."""

    sender: NodeId
    receiver: NodeId
    term: Term
    last_index: LogIndex
    offset: int


class FetchedSnapshot(msgspec.Struct, frozen=True, gc=False):
    """A chunk of the sender's snapshot: it has the entries that were asked for no more."""

    sender: NodeId
    receiver: NodeId
    term: Term
    id: SnapshotId
    offset: int
    data: bytes | memoryview


class AskMembers(msgspec.Struct, frozen=True, gc=False):
    """Who is a member by now? I know a configuration of that ``version``, and none later."""

    sender: NodeId
    receiver: NodeId
    term: Term
    version: int


class ToldMembers(msgspec.Struct, frozen=True, gc=False):
    """Answer to an `AskMembers`: a later configuration that is committed."""

    sender: NodeId
    receiver: NodeId
    term: Term
    configuration: Configuration


class TellClock(msgspec.Struct, frozen=True, gc=False):
    """What the sender's wall clock shows, see `dledger.peers.clocks`."""

    sender: NodeId
    receiver: NodeId
    term: Term
    wall_ms: int


Message: TypeAlias = (
    PreVoteRequest
    | PreVoteReply
    | VoteRequest
    | VoteReply
    | Append
    | AppendReply
    | AppendReject
    | Heartbeat
    | HeartbeatReply
    | RecoveringReply
    | RejoinGrant
    | Rejoined
    | TimeoutNow
    | FetchEntries
    | FetchedEntries
    | FetchSnapshot
    | FetchedSnapshot
    | AskMembers
    | ToldMembers
    | TellClock
    | InstallSnapshot
    | SnapshotReply
)


def describe_message(message: Message) -> str:
    """Render a message in one line, for logs and golden files."""
    head = f"{message.sender}->{message.receiver} {type(message).__name__} term={message.term}"
    return f"{head} {_DESCRIBE[type(message)](message)}"


def describe_span(span: Span | None) -> str:
    """Render a span as ``[first..last]/term``."""
    if span is None:
        return "[]"
    if span.first_index == span.last_index:
        return f"[{span.first_index}]/{span.term}"
    return f"[{span.first_index}..{span.last_index}]/{span.term}"


def _describe_append(message: Append) -> str:
    return (
        f"prev={message.prev_index}/{message.prev_term}"
        f" commit={message.commit_index} {describe_span(message.span)}"
    )


def _describe_reject(message: AppendReject) -> str:
    return (
        f"prev={message.prev_index} hint={message.hint_index}/{message.hint_term}"
        f" last={message.last_index}"
    )


def _describe_candidate(message: PreVoteRequest | VoteRequest) -> str:
    return f"last={message.last_index}/{message.last_term}"


def _describe_vote(message: PreVoteReply | VoteReply) -> str:
    return "granted" if message.granted else "refused"


_DESCRIBE: Final[dict[type[Message], Callable[[Any], str]]] = {
    PreVoteRequest: _describe_candidate,
    PreVoteReply: _describe_vote,
    VoteRequest: lambda m: _describe_candidate(m) + (" transfer" if m.transfer else ""),
    VoteReply: _describe_vote,
    Append: _describe_append,
    AppendReply: lambda m: f"match={m.match_index}",
    AppendReject: _describe_reject,
    Heartbeat: lambda m: f"commit={m.commit_index} round={m.round}",
    HeartbeatReply: lambda m: f"round={m.round}",
    RecoveringReply: lambda m: f"match={m.match_index} generation={m.generation}",
    RejoinGrant: lambda m: f"generation={m.generation}",
    Rejoined: lambda m: f"generation={m.generation}",
    TimeoutNow: lambda m: f"last={m.last_index}",
    FetchEntries: lambda m: f"[{m.first_index}..{m.last_index}]",
    FetchedEntries: lambda m: f"first={m.first_index} {describe_span(m.span)}",
    FetchSnapshot: lambda m: f"last={m.last_index} offset={m.offset}",
    FetchedSnapshot: lambda m: f"{m.id.describe()} offset={m.offset} bytes={len(m.data)}",
    AskMembers: lambda m: f"version={m.version}",
    TellClock: lambda m: f"wall_ms={m.wall_ms}",
    ToldMembers: lambda m: m.configuration.describe(),
    InstallSnapshot: lambda m: f"{m.id.describe()} offset={m.offset} bytes={len(m.data)}",
    SnapshotReply: lambda m: f"{m.id.describe()} offset={m.offset}",
}

"""What replicas say to each other: one frozen class a message, and one text for each.

Every message has ``sender``, ``receiver`` and ``term``. The term is the sender's current term, but
for a `PreVoteRequest` and a granted `PreVoteReply`: there it is the term the candidate *would*
take.
The group is not the core's business; the transport adds and checks it.

Source: Raft paper Figure 2; pre-vote from Ongaro's dissertation 9.6; heartbeats apart from appends
(their ``round`` is what linearizable reads will confirm leadership with) from dissertation 6.4.
"""

from typing import TypeAlias

import msgspec

from dledger.core.model import LogIndex, NodeId, Span, Term


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
    """RequestVote: the sender is a candidate of ``term``."""

    sender: NodeId
    receiver: NodeId
    term: Term
    last_index: LogIndex
    last_term: Term


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
    """The leader is alive; ``commit_index`` is never beyond what the receiver is known to hold."""

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
)


def describe_message(message: Message) -> str:
    """Render a message in one line, for logs and golden files."""
    head = f"{message.sender}->{message.receiver} {type(message).__name__} term={message.term}"
    match message:
        case PreVoteRequest() | VoteRequest():
            return f"{head} last={message.last_index}/{message.last_term}"
        case PreVoteReply() | VoteReply():
            return f"{head} {'granted' if message.granted else 'refused'}"
        case Append():
            return (
                f"{head} prev={message.prev_index}/{message.prev_term}"
                f" commit={message.commit_index} {describe_span(message.span)}"
            )
        case AppendReply():
            return f"{head} match={message.match_index}"
        case AppendReject():
            return (
                f"{head} prev={message.prev_index} hint={message.hint_index}/{message.hint_term}"
                f" last={message.last_index}"
            )
        case Heartbeat():
            return f"{head} commit={message.commit_index} round={message.round}"
        case HeartbeatReply():
            return f"{head} round={message.round}"


def describe_span(span: Span | None) -> str:
    """Render a span as ``[first..last]/term``."""
    if span is None:
        return "[]"
    if span.first_index == span.last_index:
        return f"[{span.first_index}]/{span.term}"
    return f"[{span.first_index}..{span.last_index}]/{span.term}"

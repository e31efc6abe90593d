"""What no member can have said: refused before anything is changed, whoever sent it.

A message that has come as far as here is well-formed. These checks are about its numbers: they
keep one wrong message, of an impostor or of a member with a bad memory, from being believed where
nothing could ever take it back, as a term or an index beyond what may be counted.

Terms: a group that elects a leader ten times a second, without a pause, for a day is some 2^20
terms further. So a message may be so far ahead and not more, but for a replica that is new and
knows no term yet. Nothing here stops a member from raising terms step by step: that is why members
know each other (`dledger.peers.rpc`).

Who was removed from the group is no member, whatever key or certificate it has still: it is not
heard from when its removal is known to be committed here. One thing it may say: the leader that has
removed itself names its successor.
"""

from typing import Final

from dledger.core.messages import (
    Append,
    AppendReject,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    Message,
    PreVoteRequest,
    RecoveringReply,
    SnapshotReply,
    TimeoutNow,
    VoteRequest,
)
from dledger.core.model import NO_INDEX, NO_TERM, LogIndex, Term
from dledger.core.state import RaftState
from dledger.limits import (
    INDEX_MAX,
    SNAPSHOT_BYTES_MAX,
    SNAPSHOT_POSITION_MAX,
    TERM_MAX,
    TERM_STEP_MAX,
)

REMOVED: Final = "removed"
SEGMENT_BYTES_MAX: Final = 1 << 31
"""Between two entries there may be the rest of a segment, and no segment is larger."""


def find_flaw(state: RaftState, message: Message) -> str | None:
    """Return what cannot be true of a message, in one word; None for one that can."""
    if message.term != state.term and _is_odd_term(state, message.term):
        return "term"
    if message.sender not in state.others and _is_shut_out(state, message):
        return REMOVED
    match message:  # the frequent first
        case AppendReply():
            return None if NO_INDEX <= message.match_index <= INDEX_MAX else "index"
        case Append():
            return _flaw_of_append(message)
        case Heartbeat():
            return None if NO_INDEX <= message.commit_index <= INDEX_MAX else "index"
        case HeartbeatReply():
            return None
    return _flaw_of_rare(state, message)


def _is_odd_term(state: RaftState, term: Term) -> bool:
    """Tell whether no member can be in ``term``, which is not the own one."""
    is_near = state.term - TERM_MAX <= term <= state.term + TERM_STEP_MAX
    is_new = state.term == NO_TERM and state.log.last_index == NO_INDEX
    return not ((is_near or is_new) and 0 <= term <= TERM_MAX)


def _flaw_of_rare(state: RaftState, message: Message) -> str | None:
    match message:
        case RecoveringReply():
            return _flaw_of_indexes(message.match_index)
        case PreVoteRequest() | VoteRequest():
            return _flaw_of_candidate(state, message)
        case AppendReject():
            return _flaw_of_indexes(message.prev_index, message.hint_index, message.last_index)
        case InstallSnapshot():
            return _flaw_of_snapshot(message)
        case SnapshotReply():
            return None if 0 <= message.offset <= message.id.size else "offset"
    return None


def _is_shut_out(state: RaftState, message: Message) -> bool:
    sender = message.sender
    if not state.membership.is_shut_out(sender, state.log.commit_index):
        return False
    is_last_wish = isinstance(message, TimeoutNow) and message.term == state.term
    return not (is_last_wish and sender == state.leader_id)


def _is_index(index: int) -> bool:
    return NO_INDEX <= index <= INDEX_MAX


def _flaw_of_indexes(*indexes: int) -> str | None:
    return None if all(map(_is_index, indexes)) else "index"


def _flaw_of_append(message: Append) -> str | None:
    span, prev_index = message.span, message.prev_index
    if not (NO_INDEX <= prev_index <= INDEX_MAX and NO_INDEX <= message.commit_index <= INDEX_MAX):
        return "index"
    if not NO_TERM <= message.prev_term <= message.term:
        return "prev_term"
    if span is None:
        return None
    if span.first_index != prev_index + 1 or not NO_INDEX <= span.last_index <= INDEX_MAX:
        return "index"
    if not max(message.prev_term, 1) <= span.term <= message.term:
        return "entry_term"
    return None if span.position >= 0 else "position"


def _flaw_of_candidate(state: RaftState, message: PreVoteRequest | VoteRequest) -> str | None:
    if not (_is_index(message.last_index) and NO_TERM <= message.last_term <= message.term):
        return "last_entry"
    if message.sender in state.others:
        return None
    # A server that this one does not know may be a member all the same: this one may lack the
    # entry that added it. Then the other's log is ahead of this one.
    log = state.log
    ours = (log.last_term, log.last_index)
    return None if (message.last_term, message.last_index) > ours else "no_member"


def _flaw_of_snapshot(message: InstallSnapshot) -> str | None:
    wanted = message.id
    if not 0 <= wanted.last_index <= INDEX_MAX:
        return "index"
    if message.offset < 0:  # the rest says `dledger.core.install`
        return "offset"
    return None if wanted.size <= SNAPSHOT_BYTES_MAX else "size"


def span_fits(last_index: LogIndex, end_position: int, position: int) -> bool:
    """Tell whether entries can lie at ``position`` behind a log that ends at ``end_position``.

    The first of all may lie anywhere: behind the log that RocketMQ had before it had DLedger's.
    """
    limit = SNAPSHOT_POSITION_MAX if last_index == NO_INDEX else end_position + SEGMENT_BYTES_MAX
    return end_position <= position < limit

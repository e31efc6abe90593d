"""What a follower makes of what its leader sends: entries and heartbeats.

Source: Raft paper Figure 2 (AppendEntries), 5.3; `sim.oracles.steps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dledger.core.messages import AppendReject, HeartbeatReply, RecoveringReply
from dledger.core.model import FOLLOWER, LEADER
from dledger.core.ready import EventKind

if TYPE_CHECKING:
    from dledger.core.log import RaftLog
    from dledger.core.messages import Append, Heartbeat
    from dledger.core.state import RaftState

NOTHING_ROUND = 0
"""Of heartbeats that want no answer."""


class BeforeAppend(NamedTuple):
    """What a follower has before it takes entries."""

    commit_index: int
    last_index: int
    prev_term: int | None
    """Of its own entry at the place of ``prev_index``."""
    end_term: int | None
    """Of its own entry at the place of the last one it is sent."""
    owed: int
    """What it owes this leader an acknowledgement of."""


def before_append(state: RaftState, message: Append) -> BeforeAppend | None:
    """Note what a follower has; a leader that meets another one of its term is a bug of its own."""
    if state.role is LEADER and state.term == message.term:
        return None
    if state.staging is not None and state.staging.installing:
        return None  # another log is about to take the place of this one
    log, span = state.log, message.span
    is_same = state.term == message.term and state.leader_id == message.sender
    owed = state.ack_index if is_same else None
    return BeforeAppend(
        log.commit_index,
        log.last_index,
        log.term_at(message.prev_index),
        None if span is None else log.term_at(span.last_index),
        -1 if owed is None else owed,
    )


def append(state: RaftState, message: Append, before: BeforeAppend) -> str | None:
    """Judge what a follower has made of entries, or of the question where the logs part."""
    log = state.log
    if not _follows(state, message):
        return f"it follows {state.leader_id} in term {state.term}, or has not noted that it lives"
    if message.prev_index < before.commit_index:
        want, is_cut = before.commit_index, log.last_index != before.last_index
        return _owes(state, max(want, before.owed), is_cut=is_cut)
    if before.prev_term != message.prev_term:
        return _rejects(state, message, before)
    span = message.span
    if span is None:
        match_index, want_last = message.prev_index, before.last_index
    else:
        match_index = span.last_index
        is_held = before.end_term == span.term and span.last_index <= before.last_index
        want_last = before.last_index if is_held else span.last_index
        if log.last_index != want_last and _has_refused(state):
            return None  # entries that can lie nowhere
        if log.term_at(span.last_index) != span.term:
            return (
                f"it has {log.term_at(span.last_index)} at {span.last_index}, sent is {span.term}"
            )
    want = max(before.commit_index, min(message.commit_index, match_index))
    if log.commit_index != want:
        return f"it has committed {log.commit_index}, told is {want}"
    return _owes(state, max(match_index, before.owed), is_cut=log.last_index != want_last)


def before_heartbeat(state: RaftState, message: Heartbeat) -> int | None:
    """Note what is committed."""
    is_rival = state.role is LEADER and state.term == message.term
    return None if is_rival else state.log.commit_index


def heartbeat(state: RaftState, message: Heartbeat, before: int) -> str | None:
    """Judge what a follower has made of a heartbeat."""
    if not _follows(state, message):
        return f"it follows {state.leader_id} in term {state.term}, or has not noted that it lives"
    want = max(before, min(message.commit_index, state.log.last_index))
    if state.log.commit_index != want:
        return f"it has committed {state.log.commit_index}, told is {want}"
    if message.round == NOTHING_ROUND:
        return None
    answer = state.messages[-1] if state.messages else None
    if state.fresh:
        is_answered = isinstance(answer, RecoveringReply)
    else:
        is_answered = isinstance(answer, HeartbeatReply) and answer.round == message.round
    if is_answered and answer is not None and answer.receiver == message.sender:
        return None
    return f"it answers {answer} to round {message.round}"


def _follows(state: RaftState, message: Append | Heartbeat) -> bool:
    return (
        state.term == message.term
        and state.role is FOLLOWER
        and state.leader_id == message.sender
        and state.contact_tick == state.tick
        and not state.election_elapsed
    )


def _owes(state: RaftState, index: int, *, is_cut: bool) -> str | None:
    if is_cut:
        return f"its log ends at {state.log.last_index} now"
    return None if state.ack_index == index else f"it owes {state.ack_index}, and has {index}"


def _rejects(state: RaftState, message: Append, before: BeforeAppend) -> str | None:
    """An entry that has not the term of the leader's: it says so, and where they can be equal."""
    log, answer = state.log, state.replies[-1] if state.replies else None
    if (log.last_index, log.commit_index) != (before.last_index, before.commit_index):
        return f"it has {log.last_index} and {log.commit_index}, and had {before}"
    if not isinstance(answer, AppendReject) or answer.prev_index != message.prev_index:
        return f"its entry {message.prev_index} has term {before.prev_term}, and it says {answer}"
    want = shared_at_most(log, message.prev_index, message.prev_term)
    told = (answer.hint_index, answer.last_index)
    if told != (want, log.last_index):
        return f"it says {told}, and the logs can be equal up to {want} of {log.last_index}"
    return None


def shared_at_most(log: RaftLog, index: int, term: int) -> int:
    """Return the last place up to ``index`` at which a log has no later term than ``term``."""
    first, index = log.first_index, min(index, log.last_index)
    while index >= first - 1 and (log.term_at(index) or 0) > term:
        index -= 1
    return index


def _has_refused(state: RaftState) -> bool:
    return bool(state.events) and state.events[-1].kind is EventKind.REFUSED

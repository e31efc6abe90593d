"""What a replica forgets and begins with when its role, its term or its leader changes.

Source: Raft paper 5.2, Figure 2; dissertation 6.4; `sim.oracles.steps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dledger.core.model import FOLLOWER, LEADER, Role

if TYPE_CHECKING:
    from dledger.core.model import NodeId
    from dledger.core.state import RaftState


class Standing(NamedTuple):
    """What a replica is, before an input."""

    changes: int
    role: Role
    term: int
    voted_for: NodeId | None
    last_index: int
    elapsed: int
    timeout: int
    contact_tick: int


def standing(state: RaftState) -> Standing:
    """Note what a replica is."""
    return Standing(
        state.role_changes,
        state.role,
        state.term,
        state.voted_for,
        state.log.last_index,
        state.election_elapsed,
        state.election_timeout,
        state.contact_tick,
    )


def changed(state: RaftState, before: Standing) -> str | None:
    """Judge a replica whose role, term or leader has just become another one."""
    if state.election_elapsed:
        return f"it is {state.role.value} anew, and its timer is at {state.election_elapsed}"
    if (wrong := odd_timeout(state)) is not None:
        return wrong
    if state.term > before.term and state.voted_for == before.voted_for is not None:
        # The one that it had voted for may have asked anew, and then its answer says so.
        is_asked = any(getattr(reply, "granted", False) for reply in state.replies)
        if not is_asked and state.voted_for != state.node_id:
            return f"it takes its vote for {state.voted_for} along into term {state.term}"
    if state.role is not LEADER:
        return _leads_nothing(state)
    return _begins_to_lead(state, before) if before.role is not LEADER else None


def kept(state: RaftState, before: Standing, *, may_hear: bool) -> str | None:
    """Judge timers where nothing of that has changed: who hears nobody waits on."""
    if may_hear:
        return None
    if state.contact_tick != before.contact_tick:
        return "it takes what does not come of its leader for a sign of life"
    if (state.election_elapsed, state.election_timeout) != (before.elapsed, before.timeout):
        return f"it waits anew: {(state.election_elapsed, state.election_timeout)}, before {before}"
    return None


def odd_timeout(state: RaftState) -> str | None:
    """Judge a timer that has just begun: candidates are in haste, others are not."""
    low, high = state.config.election_ticks_min, state.config.election_ticks_max
    if state.role in (Role.PRE_CANDIDATE, Role.CANDIDATE):
        low, high = max(2, low // 4), max(4, high // 3)
    if state.election_elapsed or not low <= state.election_timeout <= high:
        timer = (state.election_elapsed, state.election_timeout)
        return f"its timer is {timer}, of {low} to {high} as {state.role.value}"
    return None


def _leads_nothing(state: RaftState) -> str | None:
    reads = state.reads
    if state.progress or state.rejoining or state.voting or state.uncounted:
        return f"it leads no more, and has followers: {list(state.progress)}"
    if state.transfer is not None or reads.wanted or reads.round is not None:
        return f"it leads no more, and goes on with {state.transfer or reads.round or 'reads'}"
    if state.role is FOLLOWER and state.votes:
        return f"it follows, and counts the votes {state.votes}"
    return None


def _begins_to_lead(state: RaftState, before: Standing) -> str | None:
    """It knows nothing of anybody, and opens its term with an entry of its own."""
    log, first = state.log, before.last_index + 1
    if (log.last_index, log.last_term) != (first, state.term):
        return f"it opens term {state.term} with entry {log.last_index} of {log.last_term}"
    if list(state.progress) != list(state.others):
        return f"it leads {list(state.progress)}, and not {list(state.others)}"
    for progress in state.progress.values():
        known = (progress.match_index, progress.next_index, progress.commit_sent)
        if known != (-1, first, -1) or not progress.probing or progress.silent:
            return f"it begins with {progress.describe()}, and {first} is its first entry"
        is_out = progress.sent_tick is not None or progress.snapshot is not None
        if is_out or progress.round_heard or progress.contact_tick != state.tick:
            return f"it begins with something under way to {progress.describe()}"
    if state.beat_commit_index != first:
        return f"it takes learners for caught up that hold {state.beat_commit_index}"
    timers = (state.heartbeat_elapsed, state.prefer_pause, state.barrier_tick, state.prefer_tick)
    if timers != (0, 0, state.tick, state.tick + state.config.election_ticks_max):
        return f"it begins with the timers {timers} at tick {state.tick}"
    return None

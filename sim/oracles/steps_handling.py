"""What a replica makes of what its own machine reports: syncs, failures, broken connections.

Source: `dledger.core.ready` (order of duty), `dledger.core.install`, `dledger.core.progress`; Raft
paper 5.2, 5.4.2; `sim.oracles.steps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dledger.core.messages import SnapshotReply
from dledger.core.model import FOLLOWER, LEADER, Role
from sim.oracles.steps_leading import committed_by

if TYPE_CHECKING:
    from dledger.core.model import NodeId
    from dledger.core.ready import Ready
    from dledger.core.snapshot import SnapshotMeta
    from dledger.core.state import RaftState

HASTE_TICKS: Final = 6
"""Who lost the connection to its leader waits no longer than this."""


class BeforeBroken(NamedTuple):
    """Timers, and who may be gone."""

    elapsed: int
    timeout: int
    follows: bool
    leads: bool
    match_index: int
    counted: int


def before_broken(state: RaftState, peer: NodeId) -> BeforeBroken:
    """Note what is known of a peer whose connection broke."""
    progress = state.progress.get(peer)
    match_index = -1 if progress is None else progress.match_index
    follows = state.role is FOLLOWER and state.leader_id == peer
    return BeforeBroken(
        state.election_elapsed,
        state.election_timeout,
        follows,
        progress is not None,
        match_index,
        0 if progress is None else progress.contact_tick,
    )


def broken(state: RaftState, before: BeforeBroken, peer: NodeId) -> str | None:
    """Judge it: what is under way is lost, and who may have no leader is in haste."""
    progress = state.progress.get(peer)
    if progress is not None:
        now = (progress.match_index, progress.next_index, progress.contact_tick)
        if now != (before.match_index, before.match_index + 1, before.counted):
            return f"it goes on with {progress.describe()}, before {before}"
        is_out = progress.inflight or progress.inflight_bytes or progress.snapshot is not None
        if not progress.probing or not progress.silent or is_out:
            return f"it takes {progress.describe()} for one that has what is under way"
        return None if progress.sent_tick == state.tick else f"it waits since {progress.sent_tick}"
    if before.leads:
        return f"it forgets {peer}"
    if state.election_elapsed != before.elapsed:
        return f"its timer is at {state.election_elapsed}, before {before}"
    timeout = state.election_timeout
    if not before.follows:
        return None if timeout == before.timeout else f"it waits for {timeout} ticks, {before}"
    soonest, latest = before.elapsed + 1, min(before.timeout, before.elapsed + HASTE_TICKS)
    is_in_haste = min(soonest, latest) <= timeout <= latest
    is_over = state.tick - state.contact_tick >= state.config.election_ticks_min
    return None if is_in_haste and is_over else f"it waits for {timeout} ticks, before {before}"


def before_block(state: RaftState, reason: str | None) -> Role:
    """Note what it was."""
    del reason
    return state.role


def block(state: RaftState, before: Role, reason: str | None) -> str | None:
    """Judge a replica that may not lead, or may again."""
    if state.blocked != reason:
        return f"it is kept from leading by {state.blocked}, and not {reason}"
    want = before if reason is None else FOLLOWER
    return None if state.role is want else f"it was {before.value}, and is {state.role.value}"


def before_persisted(state: RaftState, index: int) -> tuple[int, int, int]:
    """Note what was held and committed before."""
    log = state.log
    held = max(log.persisted_index, min(index, log.handed_index))
    return held, log.persisted_index, log.commit_index


def persisted(state: RaftState, before: tuple[int, int, int], index: int) -> str | None:
    """Judge what is held, and committed by that."""
    held, held_before, commit_index = before
    log = state.log
    if log.persisted_index != held:
        return f"it holds {log.persisted_index}, told is {index} behind {held_before}"
    if state.role is LEADER and held > held_before:
        want = committed_by(state, commit_index)
        if log.commit_index != want:
            return f"{log.commit_index} is committed, and a majority has {want}"
    return None


def before_abort(state: RaftState, found: Ready) -> tuple[int, int, int, bool]:
    """Note what is left of the log, and whether it leads with an entry of its own that stays."""
    log = state.log
    last = min(found.entries[0].first_index - 1, log.last_index)
    goes_on = state.role is LEADER and log.term_at(last) == state.term
    return last, min(log.commit_index, last), state.term, goes_on


def abort(state: RaftState, before: tuple[int, int, int, bool], found: Ready) -> str | None:
    """Judge a log that had no room: what was not written is gone, and nobody hears of it."""
    del found
    last, commit_index, term, goes_on = before
    now = (state.log.last_index, state.log.commit_index)
    if now != (last, commit_index):
        return f"it has {now}, and nothing behind {last} was written"
    if state.messages or state.replies or state.ack_index is not None:
        return f"it says {state.messages}, {state.replies}, and owes {state.ack_index}"
    if state.term != term or (state.role is LEADER and not goes_on):
        return f"it is {state.role.value} of term {state.term}, with no entry of it"
    for progress in state.progress.values():
        if not progress.probing or progress.next_index > last + 1:
            return f"it goes on with {progress.describe()}"
    return None


class BeforeStaged(NamedTuple):
    """A chunk that was to be written."""

    offset: int
    size: int
    said: int
    leader_id: NodeId | None


def before_staged(state: RaftState, **report: object) -> BeforeStaged | None:
    """Note what was to be written."""
    del report
    staging = state.staging
    if staging is None or staging.chunk is None:
        return None
    size, said = len(staging.chunk), len(state.messages)
    return BeforeStaged(staging.offset, size, said, state.leader_id)


def staged(
    state: RaftState, before: BeforeStaged, *, kept: bool, installed: SnapshotMeta | None
) -> str | None:
    """Judge how far a snapshot has come, or what the log is behind it."""
    staging, said = state.staging, state.messages[before.said :]
    if not kept:
        is_forgotten = staging is None and not said
        return None if is_forgotten else f"it was not kept, and it has {staging}, and says {said}"
    if installed is not None:
        return _stands_on(state, before, installed)
    offset = before.offset + before.size
    if staging is None or staging.offset != offset or staging.chunk is not None:
        return f"it has {staging and staging.offset} bytes of a snapshot, and not {offset}"
    leader_id, want = before.leader_id, list[object]()
    if leader_id not in (None, state.node_id):
        assert leader_id is not None
        want = [SnapshotReply(state.node_id, leader_id, state.term, staging.id, offset)]
    return None if said == want else f"it says {said}, and has {offset} bytes"


def _stands_on(state: RaftState, before: BeforeStaged, installed: SnapshotMeta) -> str | None:
    log, last = state.log, installed.id.last_index
    ends = (log.last_index, log.commit_index, log.persisted_index, log.handed_index)
    if ends != (last,) * 4 or log.last_term != installed.id.last_term or log.first_index <= last:
        return f"its log is {ends} behind a snapshot of {installed.id}"
    if state.delivered_index != last or state.staging is not None:
        return f"it has told {state.delivered_index} behind a snapshot of {last}"
    members = installed.configuration
    if members.index >= 0 and state.membership.latest != members:
        return f"it counts {state.membership.latest}, and not {members}"
    is_follower = before.leader_id not in (None, state.node_id)
    if state.ack_index != (last if is_follower else None):
        return f"it owes {state.ack_index}, and has {last}"
    return None

"""What a leader makes of its followers' answers: who has what, and what is committed by that.

Source: Raft paper Figure 2 (rules for leaders), 5.3, 5.4.2; `sim.oracles.steps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dledger.core.model import LEADER
from sim.oracles.steps_following import shared_at_most

if TYPE_CHECKING:
    from dledger.core.messages import AppendReject, AppendReply, HeartbeatReply, SnapshotReply
    from dledger.core.progress import Progress
    from dledger.core.state import RaftState


class BeforeReject(NamedTuple):
    """What a leader knew of a follower that says it cannot take entries."""

    match_index: int
    next_index: int
    probing: bool
    is_installing: bool


def before_reply(state: RaftState, message: AppendReply) -> tuple[int, int] | None:
    """Note what the follower is counted for, and what is committed."""
    progress = _progress(state, message)
    if progress is None or message.match_index > state.log.last_index:
        return None
    snapshot = progress.snapshot
    if snapshot is not None and message.match_index < snapshot.last_index:
        return None  # from before the snapshot
    return progress.match_index, state.log.commit_index


def append_reply(state: RaftState, message: AppendReply, before: tuple[int, int]) -> str | None:
    """Judge an acknowledgement: it counts, and what a majority has is committed."""
    match_index, commit_index = before
    progress = state.progress.get(message.sender)
    if state.role is not LEADER or progress is None:
        return None  # it was removed, and that is committed by this
    want = max(match_index, message.match_index)
    if progress.match_index != want:
        return f"it is counted for {progress.match_index}, and has {want}"
    if progress.contact_tick != state.tick or progress.silent or progress.probing:
        return f"it is not taken for one that answers: {progress.describe()}"
    if progress.inflight and progress.inflight[0][0] <= message.match_index:
        return f"{progress.inflight[0]} is waited for, and acknowledged"
    if message.match_index > commit_index:
        want = committed_by(state, commit_index)
        if state.log.commit_index != want:
            return f"{state.log.commit_index} is committed, and a majority has {want}"
    return None


def before_reject(state: RaftState, message: AppendReject) -> BeforeReject | None:
    """Note what is known of the follower."""
    progress = _progress(state, message)
    if progress is None:
        return None
    return BeforeReject(
        progress.match_index, progress.next_index, progress.probing, progress.snapshot is not None
    )


def append_reject(state: RaftState, message: AppendReject, before: BeforeReject) -> str | None:
    """Judge a rejection: what a follower has lost does not count, and it is asked further back."""
    progress = state.progress[message.sender]
    known = f"{progress.describe()}, before {before}"
    if progress.contact_tick != state.tick:
        return f"it is not taken for one that answers: {known}"
    has_lost = message.last_index < before.match_index
    if has_lost and progress.match_index > message.last_index:
        return f"its log ends at {message.last_index}, and it counts: {known}"
    is_old = not has_lost and message.prev_index <= before.match_index
    is_other = before.probing and message.prev_index != before.next_index - 1
    if is_old or is_other or before.is_installing:
        is_same = progress.next_index == before.next_index and progress.probing == before.probing
        return None if is_same else f"an old answer counts: {known}"
    if progress.snapshot is not None:
        return None
    shared = shared_at_most(state.log, message.hint_index, message.hint_term)
    want = max(min(shared + 1, message.prev_index), 0)
    if progress.next_index != want or not progress.probing or progress.silent:
        return f"it is to be asked at {want}: {known}"
    return None


def before_beat(state: RaftState, message: HeartbeatReply) -> int | None:
    """Note which round it has answered before."""
    progress = _progress(state, message)
    return None if progress is None else progress.round_heard


def heartbeat_reply(state: RaftState, message: HeartbeatReply, before: int) -> str | None:
    """Judge an answer to a heartbeat."""
    progress = state.progress[message.sender]
    if progress.contact_tick != state.tick or progress.silent:
        return f"it is not taken for one that answers: {progress.describe()}"
    is_asked = message.round <= state.heartbeat_round
    want = max(before, message.round) if is_asked else before
    if progress.round_heard != want:
        return f"it has answered round {want}, and {progress.round_heard} counts"
    return None


def before_chunk(state: RaftState, message: SnapshotReply) -> bool | None:
    """Note whether it is the snapshot that the follower is sent."""
    progress = _progress(state, message)
    return None if progress is None else progress.snapshot == message.id


def snapshot_reply(state: RaftState, message: SnapshotReply, before: bool) -> str | None:  # noqa: FBT001 - noted by the function above
    """Judge how far a snapshot has come."""
    progress = state.progress[message.sender]
    if progress.contact_tick != state.tick:
        return f"it is not taken for one that answers: {progress.describe()}"
    if before and (progress.snapshot_offset != message.offset or progress.silent):
        return f"it has {message.offset} bytes: {progress.describe()}"
    return None


def _progress(
    state: RaftState, message: AppendReply | AppendReject | HeartbeatReply | SnapshotReply
) -> Progress | None:
    return state.progress.get(message.sender) if state.role is LEADER else None


def committed_by(state: RaftState, commit_index: int) -> int:
    """Return what is committed, by the followers that are counted and the own disk (5.4.2)."""
    log, held = state.log, []
    for voter in state.voters:
        if voter == state.node_id:
            held.append(log.persisted_index)
        else:
            is_counted = voter in state.progress and voter not in state.rejoining
            held.append(state.progress[voter].match_index if is_counted else -1)
    index = sorted(held, reverse=True)[len(held) // 2]
    is_own = index > commit_index and log.term_at(index) == state.term
    return index if is_own else commit_index

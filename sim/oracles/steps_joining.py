"""What a follower makes of a snapshot, and what is made of who lost its directory.

Source: Raft paper 7 and Figure 13 (chunks that go on where they stood, `dledger.core.install`);
Viewstamped Replication Revisited 4.3 (`dledger.core.rejoin`); `sim.oracles.steps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dledger.core.messages import Rejoined, SnapshotReply
from dledger.core.model import FOLLOWER, LEADER

if TYPE_CHECKING:
    from dledger.core.messages import InstallSnapshot, RecoveringReply, RejoinGrant
    from dledger.core.model import SnapshotId
    from dledger.core.state import RaftState


class BeforeInstall(NamedTuple):
    """What a follower has of a snapshot, and of a log."""

    staged: SnapshotId | None
    offset: int
    is_busy: bool
    """A chunk is on its way to the disk."""
    commit_index: int
    held_term: int | None
    """Of its own entry at the place where the snapshot ends."""
    commit_term: int
    owed: int
    said: int


def before_install(state: RaftState, message: InstallSnapshot) -> BeforeInstall | None:
    """Note what a follower has; a leader that meets another one of its term is another bug."""
    if state.role is LEADER and state.term == message.term:
        return None
    staging, log = state.staging, state.log
    is_same = state.term == message.term and state.leader_id == message.sender
    owed = state.ack_index if is_same else None
    return BeforeInstall(
        None if staging is None else staging.id,
        0 if staging is None else staging.offset,
        staging is not None and staging.chunk is not None,
        log.commit_index,
        log.term_at(message.id.last_index),
        log.term_at(log.commit_index) or 0,
        -1 if owed is None else owed,
        len(state.messages),
    )


def install(state: RaftState, message: InstallSnapshot, before: BeforeInstall) -> str | None:
    """Judge what a follower has made of a chunk, or of the question how much it has."""
    wanted, log = message.id, state.log
    is_heard = state.contact_tick == state.tick and not state.election_elapsed
    follows = (state.term, state.role, state.leader_id) == (message.term, FOLLOWER, message.sender)
    if not (is_heard and follows):
        return f"it follows {state.leader_id} in term {state.term}, or has not noted that it lives"
    if before.is_busy:
        return _is_as_before(state, before, before.staged)
    is_held = before.held_term == wanted.last_term
    if wanted.last_index <= before.commit_index or is_held:
        commit_index = max(before.commit_index, wanted.last_index)
        now = (log.commit_index, state.ack_index, state.staging)
        if now != (commit_index, max(commit_index, before.owed), None):
            return f"it has {now}, and all that the snapshot stands for, before {before}"
        return None
    is_whole = message.offset + len(message.data) <= wanted.size
    is_term = max(before.commit_term, 1) <= wanted.last_term <= message.term
    if not (is_whole and is_term):
        return _is_as_before(state, before, before.staged)
    return _keeps(state, message, before)


def _keeps(state: RaftState, message: InstallSnapshot, before: BeforeInstall) -> str | None:
    wanted, staging = message.id, state.staging
    offset = before.offset if before.staged == wanted else 0
    if staging is None or (staging.id, staging.offset) != (wanted, offset):
        return f"it has {staging and (staging.id, staging.offset)}, before {before}"
    if message.data and message.offset == offset:
        if staging.chunk is not message.data or len(state.messages) != before.said:
            return f"it does not keep {len(message.data)} bytes at {offset}"
        return None
    if staging.chunk is not None:
        return f"it keeps a chunk of {message.offset} at {offset}"
    want = [SnapshotReply(state.node_id, message.sender, state.term, wanted, offset)]
    said = state.messages[before.said :]
    return None if said == want else f"it says {said}, and has {offset} bytes"


def _is_as_before(state: RaftState, before: BeforeInstall, staged: SnapshotId | None) -> str | None:
    staging = state.staging
    now = (None if staging is None else staging.id, 0 if staging is None else staging.offset)
    if now != (staged, before.offset) or state.log.commit_index != before.commit_index:
        return f"it has {now} of a snapshot, before {before}"
    if len(state.messages) != before.said or state.ack_index not in (None, before.owed):
        return f"it says {state.messages[before.said :]}, and owes {state.ack_index}"
    return None


# Who lost its directory


class BeforeFresh(NamedTuple):
    """What a leader knows of a member that says it has lost its directory."""

    barrier: int
    """What it must hold before it may vote."""
    match_index: int
    """It is counted for no more than this, once it has said so."""
    is_begun: bool
    contact_tick: int
    is_retired: bool


def before_recovering(state: RaftState, message: RecoveringReply) -> BeforeFresh | None:
    """Note what is known of it."""
    progress = state.progress.get(message.sender) if state.role is LEADER else None
    if progress is None or message.match_index > state.log.last_index:
        return None
    known = state.rejoining.get(message.sender)
    is_retired = known is not None and message.generation in known.retired
    if known is not None and known.generation == message.generation:
        barrier, match_index, is_begun = known.barrier, progress.match_index, True
    else:
        barrier, is_begun = state.log.last_index + 1, False
        match_index = min(progress.match_index, message.match_index)
    is_retired = is_retired and not is_begun
    return BeforeFresh(barrier, match_index, is_begun, progress.contact_tick, is_retired)


def recovering(state: RaftState, message: RecoveringReply, before: BeforeFresh) -> str | None:
    """Judge what a leader makes of that: nothing counts that it held before."""
    sender = message.sender
    progress, known = state.progress.get(sender), state.rejoining.get(sender)
    if progress is None or known is None:
        return f"it does not know that {sender} is fresh"
    if before.is_retired:
        is_heard = progress.contact_tick != before.contact_tick
        return "a directory that was lost is heard" if is_heard else None
    if (known.generation, known.barrier) != (message.generation, before.barrier):
        return f"{sender} waits for {known.barrier} of {known.generation}, before {before}"
    if progress in state.voting:
        return f"{sender} is counted, and is fresh"
    if progress.contact_tick != state.tick or progress.silent:
        return f"it is not taken for one that answers: {progress.describe()}"
    want = max(before.match_index, message.match_index)
    if progress.match_index != want:
        return f"it has {want}, and counts for {progress.describe()}"
    return None


def before_grant(state: RaftState, message: RejoinGrant) -> tuple[bool, str | None, bool, int]:
    """Note whether it means this directory, and what is to be promised."""
    is_meant = message.generation == state.config.generation and state.leader_id == message.sender
    return state.fresh, state.voted_for, is_meant, len(state.messages)


def grant(
    state: RaftState, message: RejoinGrant, before: tuple[bool, str | None, bool, int]
) -> str | None:
    """Judge who is let vote again: with its vote of this term given to its leader."""
    was_fresh, voted_for, is_meant, said = before
    place = (state.node_id, message.sender, state.term, message.generation)
    want = [Rejoined(*place)] if is_meant else []
    if is_meant and was_fresh and voted_for is None:
        voted_for = message.sender
    now = (state.fresh, state.voted_for)
    if now != (was_fresh and not is_meant, voted_for) or state.messages[said:] != want:
        return f"it is {now}, and says {state.messages[said:]}, before {before}"
    return None


def before_rejoined(state: RaftState, message: Rejoined) -> bool | None:
    """Note whether it is the directory that was let vote."""
    if state.role is not LEADER:
        return None
    known = state.rejoining.get(message.sender)
    return known is not None and known.generation == message.generation


def rejoined(state: RaftState, message: Rejoined, before: bool) -> str | None:  # noqa: FBT001 - noted by the function above
    """Judge whether it counts from now on."""
    if state.role is not LEADER:
        return None  # what it holds has committed that this leader is removed
    is_counted = any(progress.node_id == message.sender for progress in state.voting)
    is_voter, is_fresh = message.sender in state.voters, message.sender in state.rejoining
    if before and (is_fresh or is_counted != is_voter):
        return f"{message.sender} may vote, and is not counted"
    if not before and is_counted and is_fresh:
        return f"{message.sender} is counted, and is fresh"
    return None

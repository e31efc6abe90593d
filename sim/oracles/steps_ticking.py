"""What a replica makes of a tick: who waits campaigns, who leads beats, asks again, or gives up.

Source: Raft paper 5.2; dissertation 3.10, 4.2.2, 6.2, 9.6; `dledger.core.progress` (times in
which something is sent again); `sim.oracles.steps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dledger.core.leadership import Phase
from dledger.core.messages import Heartbeat, PreVoteRequest, RejoinGrant, TimeoutNow
from dledger.core.model import FOLLOWER, LEADER, Role
from sim.oracles.steps_roles import odd_timeout

if TYPE_CHECKING:
    from dledger.core.leadership import Transfer
    from dledger.core.messages import Message
    from dledger.core.model import NodeId
    from dledger.core.progress import Progress
    from dledger.core.state import RaftState

STALLED_TICKS: Final = 8
"""So long an answer is waited for."""
PAUSE_TIMEOUTS: Final = 10
PAUSE_TIMEOUTS_MAX: Final = 640
"""Longest election timeouts until a preferred leader is asked again, after more and more vain
ones."""


class Waiting(NamedTuple):
    """A replica that does not lead, before a tick."""

    role: Role
    term: int
    leader_id: NodeId | None
    voted_for: NodeId | None
    elapsed: int
    timeout: int
    contact_tick: int
    said: int
    """Messages that wait to leave."""
    may_campaign: bool


class Follower(NamedTuple):
    """A follower as its leader sees it, before a tick."""

    match_index: int
    next_index: int
    is_probing: bool
    is_silent: bool
    sent_tick: int | None
    contact_tick: int
    commit_sent: int


class Leading(NamedTuple):
    """A leader before a tick."""

    term: int
    tick: int
    elapsed: int
    round: int
    commit_index: int
    last_index: int
    said: int
    followers: dict[NodeId, Follower]
    barriers: dict[NodeId, tuple[int, int, int]]
    """Of those that rejoin: barrier, generation, when they may be asked."""
    barrier_tick: int
    transfer: Transfer | None
    phase: Phase | None
    prefer: tuple[int, int]
    """When the preferred leader may be asked, and how long it was not asked before."""


def before_tick(state: RaftState) -> Waiting | Leading:
    """Note what a tick begins with."""
    if state.role is LEADER:
        return _leading(state)
    return Waiting(
        state.role,
        state.term,
        state.leader_id,
        state.voted_for,
        state.election_elapsed,
        state.election_timeout,
        state.contact_tick,
        len(state.messages),
        _may_campaign(state),
    )


def tick(state: RaftState, before: Waiting | Leading) -> str | None:
    """Judge what has come of a tick."""
    if isinstance(before, Waiting):
        return _waits(state, before)
    return _leads(state, before)


# Who does not lead


def _may_campaign(state: RaftState) -> bool:
    """A voter with a log of its own; or who was removed by what may be committed by it alone."""
    if state.blocked is not None or (state.fresh and state.log.last_index >= 0):
        return False
    latest = state.membership.latest
    if state.node_id in latest.configuration.voters:
        return True
    commit_index = state.log.commit_index
    if latest.index <= commit_index:
        return False
    return state.node_id in state.membership.at(commit_index).configuration.voters


def _waits(state: RaftState, before: Waiting) -> str | None:
    is_over = before.elapsed + 1 >= before.timeout
    if is_over and before.may_campaign:
        return _campaigns(state, before)
    now = (state.role, state.term, state.leader_id, state.voted_for)
    if now != before[:4]:
        return f"it is {now}, and was {before}"
    if len(state.messages) != before.said or state.contact_tick != before.contact_tick:
        return f"it says {state.messages[before.said :]}, and waits: {before}"
    if is_over:
        return odd_timeout(state)
    timer = (state.election_elapsed, state.election_timeout)
    if timer != (before.elapsed + 1, before.timeout):
        return f"its timer is at {timer}, before {before}"
    return None


def _campaigns(state: RaftState, before: Waiting) -> str | None:
    """Pre-votes are asked for, in no term yet; who is alone leads at once."""
    node_id, voters = state.node_id, state.voters
    others = [voter for voter in voters if voter != node_id]
    if not others:
        is_first = state.role is LEADER and state.term == before.term + 1
        return None if is_first else f"it is alone, and {state.role.value} of term {state.term}"
    now = (state.role, state.term, state.leader_id, state.voted_for)
    if now != (Role.PRE_CANDIDATE, before.term, None, before.voted_for):
        return f"its time is over, and it is {now}, before {before}"
    log, term = state.log, before.term + 1
    want: list[Message] = [
        PreVoteRequest(node_id, voter, term, log.last_index, log.last_term) for voter in others
    ]
    said = state.messages[before.said :]
    if said != want:
        return f"it asks {said}, and not {want}"
    if state.votes != dict.fromkeys((voter for voter in voters if voter == node_id), True):
        return f"it begins with the votes {state.votes}"
    return odd_timeout(state)


# Who leads


def _leading(state: RaftState) -> Leading:
    log, transfer = state.log, state.transfer
    return Leading(
        state.term,
        state.tick,
        state.heartbeat_elapsed,
        state.heartbeat_round,
        log.commit_index,
        log.last_index,
        len(state.messages),
        {peer: _follower(progress) for peer, progress in state.progress.items()},
        {
            peer: (rejoin.barrier, rejoin.generation, rejoin.ask_tick)
            for peer, rejoin in state.rejoining.items()
        },
        state.barrier_tick,
        transfer,
        None if transfer is None else transfer.phase,
        (state.prefer_tick, state.prefer_pause),
    )


def _follower(progress: Progress) -> Follower:
    return Follower(
        progress.match_index,
        progress.next_index,
        progress.probing,
        progress.silent,
        progress.sent_tick,
        progress.contact_tick,
        progress.commit_sent,
    )


def _leads(state: RaftState, before: Leading) -> str | None:
    now = before.tick + 1
    is_heard = _is_heard(state, before, now)
    if not is_heard:
        is_over = (state.role, state.term, state.leader_id) == (FOLLOWER, before.term, None)
        said = state.messages[before.said :]
        if is_over and not said:
            return None
        return f"no majority answers, and it is {state.role.value}, and says {said}"
    if (state.role, state.term) != (LEADER, before.term):
        return f"a majority answers, and it is {state.role.value} of term {state.term}"
    is_beat = before.elapsed + 1 >= state.config.heartbeat_ticks
    want = (0, before.round + 1) if is_beat else (before.elapsed + 1, before.round)
    if (state.heartbeat_elapsed, state.heartbeat_round) != want:
        return f"its beat is {(state.heartbeat_elapsed, state.heartbeat_round)}, and not {want}"
    if is_beat and state.beat_commit_index != before.commit_index:
        return f"it notes {state.beat_commit_index} as committed, and not {before.commit_index}"
    return (
        _gives_up(state, before, now)
        or _appends_barrier(state, before, now)
        or _hands_over(state, before, now)
        or _says(state, before, now, is_beat=is_beat)
    )


def _is_heard(state: RaftState, before: Leading, now: int) -> bool:
    voters, followers = state.membership.latest.configuration.voters, before.followers
    heard = 0
    for voter in voters:
        if voter == state.node_id:
            heard += 1
        elif voter in followers and voter not in before.barriers:
            silent = now - followers[voter].contact_tick
            heard += silent < state.config.election_ticks_min
    return 2 * heard > len(voters)


def _gives_up(state: RaftState, before: Leading, now: int) -> str | None:
    """What is out for too long is taken for lost, and one question is asked in its place."""
    for peer, old in before.followers.items():
        progress = state.progress.get(peer)
        if progress is None:
            return f"it forgets {peer}"
        is_stalled = old.sent_tick is not None and now - old.sent_tick >= STALLED_TICKS
        want = old._replace(commit_sent=progress.commit_sent)
        if is_stalled:
            next_index = old.next_index if old.is_probing else old.match_index + 1
            want = want._replace(
                is_probing=True, is_silent=True, sent_tick=None, next_index=next_index
            )
        if _follower(progress) != want:
            return f"of {peer} it thinks {_follower(progress)}, and not {want}"
        if is_stalled and (progress.inflight or progress.inflight_bytes):
            return f"it still waits for {list(progress.inflight)} of {peer}"
    return None


def _appends_barrier(state: RaftState, before: Leading, now: int) -> str | None:
    is_due = (
        any(before.last_index < barrier for barrier, _, _ in before.barriers.values())
        and now >= before.barrier_tick
        and before.transfer is None
    )
    added = state.log.last_index - before.last_index
    if added != is_due:
        return f"it has {added} entries more, with {before.barriers} to wait for"
    if is_due and state.barrier_tick != now + state.config.election_ticks_min:
        return f"another barrier is due at {state.barrier_tick}, and it is {now}"
    return None


def _hands_over(state: RaftState, before: Leading, now: int) -> str | None:
    """A hand-over ends with its time; the preferred leader is asked to lead when it can."""
    transfer = before.transfer
    if transfer is not None:
        is_over = now >= transfer.deadline_tick
        if (state.transfer is None) != is_over or state.transfer not in (None, transfer):
            return f"a hand-over until {transfer.deadline_tick} is {state.transfer} at {now}"
        return None
    started = state.transfer
    wanted = _preferred(state, before, now)
    if (None if started is None else started.target) != wanted:
        return f"it hands over to {started and started.target}, and {wanted} is to lead"
    if started is None:
        is_same = (state.prefer_tick, state.prefer_pause) == before.prefer
        return None if is_same else f"it lets its preferred leader wait until {state.prefer_tick}"
    config = state.config
    pause = min(max(2 * before.prefer[1], PAUSE_TIMEOUTS), PAUSE_TIMEOUTS_MAX)
    deadline, again = now + config.election_ticks_min, now + pause * config.election_ticks_max
    if (started.deadline_tick, state.prefer_tick, state.prefer_pause) != (deadline, again, pause):
        return f"it waits until {started.deadline_tick}, then until {state.prefer_tick}, at {now}"
    return None


def _preferred(state: RaftState, before: Leading, now: int) -> NodeId | None:
    config, log = state.config, state.log
    peer = config.preferred_leader
    if peer is None or peer not in state.voters or peer in before.barriers:
        return None
    progress = state.progress.get(peer)
    if progress is None or now < before.prefer[0]:
        return None
    is_in_step = not progress.probing and progress.next_index > log.last_index
    is_alive = now - progress.contact_tick < config.election_ticks_min
    is_open = log.term_at(log.commit_index) == state.term
    return peer if is_in_step and is_alive and is_open else None


def _says(state: RaftState, before: Leading, now: int, *, is_beat: bool) -> str | None:
    """Heartbeats to all when they are due, and to who does not know what is committed."""
    node_id, term, want = state.node_id, before.term, list[object]()
    for peer, (barrier, generation, ask_tick) in before.barriers.items():
        held = min(before.commit_index, before.followers[peer].match_index)
        if barrier <= before.last_index and barrier <= held and now >= ask_tick:
            want.append(RejoinGrant(node_id, peer, term, generation))
    for peer, old in before.followers.items():
        commit_index = min(before.commit_index, old.match_index)
        if is_beat or commit_index > old.commit_sent:
            number = before.round + 1 if is_beat else 0
            want.append(Heartbeat(node_id, peer, term, commit_index, number))
            if state.progress[peer].commit_sent != commit_index:
                return f"{peer} was told {commit_index}, and it notes another commit index"
    transfer = before.transfer
    if transfer is not None and before.phase is Phase.ASKED and now < transfer.deadline_tick:
        left = transfer.deadline_tick - now
        if left % state.config.heartbeat_ticks == 0:
            want.append(TimeoutNow(node_id, transfer.target, term, state.log.last_index))
    said = state.messages[before.said :]
    return None if said == want else f"it says {said}, and not {want}"

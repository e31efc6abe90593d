"""What a replica makes of candidates, and a candidate of votes.

Source: Raft paper 5.2, 5.4.1; dissertation 3.10, 4.2.3, 9.6; `sim.oracles.steps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dledger.core.messages import PreVoteReply, VoteReply
from dledger.core.model import FOLLOWER, LEADER, Role

if TYPE_CHECKING:
    from dledger.core.messages import Message, PreVoteRequest, TimeoutNow, VoteRequest
    from dledger.core.state import RaftState


class BeforeVote(NamedTuple):
    """What is to become of the question for a vote."""

    term: int
    voted_for: str | None
    is_deaf: bool
    """A leader is heard: the question is not even looked at."""
    is_granted: bool


class BeforeCount(NamedTuple):
    """A candidate, and the answers that it will have."""

    role: Role
    term: int
    votes: dict[str, bool]


def before_vote(state: RaftState, message: VoteRequest) -> BeforeVote:
    """Say what is to become of it."""
    is_newer = message.term > state.term
    is_deaf = is_newer and not message.transfer and _hears(state)
    is_free = is_newer or (state.voted_for is None and state.leader_id is None)
    is_granted = (
        not is_deaf
        and message.term >= state.term
        and (is_free or state.voted_for == message.sender)
        and _is_good_enough(state, message)
    )
    return BeforeVote(state.term, state.voted_for, is_deaf, is_granted)


def vote(state: RaftState, message: VoteRequest, before: BeforeVote) -> str | None:
    """Judge the answer: a vote a term, for who has as good a log, and for nobody else."""
    if before.is_deaf:
        is_same = (state.term, state.voted_for) == (before.term, before.voted_for)
        return None if is_same else f"it hears a leader, and is in term {state.term} now"
    answer = state.replies[-1] if state.replies else None
    want = VoteReply(
        state.node_id, message.sender, max(message.term, before.term), before.is_granted
    )
    if answer != want:
        return f"its log ends {_end_of(state)}, asked is {message}, and it says {answer}"
    if before.is_granted and state.voted_for != message.sender:
        return f"it has voted for {state.voted_for}"
    return None


def before_pre_vote(state: RaftState, message: PreVoteRequest) -> BeforeVote:
    """Say what is to become of it."""
    is_granted = message.term > state.term and not _hears(state) and _is_good_enough(state, message)
    return BeforeVote(state.term, state.voted_for, is_deaf=False, is_granted=is_granted)


def pre_vote(state: RaftState, message: PreVoteRequest, before: BeforeVote) -> str | None:
    """Judge the answer: it is given as a vote would be, and changes nothing."""
    if (state.term, state.voted_for) != (before.term, before.voted_for):
        return f"it is in term {state.term} now, with a vote for {state.voted_for}"
    term = message.term if before.is_granted else state.term
    want = PreVoteReply(state.node_id, message.sender, term, before.is_granted)
    answer = state.replies[-1] if state.replies else None
    if answer != want:
        return f"its log ends {_end_of(state)}, asked is {message}, and it says {answer}"
    return None


def before_count(state: RaftState, message: VoteReply | PreVoteReply) -> BeforeCount | None:
    """Note which answers a candidate has with this one."""
    is_wanted = state.role is Role.CANDIDATE
    if isinstance(message, PreVoteReply):
        is_wanted = state.role is Role.PRE_CANDIDATE and not message.granted
    if not is_wanted or message.sender not in state.voters:
        return None
    return _with_answer(state, message)


def before_planned(state: RaftState, message: PreVoteReply) -> BeforeCount | None:
    """Likewise of a pre-vote that was given: its term is that of the plan."""
    is_wanted = message.granted and message.term == state.term + 1
    if not is_wanted or state.role is not Role.PRE_CANDIDATE or message.sender not in state.voters:
        return None
    return _with_answer(state, message)


def counted(state: RaftState, message: Message, before: BeforeCount) -> str | None:
    """Judge what a candidate makes of its votes: a majority decides, and nothing less."""
    del message
    size = len(state.voters)
    yes = sum(before.votes.get(voter, False) for voter in state.voters)
    no = sum(not before.votes.get(voter, True) for voter in state.voters)
    if 2 * yes > size:
        is_won = before.role is Role.CANDIDATE
        role, term = (LEADER, before.term) if is_won else (Role.CANDIDATE, before.term + 1)
    else:
        role, term = (FOLLOWER if 2 * no > size else before.role), before.term
    if (state.role, state.term) == (role, term):
        return None
    now = f"{state.role.value} of term {state.term}"
    return f"it was {before.role.value} and has {before.votes} of {size}, and is {now}"


def before_asked(state: RaftState, message: TimeoutNow) -> bool | None:
    """Tell whether it is to campaign at once; of who is no voter nothing is said."""
    if not state.is_voter or state.fresh or state.blocked is not None:
        return None
    is_now = state.leader_id == message.sender and state.log.last_index == message.last_index
    return state.role is FOLLOWER and is_now


def asked(state: RaftState, message: TimeoutNow, before: bool) -> str | None:  # noqa: FBT001 - noted by the function above
    """Judge whether it campaigns as its leader wishes."""
    is_asked = state.term == message.term + 1 and state.voted_for == state.node_id
    if is_asked == before:
        return None
    return f"it is {state.role.value} of term {state.term}"


def _with_answer(state: RaftState, message: VoteReply | PreVoteReply) -> BeforeCount:
    return BeforeCount(state.role, state.term, {**state.votes, message.sender: message.granted})


def _hears(state: RaftState) -> bool:
    silent = state.tick - state.contact_tick
    is_heard = state.leader_id is not None and silent < state.config.election_ticks_min
    return state.role is LEADER or is_heard


def _is_good_enough(state: RaftState, message: VoteRequest | PreVoteRequest) -> bool:
    """By term first, and by length in the same term; who lost its directory votes for nothing."""
    log = state.log
    if state.fresh and message.last_index >= 0:
        return False
    if message.last_term != log.last_term:
        return message.last_term > log.last_term
    return message.last_index >= log.last_index


def _end_of(state: RaftState) -> str:
    return f"at {state.log.last_index} with term {state.log.last_term}"

"""Who leads: election timeouts, pre-vote, votes, and the leader's check that it still has a quorum.

A term has at most one leader, since a replica votes once a term and forgets no vote, and every two
majorities share a voter. Pre-vote asks first whether the election could be won, so that a replica
that was cut off does not come back with a term that deposes a healthy leader.

Source: Raft paper 5.2 and 5.4.1; Ongaro's dissertation 4.2.3, 6.2 (check of the quorum), 9.6.
"""

from dledger.core.membership import may_campaign
from dledger.core.messages import PreVoteReply, PreVoteRequest, VoteReply, VoteRequest
from dledger.core.model import NodeId, Role
from dledger.core.progress import Progress
from dledger.core.ready import Event, EventKind
from dledger.core.rejoin import may_vote, stop_recovering
from dledger.core.state import LONG_AGO, UNREACHABLE_TICKS_MAX, RaftState


def tick_election(state: RaftState) -> None:
    """Let a tick pass for a replica that does not lead."""
    state.election_elapsed += 1
    if state.election_elapsed >= state.election_timeout:
        campaign(state)


def campaign(state: RaftState) -> None:
    """Ask the others whether this replica could win an election of the next term."""
    assert state.role is not Role.LEADER, state.term
    if state.blocked is not None or not may_campaign(state):
        state.restart_election_timer()
        return
    state.become(Role.PRE_CANDIDATE, state.term, None)
    log = state.log
    state.messages += [
        PreVoteRequest(state.node_id, peer, state.term + 1, log.last_index, log.last_term)
        for peer in state.voters
        if peer != state.node_id
    ]
    count_vote(state, state.node_id, granted=True)


def become_candidate(state: RaftState, *, transfer: bool = False) -> None:
    """Start a term, vote for itself, and ask for the votes of the others (5.2).

    ``transfer``: it is the wish of their leader.
    """
    state.become(Role.CANDIDATE, state.term + 1, None)
    state.voted_for = state.node_id
    stop_recovering(state, state.node_id)
    log = state.log
    state.messages += [
        VoteRequest(state.node_id, peer, state.term, log.last_index, log.last_term, transfer)
        for peer in state.voters
        if peer != state.node_id
    ]
    count_vote(state, state.node_id, granted=True)


def become_leader(state: RaftState) -> None:
    """Lead: nothing is known of any follower, and the term opens with an entry of its own.

    Without that entry a leader could not commit what earlier terms left behind (5.4.2), nor know
    how far they had committed it.
    """
    log = state.log
    next_index = log.last_index + 1
    state.become(Role.LEADER, state.term, state.node_id)
    state.progress = {peer: Progress(peer, next_index, state.tick) for peer in state.others}
    state.count_followers()
    state.barrier_tick = state.tick
    state.beat_commit_index = log.last_index + 1
    state.heartbeat_elapsed = 0
    state.prefer_pause = 0
    state.prefer_tick = state.tick + state.config.election_ticks_max
    log.append(state.make_noop(next_index, state.term, log.end_position))


def on_pre_vote_request(state: RaftState, request: PreVoteRequest) -> None:
    """Say yes if the candidate's term is news, its log is good enough and no leader is heard of."""
    granted = (
        request.term > state.term
        and not state.hears_leader()
        and may_vote(state, request.last_index)
        and state.log.is_up_to_date(request.last_index, request.last_term)
    )
    term = request.term if granted else state.term
    state.replies.append(PreVoteReply(state.node_id, request.sender, term, granted))


def on_pre_vote_reply(state: RaftState, reply: PreVoteReply) -> None:
    """Count an answer of this round of pre-votes."""
    if state.role is Role.PRE_CANDIDATE and (not reply.granted or reply.term == state.term + 1):
        count_vote(state, reply.sender, granted=reply.granted)


def on_vote_request(state: RaftState, request: VoteRequest) -> None:
    """Vote once a term, first come first served, for a log at least as up to date (5.2, 5.4.1)."""
    log = state.log
    free = state.voted_for is None and state.leader_id is None
    granted = (
        (free or state.voted_for == request.sender)
        and may_vote(state, request.last_index)
        and log.is_up_to_date(request.last_index, request.last_term)
    )
    if granted:
        state.voted_for = request.sender
        stop_recovering(state, request.sender)
        state.restart_election_timer()
    kind = EventKind.VOTE if granted else EventKind.VOTE_REFUSED
    state.events.append(
        Event(kind, state.term, state.role, request.sender, request.last_index, request.last_term)
    )
    state.replies.append(VoteReply(state.node_id, request.sender, state.term, granted))


def on_vote_reply(state: RaftState, reply: VoteReply) -> None:
    """Count a vote of this term."""
    if state.role is Role.CANDIDATE:
        count_vote(state, reply.sender, granted=reply.granted)


def count_vote(state: RaftState, voter: NodeId, *, granted: bool) -> None:
    """Note the answer of a voter; act when a majority has given the same. Others do not count."""
    if voter not in state.voters:
        return
    state.votes[voter] = granted
    yes = sum(state.votes.values())
    no = len(state.votes) - yes
    if yes >= state.quorum:
        if state.role is Role.PRE_CANDIDATE:
            become_candidate(state)
        else:
            become_leader(state)
    elif no >= state.quorum:
        state.become_follower(state.term, None)


def on_leader_unreachable(state: RaftState) -> None:
    """Campaign soon: the connection to the leader broke, so it is probably dead.

    It is a hint and needs not be true. Whoever still hears the leader refuses the pre-vote, and
    the next message of the leader ends the haste.
    """
    state.contact_tick = LONG_AGO
    soon = state.election_elapsed + state.rng.randint(1, UNREACHABLE_TICKS_MAX)
    state.election_timeout = min(state.election_timeout, soon)


def check_quorum(state: RaftState) -> None:
    """Step down if no majority was heard from for an election timeout.

    A leader that cannot commit should not hold its clients; a new one may long be at work.
    """
    oldest = state.tick - state.config.election_ticks_min
    heard = state.is_voter + sum(progress.contact_tick > oldest for progress in state.voting)
    if heard < state.quorum:
        state.events.append(Event(EventKind.LOST_QUORUM, state.term, state.role))
        state.become_follower(state.term, None)

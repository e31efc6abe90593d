"""What changes in a replica when the group does: whom it asks, whom it counts, and who may lead.

The configurations themselves, and what may follow what, are in `configuration`; the rest of the
core sees the group through the fields of `RaftState` that are set here, so that no message costs
more than before.

1. A leader appends a configuration: from that moment on it sends to its members, and counts its
   voters. 2. Whoever takes the entry does the same. 3. It is committed by a majority of its own
   voters. 4. A leader that is not among them steps down then, and not before: it replicates
   the entry that removes it, without counting itself (4.2.2).

A server that is no voter does not campaign. There is one exception: as long as the configuration
that removed it is not known to be committed, it may be the only one that can make it so (4.2.2).
Votes are given to whoever asks for them well: the voter may not know yet that it is one, or that
the candidate is; the candidate counts the voters of its own latest configuration.

Source: Ongaro's dissertation 4.1-4.2.3.
"""

from dledger.core.configuration import (
    Change,
    ChangeKind,
    ConfigEntry,
    Configuration,
    changed,
)
from dledger.core.messages import TimeoutNow
from dledger.core.model import NO_INDEX, LogIndex, NodeId, Role, Span
from dledger.core.progress import Progress
from dledger.core.ready import Event, EventKind
from dledger.core.state import RaftState
from dledger.errors import MembershipRefused


def plan(state: RaftState, change: Change) -> Configuration:
    """Return the configuration that a leader may append for ``change`` now.

    Errors: `MembershipRefused`.
    """
    if state.role is not Role.LEADER:
        raise MembershipRefused(f"{state.node_id} does not lead", retriable=True)
    log, latest = state.log, state.membership.latest
    if log.term_at(log.commit_index) != state.term:
        # 1. A leader of term 1 appends C1 and is cut off. 2. One of term 2 appends C2, another
        # single step from C0, and commits it with a majority of C2. 3. The first returns in term 3
        # and commits C1 with a majority of C1, which need not share a server with that of C2.
        # Had it committed an entry of term 3 under C0's successor first, it would know of C2.
        problem = "the leader has not committed an entry of its term yet"
        raise MembershipRefused(problem, retriable=True)
    if latest.index > log.commit_index:
        problem = f"the change at entry {latest.index} is not committed yet"
        raise MembershipRefused(problem, retriable=True)
    if state.transfer is not None:
        raise MembershipRefused("leadership is being transferred", retriable=True)
    configuration = changed(latest.configuration, change)
    if change.kind is ChangeKind.PROMOTE and not is_caught_up(state, change.node_id):
        raise MembershipRefused(f"{change.node_id} has not caught up yet", retriable=True)
    return configuration


def is_caught_up(state: RaftState, node_id: NodeId) -> bool:
    """Tell whether a learner may vote: it lives, is not fresh, and holds what is committed.

    Under load the commit index moves all the time: it counts where it stood a heartbeat ago.
    """
    progress = state.progress.get(node_id)
    if progress is None or node_id in state.rejoining:
        return False
    heard = state.tick - progress.contact_tick < state.config.election_ticks_min
    return heard and not progress.probing and progress.match_index >= state.beat_commit_index


def may_campaign(state: RaftState) -> bool:
    """Tell whether this replica may try to lead."""
    if state.fresh and state.log.last_index != NO_INDEX:
        return False
    if state.is_voter:
        return True
    membership, commit_index = state.membership, state.log.commit_index
    if membership.latest.index <= commit_index:
        return False
    return state.node_id in membership.at(commit_index).configuration.voters


def take(state: RaftState, span: Span) -> None:
    """Put the configurations of a span that was appended into force."""
    for index, configuration in span.configs:
        state.membership.add(ConfigEntry(index, span.term, configuration))
    adopt(state)


def roll_back(state: RaftState, index: LogIndex) -> None:
    """Entry ``index`` and what follows are gone: go back to the configuration before."""
    if state.membership.latest.index >= max(index, 0):
        state.membership.cut(index)
        adopt(state)


def adopt(state: RaftState) -> None:
    """Bring everything in line with the latest configuration."""
    latest = state.membership.latest
    state.count_members()
    if state.role is Role.LEADER:
        _adjust_progress(state)
    words = latest.configuration.describe()
    state.events.append(
        Event(EventKind.CONFIG, state.term, state.role, None, latest.index, extra=words)
    )


def _adjust_progress(state: RaftState) -> None:
    next_index = state.log.last_index + 1
    known = state.progress
    state.progress = {
        peer: known[peer] if peer in known else Progress(peer, next_index, state.tick)
        for peer in state.others
    }
    state.rejoining = {
        peer: rejoin for peer, rejoin in state.rejoining.items() if peer in state.progress
    }
    state.count_followers()


def maybe_step_down(state: RaftState) -> None:
    """Step down once the configuration without this leader is committed (4.2.2).

    The follower that has everything is asked to campaign at once, which saves an election timeout.
    """
    log = state.log
    if state.is_voter or state.membership.latest.index > log.commit_index:
        return
    successor = next((p for p in state.voting if p.match_index == log.last_index), None)
    if successor is not None:
        state.messages.append(
            TimeoutNow(state.node_id, successor.node_id, state.term, log.last_index)
        )
    state.become_follower(state.term, None)


def install(state: RaftState, entry: ConfigEntry) -> None:
    """Put the configuration of a snapshot into force that took the place of the whole log."""
    state.membership.reset(entry)
    adopt(state)

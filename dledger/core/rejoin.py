"""A replica that lost its directory: it must not vote before it is known what it may have promised.

A *fresh* replica is one whose directory began empty and that no leader has let rejoin yet. It has
lost all entries that it once acknowledged, and its votes. If it voted, a candidate without entries
that it had helped to commit could win; if it counted, two leaders could each have a majority.

1. A fresh replica votes only for a candidate with an *empty* log, and campaigns only with an empty
   log. So a new group elects its first leader, with a bare majority; whoever takes part in that
   election is fresh no more. In a group that has entries, no majority is empty.
2. It says so: `RecoveringReply` in place of its acknowledgements. It gets the log like any other,
   and is counted like a learner.
3. When the leader first hears of a fresh replica (or of another ``generation`` of it) it notes the
   next entry of its term as a *barrier*, and appends an empty one if nobody else appends.
4. When the barrier is committed, without the replica, and the replica holds it, the leader lets it
   vote: `RejoinGrant`. The replica makes that durable, with its vote of this term given to the
   leader, and answers `Rejoined`; from then on it is counted.

Why the barrier: the replica may once have voted for some candidate X of a higher term V, whose
other votes are still to come. The barrier is on a majority that the replica is not part of, hence
on one of those that X still needs; that one either has voted for X already, and then it cannot have
taken an entry of an older term, or refuses X, whose log has no entry made after the vote was asked
for. (A round of heartbeats in place of the entry would do in a group of three, not of five: the one
that is not part of the round may be X.)

What remains: the rule sees one lost directory at a time, as one failed server, and while a second
one is down a group of three waits for it. Beyond that nothing protects: two directories of three
that are lost together; or one that is lost while another voter, of a majority with it, has never
held an entry (it was cut off since the first election, or its disk full). Those two may found the
group anew, and what the third holds is overwritten. So: see that all have entries (raftStatus)
before a directory is emptied on purpose.

Source: the recovery of Viewstamped Replication Revisited, 4.3; its flaw, from Michael et al.,
"Recovering Shared Objects Without Stable Storage" (the old message that is still on its way).
"""

from dledger.core.leadership import Rejoin
from dledger.core.messages import RecoveringReply, Rejoined, RejoinGrant
from dledger.core.model import NO_INDEX, LogIndex, NodeId
from dledger.core.ready import Event, EventKind
from dledger.core.state import RaftState


def may_vote(state: RaftState, last_index: LogIndex) -> bool:
    """Tell whether this replica may vote for a candidate whose log ends so."""
    return not state.fresh or last_index == NO_INDEX


# The leader


def on_recovering_reply(state: RaftState, reply: RecoveringReply) -> None:
    """Take an acknowledgement that counts for nothing yet."""
    progress = state.progress.get(reply.sender)
    if progress is None or reply.match_index > state.log.last_index:
        return
    known = state.rejoining.get(reply.sender)
    if known is None or known.generation != reply.generation:
        if known is not None and reply.generation in known.retired:
            return  # from a directory that was lost since
        _begin(state, reply)
    progress.contact_tick = state.tick
    if reply.match_index > NO_INDEX:
        progress.on_match(reply.match_index, state.tick)
    elif progress.silent:
        progress.silent = False
        progress.sent_tick = None


def _begin(state: RaftState, reply: RecoveringReply) -> None:
    """Forget what its lost directory had acknowledged; note the barrier."""
    sender = reply.sender
    known = state.rejoining.get(sender)
    retired = () if known is None else (*known.retired, known.generation)
    barrier = state.log.last_index + 1
    state.rejoining[sender] = Rejoin(reply.generation, barrier, retired)
    progress = state.progress[sender]
    if progress.match_index > reply.match_index:
        progress.match_index = reply.match_index
        progress.become_probe(reply.match_index + 1)
    state.count_followers()
    state.events.append(Event(EventKind.FRESH, state.term, state.role, sender, barrier))


def tick(state: RaftState) -> None:
    """Let a tick pass at a leader that has rejoining members."""
    log = state.log
    behind = False
    for peer, rejoin in state.rejoining.items():
        if log.last_index < rejoin.barrier:
            behind = True
            continue
        holds = min(log.commit_index, state.progress[peer].match_index)
        if holds >= rejoin.barrier and state.tick >= rejoin.ask_tick:
            rejoin.ask_tick = state.tick + state.config.heartbeat_ticks
            state.messages.append(RejoinGrant(state.node_id, peer, state.term, rejoin.generation))
    if behind and state.tick >= state.barrier_tick and state.transfer is None:
        # Not again at the next tick if the disk is full.
        state.barrier_tick = state.tick + state.config.election_ticks_min
        log.append(state.make_noop(log.last_index + 1, state.term, log.end_position))


def on_rejoined(state: RaftState, reply: Rejoined) -> bool:
    """Count the replica from now on; return whether that is news."""
    rejoin = state.rejoining.get(reply.sender)
    if rejoin is None or rejoin.generation != reply.generation:
        return False
    del state.rejoining[reply.sender]
    state.count_followers()
    return True


# The fresh replica


def on_rejoin_grant(state: RaftState, message: RejoinGrant) -> None:
    """Be like any other replica from now on."""
    if message.generation != state.config.generation or message.sender != state.leader_id:
        return
    if state.fresh:
        stop_recovering(state, message.sender)
        if state.voted_for is None:
            state.voted_for = message.sender
    state.messages.append(Rejoined(state.node_id, message.sender, state.term, message.generation))


def stop_recovering(state: RaftState, peer: NodeId) -> None:
    """Vote and be counted from now on, thanks to ``peer``; it becomes durable with the vote."""
    if state.fresh:
        state.fresh = False
        state.events.append(Event(EventKind.FRESH, state.term, state.role, peer, extra="no_more"))

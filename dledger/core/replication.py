"""How the log spreads: the leader sends spans, followers compare, cut and acknowledge, both commit.

If two logs hold an entry of the same index and term, they are equal up to it (Log Matching): a
leader makes one entry per index and term, and a follower takes a span only behind an entry that
matches. A follower finds the first difference by term, a whole run at a time, and cuts from there.

Source: Raft paper 5.3, 5.4.2 and Figure 2; pipelining from Ongaro's dissertation 10.2.1.
"""

from typing import Final

from dledger.core import membership, rejoin
from dledger.core.election import check_quorum
from dledger.core.messages import (
    NO_ROUND,
    Append,
    AppendReject,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    RecoveringReply,
)
from dledger.core.model import FOLLOWER, LEADER, NO_INDEX, NO_TERM, LogIndex
from dledger.core.plausible import span_fits
from dledger.core.progress import Progress
from dledger.core.quorum import majority_index
from dledger.core.ready import Event, EventKind
from dledger.core.snapshot_sender import maybe_begin, send_snapshot
from dledger.core.state import RaftState

SPANS_PER_TURN: Final = 4
"""Most messages with entries to one follower in one `Ready`; the next turn brings the next."""


# The leader


def tick_leader(state: RaftState) -> None:
    """Let a tick pass: check the quorum, keep followers quiet, repair what seems lost."""
    check_quorum(state)
    if state.role is not LEADER:
        return
    state.heartbeat_elapsed += 1
    beat = state.heartbeat_elapsed >= state.config.heartbeat_ticks
    if beat:
        state.heartbeat_elapsed = 0
        state.heartbeat_round += 1
        state.beat_commit_index = state.log.commit_index
    if state.rejoining:
        rejoin.tick(state)
    for progress in state.progress.values():
        if progress.is_stalled(state.tick):
            give_up_window(state, progress)
        commit_index = min(state.log.commit_index, progress.match_index)
        if beat or commit_index > progress.commit_sent:
            progress.commit_sent = commit_index
            number = state.heartbeat_round if beat else NO_ROUND
            state.messages.append(
                Heartbeat(state.node_id, progress.node_id, state.term, commit_index, number)
            )


def replicate(state: RaftState) -> None:
    """Send each follower what it lacks, as far as its window allows."""
    for progress in state.progress.values():
        if progress.next_index <= state.log.last_index or progress.probing:
            if progress.snapshot is not None:
                send_snapshot(state, progress)
            else:
                send_appends(state, progress)


def send_appends(state: RaftState, progress: Progress) -> None:
    """Send spans from ``next_index`` on; a probe is one message, without entries if unheard."""
    config, log = state.config, state.log
    for _ in range(SPANS_PER_TURN):
        if not progress.can_send(config.inflight_spans_max, config.inflight_bytes_max):
            return
        first_index = log.first_index
        if progress.next_index < first_index:  # noqa: PLR1730  # a call costs more than this
            progress.next_index = first_index  # it says so if it needs what was trimmed
        prev_index = progress.next_index - 1
        prev_term = log.term_at(prev_index)
        assert prev_term is not None, prev_index
        span = None
        if progress.next_index <= log.last_index and not progress.silent:
            span = log.read(progress.next_index, config.span_bytes_max)
            if span is None and not progress.probing:
                return  # damaged on this disk: it goes out once it is repaired
        elif not progress.probing:
            return
        progress.commit_sent = log.commit_index
        state.messages.append(
            Append(
                state.node_id,
                progress.node_id,
                state.term,
                prev_index,
                prev_term,
                log.commit_index,
                span,
            )
        )
        if span is None:
            progress.on_sent(prev_index, 0, state.tick)
        else:
            progress.on_sent(span.last_index, len(span.data), state.tick)
            if span.last_index == log.last_index and not progress.probing:
                return


def on_append_reply(state: RaftState, reply: AppendReply) -> None:
    """Take an acknowledgement; a majority of them commits."""
    progress = state.progress.get(reply.sender)
    if progress is None or reply.match_index > state.log.last_index:
        return
    progress.contact_tick = state.tick
    if progress.snapshot is not None and reply.match_index < progress.snapshot.last_index:
        return  # from before
    if progress.on_match(reply.match_index, state.tick) and (
        reply.match_index > state.log.commit_index
    ):  # else it counts for nothing that is not committed, as the second of two answers does
        maybe_commit(state)


def on_append_reject(state: RaftState, reject: AppendReject) -> None:
    """Go back to where the logs can still be equal, skipping a whole term at a time (5.3)."""
    progress = state.progress.get(reject.sender)
    if progress is None:
        return
    progress.contact_tick = state.tick
    if reject.last_index < progress.match_index:
        # It once held more: it lost its disk. Never count it for what it does not hold any more.
        progress.match_index = min(progress.match_index, reject.last_index)
    elif reject.prev_index <= progress.match_index:
        return  # an answer to a message from before what it has acknowledged since
    if progress.probing and reject.prev_index != progress.next_index - 1:
        return  # an answer to an earlier probe
    if progress.snapshot is not None:
        return
    shared = state.log.find_at_most(reject.hint_index, reject.hint_term)
    next_index = max(min(shared + 1, reject.prev_index), 0)
    if maybe_begin(state, progress, next_index):
        return
    progress.match_index = min(progress.match_index, next_index - 1)
    progress.silent = False
    progress.become_probe(next_index)
    if next_index < state.log.first_index:
        progress.sent_tick = state.tick  # nothing here can help it: do not ask in haste
    state.events.append(
        Event(EventKind.PROBE, state.term, state.role, progress.node_id, next_index)
    )


def on_heartbeat_reply(state: RaftState, reply: HeartbeatReply) -> None:
    """Note that the follower lives; ask it again where its log stands if it had gone silent."""
    progress = state.progress.get(reply.sender)
    if progress is None:
        return
    progress.contact_tick = state.tick
    if reply.round <= state.heartbeat_round:  # a later one would confirm reads before they begin
        progress.round_heard = max(progress.round_heard, reply.round)
    if progress.silent:
        progress.silent = False
        progress.sent_tick = None


def on_follower_unreachable(state: RaftState, progress: Progress) -> None:
    """Assume that everything under way to the follower is lost."""
    progress.become_probe(progress.match_index + 1)
    progress.silent = True
    progress.sent_tick = state.tick


def give_up_window(state: RaftState, progress: Progress) -> None:
    """Probe from the last acknowledged entry, with an empty message: it may be far from alive."""
    if not progress.probing:
        state.events.append(
            Event(EventKind.PROBE, state.term, state.role, progress.node_id, progress.match_index)
        )
        progress.become_probe(progress.match_index + 1)
    progress.silent = True
    progress.sent_tick = None


def maybe_commit(state: RaftState) -> None:
    """Commit what a majority holds, if its last entry is of the current term (5.4.2).

    Entries of earlier terms are never committed by counting: a later leader could still overwrite
    them (paper Figure 8). They become committed with the first entry of this term.
    """
    log = state.log
    matches = [progress.match_index for progress in state.voting]
    if state.uncounted:
        matches += state.uncounted
    if state.is_voter:
        matches.append(log.persisted_index)
    index = majority_index(matches)
    if index > log.commit_index and log.term_at(index) == state.term:
        log.commit_index = index
        if not state.is_voter:
            membership.maybe_step_down(state)


# The follower


def on_append(state: RaftState, append: Append) -> None:
    """Take a span behind an entry that matches; cut only what differs from it (5.3)."""
    if not hear_leader(state, append):
        return
    log = state.log
    if state.staging is not None and state.staging.installing:
        return  # another log is about to take the place of this one
    if append.prev_index < log.commit_index:
        acknowledge(state, log.commit_index)  # repeated: what is committed needs no comparison
        return
    if log.term_at(append.prev_index) != append.prev_term:
        reject_append(state, append)
        return
    match_index = append.prev_index
    span = append.span
    if span is not None:
        match_index = span.last_index
        conflict = log.find_conflict(span)
        if conflict is not None:
            if conflict <= log.last_index:
                event = Event(
                    EventKind.TRUNCATE, state.term, state.role, append.sender, conflict,
                    log.last_index,
                )  # fmt: skip
                state.events.append(event)
                log.truncate(conflict)
                membership.roll_back(state, conflict)
            span = span.from_index(conflict)
            if not span_fits(log.last_index, log.end_position, span.position):
                words = "flaw=position message=Append"
                state.note_seldom(EventKind.REFUSED, append.sender, words, conflict)
                return
            log.append(span)
            if span.configs:
                membership.take(state, span)
    advance_commit(state, min(append.commit_index, match_index))
    acknowledge(state, match_index)


def on_heartbeat(state: RaftState, heartbeat: Heartbeat) -> None:
    """Note that the leader lives and how far it has committed."""
    if hear_leader(state, heartbeat):
        advance_commit(state, min(heartbeat.commit_index, state.log.last_index))
        if heartbeat.round == NO_ROUND:
            return
        state.messages.append(
            RecoveringReply(
                state.node_id, heartbeat.sender, state.term, NO_INDEX, state.config.generation
            )
            if state.fresh
            else HeartbeatReply(state.node_id, heartbeat.sender, state.term, heartbeat.round)
        )


def hear_leader(state: RaftState, message: Append | Heartbeat | InstallSnapshot) -> bool:
    """Recognize the sender as the leader of this term; False if it cannot be."""
    if state.role is LEADER:
        state.note_seldom(EventKind.RIVAL, message.sender)
        return False
    if state.role is not FOLLOWER or state.leader_id != message.sender:
        state.become_follower(state.term, message.sender)
    state.contact_tick = state.tick
    if state.election_elapsed:
        state.restart_election_timer()
    return True


def acknowledge(state: RaftState, match_index: LogIndex) -> None:
    """Owe the leader one acknowledgement, however many spans came in this turn."""
    if state.ack_index is None or match_index > state.ack_index:
        state.ack_index = match_index


def reject_append(state: RaftState, append: Append) -> None:
    """Say where the logs can at most be equal."""
    log = state.log
    hint_index = log.find_at_most(append.prev_index, append.prev_term)
    state.replies.append(
        AppendReject(
            state.node_id,
            append.sender,
            state.term,
            append.prev_index,
            hint_index,
            log.term_at(hint_index) or NO_TERM,
            log.last_index,
        )
    )


def advance_commit(state: RaftState, commit_index: LogIndex) -> None:
    """Follow the leader's commit index, never back."""
    if commit_index > state.log.commit_index:
        assert commit_index <= state.log.last_index, (commit_index, state.log.last_index)
        state.log.commit_index = commit_index

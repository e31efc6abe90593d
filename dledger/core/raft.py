"""Raft: one replica as a state machine without I/O.

Inputs are `Raft.tick`, `Raft.step`, `Raft.propose` and the reports of the driver; the output is
`Raft.ready`, whose contract stands in `dledger.core.ready`, or `Raft.take_commit` where a new
commit index is all of it. The same inputs always give the same outputs: time comes as ticks, chance
through `Rng`.

The rules are in `election` and `replication`. Here is what Raft says of *every* message: terms.
"""

from typing import assert_never

from dledger.core import (
    election,
    install,
    membership,
    plausible,
    read_index,
    rejoin,
    replication,
    snapshot_sender,
    transfer,
)
from dledger.core.leadership import Transfer
from dledger.core.log import RaftLog
from dledger.core.messages import (
    Append,
    AppendReject,
    AppendReply,
    AskMembers,
    FetchedEntries,
    FetchedSnapshot,
    FetchEntries,
    FetchSnapshot,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    Message,
    PreVoteReply,
    PreVoteRequest,
    RecoveringReply,
    Rejoined,
    RejoinGrant,
    SnapshotReply,
    TellClock,
    TimeoutNow,
    ToldMembers,
    VoteReply,
    VoteRequest,
)
from dledger.core.model import FOLLOWER, LEADER, HardState, LogIndex, NodeId, NoopBuilder, Rng, Span
from dledger.core.ready import Event, EventKind, Ready
from dledger.core.snapshot import SnapshotMeta
from dledger.core.state import RaftConfig, RaftState


class Raft:
    """A replica. One owner calls it; nothing in it blocks."""

    __slots__ = ("_in_flight", "state")

    def __init__(
        self,
        config: RaftConfig,
        *,
        log: RaftLog,
        hard_state: HardState,
        rng: Rng,
        make_noop: NoopBuilder,
    ) -> None:
        assert log.last_term <= hard_state.term, (log.last_term, hard_state.term)
        self.state = RaftState(config, hard_state, log, rng, make_noop)
        self._in_flight: Ready | None = None

    # Inputs

    def tick(self) -> None:
        """Let one tick of time pass."""
        state = self.state
        state.tick += 1
        if state.role is LEADER:
            replication.tick_leader(state)
            if state.role is LEADER:
                transfer.tick(state)
        else:
            election.tick_election(state)

    def campaign(self) -> None:
        """Start an election now, as if the timeout had passed."""
        if self.state.role is not LEADER:
            election.campaign(self.state)

    def propose(self, span: Span) -> None:
        """Append entries of the current term; only a leader may, behind its last entry."""
        state = self.state
        assert state.role is LEADER, state.role
        assert span.term == state.term, (span.term, state.term)
        state.log.append(span)
        if span.configs:
            membership.take(state, span)
            replication.maybe_commit(state)  # of fewer voters, fewer are a majority

    def resign(self) -> None:
        """Give up leadership, or a candidacy; follow nobody until a leader is heard of."""
        self.state.become_follower(self.state.term, None)

    def block(self, reason: str | None) -> None:
        """Keep this replica from leading for ``reason`` (one word), or let it again with None.

        It goes on following, voting and acknowledging; a leader gives up leadership.
        """
        state = self.state
        if state.blocked != reason:
            state.blocked = reason
            state.events.append(
                Event(EventKind.BLOCKED, state.term, state.role, extra=f"reason={reason}")
            )
            if reason is not None and state.role is not FOLLOWER:
                self.resign()

    def transfer(self, target: NodeId) -> Transfer:
        """Hand leadership to ``target``; nothing may be proposed until that has ended.

        Errors: `TransferFailed` if it cannot succeed; then nothing has changed.
        """
        return transfer.start(self.state, target)

    def read_index(self) -> int:
        """Ask for a linearizable read at the leader; return its batch, see `Ready.reads`."""
        return read_index.request(self.state)

    def unreachable(self, peer: NodeId) -> None:
        """Take the hint that the connection to ``peer`` broke."""
        state = self.state
        progress = state.progress.get(peer)
        if progress is not None:
            replication.on_follower_unreachable(state, progress)
        elif state.role is FOLLOWER and state.leader_id == peer:
            election.on_leader_unreachable(state)

    def step(self, message: Message) -> None:
        """Take a message of another server; it may be a member, and this one not know it yet."""
        state = self.state
        if message.receiver != state.node_id or message.sender == state.node_id:
            return
        flaw = plausible.find_flaw(state, message)
        if flaw is not None:
            self._refuse(message, flaw)
            return
        if message.term > state.term:
            if not self._accept_newer_term(message):
                return
        elif message.term < state.term:
            self._answer_older_term(message)
            return
        self._dispatch(message)

    def _refuse(self, message: Message, flaw: str) -> None:
        """Ignore a message, and record that once in a while."""
        state = self.state
        state.shut_out_knocks = state.shut_out_knocks or flaw == plausible.REMOVED
        words = f"flaw={flaw} message={type(message).__name__} term={message.term}"
        state.note_seldom(EventKind.REFUSED, message.sender, words)

    def _accept_newer_term(self, message: Message) -> bool:
        """Enter the sender's newer term (5.1), unless this kind of message must not cause that."""
        state = self.state
        match message:
            case PreVoteRequest():
                return True  # the term is only a plan
            case PreVoteReply(granted=True):
                return True  # the plan was our own
            case VoteRequest(transfer=False) if state.hears_leader():
                return False  # a server that cannot hear the leader must not depose it (4.2.3)
            case Append() | Heartbeat() | InstallSnapshot():
                state.become_follower(message.term, message.sender)
            case _:
                state.become_follower(message.term, None)
        return True

    def _answer_older_term(self, message: Message) -> None:
        """Refuse a request of an older term and name the newer one (5.1); ignore old answers."""
        state = self.state
        node_id, sender, term = state.node_id, message.sender, state.term
        match message:
            case Append() | Heartbeat() | InstallSnapshot():
                state.messages.append(HeartbeatReply(node_id, sender, term, 0))
            case PreVoteRequest():
                state.replies.append(PreVoteReply(node_id, sender, term, granted=False))
            case VoteRequest():
                state.replies.append(VoteReply(node_id, sender, term, granted=False))
            case _:
                pass

    def _dispatch(self, message: Message) -> None:  # noqa: C901, PLR0912  # one flat match
        state = self.state
        match message:  # the frequent first
            case AppendReply():
                replication.on_append_reply(state, message)
            case Append():
                replication.on_append(state, message)
            case HeartbeatReply():
                replication.on_heartbeat_reply(state, message)
            case Heartbeat():
                replication.on_heartbeat(state, message)
            case AppendReject():
                replication.on_append_reject(state, message)
            case PreVoteRequest():
                election.on_pre_vote_request(state, message)
            case PreVoteReply():
                election.on_pre_vote_reply(state, message)
            case VoteRequest():
                election.on_vote_request(state, message)
            case VoteReply():
                election.on_vote_reply(state, message)
            case RecoveringReply():
                rejoin.on_recovering_reply(state, message)
            case RejoinGrant():
                rejoin.on_rejoin_grant(state, message)
            case Rejoined():
                if rejoin.on_rejoined(state, message):
                    replication.maybe_commit(state)
            case TimeoutNow():
                transfer.on_timeout_now(state, message)
            case InstallSnapshot():
                install.on_install_snapshot(state, message)
            case SnapshotReply():
                snapshot_sender.on_snapshot_reply(state, message)
            case FetchEntries() | FetchedEntries() | FetchSnapshot() | FetchedSnapshot():
                pass  # not Raft's business, see `dledger.repair`
            case AskMembers() | ToldMembers() | TellClock():
                pass  # see `dledger.peers.vouching`, `dledger.peers.clocks`
            case _:
                assert_never(message)

    # Output

    def ready(self) -> Ready | None:
        """Return what must be done now, None for nothing or while a `Ready` is in flight."""
        state = self.state
        if self._in_flight is not None:
            return None
        if state.role is LEADER:
            replication.replicate(state)
            if state.transfer is not None:
                transfer.maybe_ask(state)
            if state.reads.wanted or state.reads.round is not None:
                read_index.advance(state)
        log = state.log
        saved = state.saved
        hard_state = configs = None
        if (
            state.term != saved.term
            or state.voted_for != saved.voted_for
            or state.fresh is not saved.fresh
        ):
            hard_state = HardState(state.term, state.voted_for, state.fresh)
        if state.membership.unsaved:
            state.membership.unsaved = False
            configs = state.membership.entries
        if state.ack_index is not None:
            assert state.leader_id is not None, state.ack_index
            place = (state.node_id, state.leader_id, state.term, state.ack_index)
            state.replies.append(
                RecoveringReply(*place, state.config.generation)
                if state.fresh
                else AppendReply(*place)
            )
            state.ack_index = None
        committed = log.commit_index if log.commit_index > state.delivered_index else None
        reads = state.reads.confirmed
        snapshot = None if state.staging is None else install.hand_out(state)
        if not (
            state.messages
            or state.replies
            or committed is not None
            or log.has_work()
            or state.events
            or hard_state
            or configs is not None
            or reads
            or snapshot
        ):
            return None
        truncate_from, entries = log.hand_out()
        self._in_flight = Ready(
            hard_state, truncate_from, entries, tuple(state.messages), tuple(state.replies),
            committed, tuple(state.events), tuple(reads), snapshot, configs=configs,
        )  # fmt: skip
        self._empty_outbox()
        return self._in_flight

    def take_commit(self) -> LogIndex | None:
        """Return a new commit index if it is all there is to do: no `Ready` need go round for it.

        That is so after most answers of a follower. What is not on disk yet would be other work,
        so that the contract of `Ready` holds: entries up to it may be applied.
        """
        state = self.state
        commit_index = state.log.commit_index
        if (
            commit_index <= state.delivered_index
            or self._in_flight is not None
            or self._has_other_work()
        ):
            return None
        state.delivered_index = commit_index
        return commit_index

    def is_due(self) -> bool:
        """Tell whether `ready` may have something to return, now or once one in flight is done.

        After most inputs it has nothing: whoever asks this first need not wake up for it.
        """
        state = self.state
        return state.log.commit_index > state.delivered_index or self._has_other_work()

    def is_calm(self) -> bool:
        """Tell whether nothing can come of the next tick: a follower that need not campaign at it.

        Whoever asks this may let two ticks pass at once.
        """
        state = self.state
        return state.role is FOLLOWER and state.election_elapsed + 1 < state.election_timeout

    def _has_other_work(self) -> bool:
        """Tell whether there is more to do than to hand out a commit index, the frequent first."""
        state = self.state
        log, saved, reads = state.log, state.saved, state.reads
        last_index = log.last_index
        if (
            last_index != log.handed_index
            or state.ack_index is not None
            or state.messages
            or state.replies
            or state.events
            or state.term != saved.term
            or state.voted_for != saved.voted_for
            or state.fresh is not saved.fresh
            or state.staging is not None
            or state.membership.unsaved
            or reads.confirmed
            or log.truncate_from is not None
        ):
            return True
        if state.role is not LEADER:
            return False
        if state.transfer is not None or reads.wanted or reads.round is not None:
            return True
        for progress in state.progress.values():
            if progress.next_index <= last_index or progress.probing:
                return True
        return False

    def advance(self, ready: Ready, persisted: LogIndex | None = None) -> None:
        """Take the report that hard state, truncation and entries of ``ready`` are on disk.

        ``persisted``: the log up to there is held as the flush mode asks, see `persisted`.
        """
        assert ready is self._in_flight, "not the one in flight"
        state = self.state
        self._in_flight = None
        state.log.settle()
        if ready.hard_state is not None:
            state.saved = ready.hard_state
        if ready.committed is not None:
            state.delivered_index = ready.committed
        if persisted is not None:
            self.persisted(persisted)

    def persisted(self, index: LogIndex) -> None:
        """Take the report that the log up to ``index`` is held as the flush mode asks.

        The driver guarantees that nothing up to ``index`` was cut since it was written, but for
        what it has not been told yet: what took the place of that was not handed out either.
        """
        state = self.state
        log = state.log
        index = min(index, log.handed_index)
        if index > log.persisted_index:
            log.persisted_index = index
            if state.role is LEADER:
                replication.maybe_commit(state)

    def staged(self, *, kept: bool, installed: SnapshotMeta | None) -> None:
        """Take the report on ``Ready.snapshot``, after `advance`.

        Args:
            kept: whether it is on disk; False also when the whole was not what was announced.
            installed: after the last bytes, what the log begins behind now.
        """
        install.on_staged(self.state, kept=kept, installed=installed)

    def abort(self, ready: Ready) -> None:
        """Take the report that the entries of ``ready`` could not be written; forget them.

        Its hard state and truncation are on disk; nothing of it was sent, acknowledged or applied.
        A leader that cannot even open its term gives up leadership.
        """
        assert ready is self._in_flight, "not the one in flight"
        assert ready.entries, "nothing to abort"
        state = self.state
        log = state.log
        self._in_flight = None
        if ready.hard_state is not None:
            state.saved = ready.hard_state
        log.abort(ready.entries[0].first_index)
        membership.roll_back(state, ready.entries[0].first_index)
        assert log.commit_index >= state.delivered_index, (log.commit_index, state.delivered_index)
        # What has happened meanwhile has happened: its events stay.
        state.messages, state.replies = [], []
        state.ack_index = None
        state.reads.confirmed = list(ready.reads)
        state.events.append(
            Event(EventKind.ABORT, state.term, state.role, None, ready.entries[0].first_index)
        )
        for progress in state.progress.values():
            progress.become_probe(progress.match_index + 1)
        if state.role is LEADER and log.last_term != state.term:
            state.become_follower(state.term, None)

    def _empty_outbox(self) -> None:
        state = self.state
        if state.messages:
            state.messages = []
        if state.replies:
            state.replies = []
        if state.events:
            state.events = []
        if state.reads.confirmed:
            state.reads.confirmed = []

"""The state of one replica (paper Figure 2), and the changes of role and term.

`election` and `replication` hold the rules; what they all need is here: the fields, the one way to
change role, and the outbox that `Raft.ready` empties.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dledger.core.configuration import ConfigEntry, Membership
from dledger.core.leadership import Phase, Reads, Rejoin, Transfer
from dledger.core.log import RaftLog
from dledger.core.model import (
    FOLLOWER,
    LEADER,
    NO_INDEX,
    TRANSITIONS,
    HardState,
    LogIndex,
    NodeId,
    NoopBuilder,
    Rng,
    Role,
    Term,
)
from dledger.core.quorum import majority
from dledger.core.ready import Event, EventKind, Reply
from dledger.core.snapshot import SNAPSHOT_CHUNK_BYTES

if TYPE_CHECKING:
    from dledger.core.messages import Message
    from dledger.core.progress import Progress
    from dledger.core.snapshot import Staging

LONG_AGO: Final = -(1 << 40)
"""A tick before any that matters."""
UNREACHABLE_TICKS_MAX: Final = 6
"""A follower that lost its connection to the leader campaigns within so many ticks."""


@dataclass(frozen=True, kw_only=True)
class RaftConfig:
    """Settings of the core; times are ticks, sizes bytes."""

    self_id: NodeId
    voters: tuple[NodeId, ...]
    """The voters with which the group begins, in an order that is the same at every start; without
    this one if it is to be added later."""
    addresses: Mapping[NodeId, str] = field(default_factory=dict)
    """Where the voters are found, for the first configuration."""
    configurations: tuple[ConfigEntry, ...] = ()
    """The configurations that the log holds."""
    generation: int = 0
    """Another number for each directory that this replica has had."""
    heartbeat_ticks: int = 4
    election_ticks_min: int = 20
    election_ticks_max: int = 40
    preferred_leader: NodeId | None = None
    """Who should lead when it can; a leader that is another hands over."""
    span_bytes_max: int = 1024 * 1024
    inflight_bytes_max: int = 8 * 1024 * 1024
    inflight_spans_max: int = 128
    snapshot_chunk_bytes: int = SNAPSHOT_CHUNK_BYTES
    """Bytes of a snapshot in one message; one message is under way at a time."""

    def __post_init__(self) -> None:
        """Check the relations between the fields."""
        assert 0 < self.heartbeat_ticks < self.election_ticks_min < self.election_ticks_max, self


class RaftState:
    """Everything a replica knows. Changed only by `Raft`, `election` and `replication`."""

    __slots__ = (
        "ack_index", "barrier_tick", "beat_commit_index", "blocked", "config", "contact_tick",
        "delivered_index", "election_elapsed", "election_timeout", "events", "fresh",
        "heartbeat_elapsed", "heartbeat_round", "is_voter", "leader_id", "log", "make_noop",
        "membership", "messages", "node_id", "others", "prefer_pause", "prefer_tick", "progress",
        "quorum", "reads", "rejoining", "replies", "rng", "role", "role_changes", "saved",
        "seldom_ticks", "shut_out_knocks", "staging", "term", "tick", "transfer", "uncounted",
        "voted_for", "voters", "votes", "voting",
    )  # fmt: skip

    def __init__(
        self, config: RaftConfig, saved: HardState, log: RaftLog, rng: Rng, make_noop: NoopBuilder
    ) -> None:
        self.config = config
        self.node_id: NodeId = config.self_id
        """This replica."""
        self.rng = rng
        self.make_noop = make_noop
        self._begin_group()
        self.term: Term = saved.term
        self.voted_for: NodeId | None = saved.voted_for
        self.fresh = saved.fresh
        self.saved = saved
        """The hard state last handed to the driver."""
        self.log = log
        self.delivered_index: LogIndex = log.commit_index
        """Commit index last handed to the driver and accepted."""

        self.role = Role.FOLLOWER
        self.leader_id: NodeId | None = None
        self.role_changes = 0
        """How often role, term or leader have changed, for a node that follows them."""
        self.votes: dict[NodeId, bool] = {}
        """Who answered the candidacy, and what: voters are counted, not votes."""
        self._begin_power()
        self.ack_index: LogIndex | None = None
        """What to acknowledge to the leader at the next `Ready`."""

        self.staging: Staging | None = None
        """The snapshot on its way in; outlives terms."""
        self.blocked: str | None = None
        """Why this replica does not campaign, None if it may."""
        self.tick = 0
        self.seldom_ticks: dict[EventKind, int] = {}
        """When an event that `note_seldom` takes was last recorded, for each kind."""
        self.shut_out_knocks = False
        """Whether a former member has spoken since `dledger.peers.vouching` looked."""
        self.contact_tick = LONG_AGO
        """When the leader was last heard of."""
        self.election_elapsed = 0
        self.election_timeout = 0
        self.heartbeat_elapsed = 0
        self.heartbeat_round = 0
        self.messages: list[Message] = []
        self.replies: list[Reply] = []
        self.events: list[Event] = []
        self.restart_election_timer()

    def _begin_group(self) -> None:
        config = self.config
        first = {node: config.addresses.get(node, "") for node in config.voters}
        self.membership = Membership(first, config.configurations)
        self.voters: Mapping[NodeId, str] = {}
        """Those of the latest configuration."""
        self.others: tuple[NodeId, ...] = ()
        """All members but this one, learners included."""
        self.is_voter = False
        self.quorum = 0
        self.count_members()

    def _begin_power(self) -> None:
        """Make the fields that only a leader fills."""
        self.progress: dict[NodeId, Progress] = {}
        """How far each follower is; empty unless this replica leads."""
        self.voting: list[Progress] = []
        """How far each counted follower is: voters that are not rejoining."""
        self.uncounted: list[LogIndex] = []
        """A -1 for each voter that is not counted."""
        self.rejoining: dict[NodeId, Rejoin] = {}
        """Followers that are fresh."""
        self.barrier_tick = 0
        """The leader appends no barrier for a rejoining member before this tick."""
        self.beat_commit_index: LogIndex = self.log.commit_index
        """Where the commit index was at the last heartbeat."""
        self.reads = Reads()
        self.transfer: Transfer | None = None
        """The transfer under way; only a leader has one."""
        self.prefer_pause = 0
        """Election timeouts to wait after another failed transfer to the preferred leader."""
        self.prefer_tick = 0
        """The leader does not ask the preferred leader to take over before this tick."""

    def count_members(self) -> None:
        """Take over who is who from the latest configuration."""
        configuration = self.membership.latest.configuration
        members = configuration.members
        self.voters = configuration.voters
        self.others = tuple(node for node in members if node != self.node_id)
        self.is_voter = self.node_id in self.voters
        self.quorum = majority(len(self.voters))

    def count_followers(self) -> None:
        """Bring ``voting`` and ``uncounted`` in line with the configuration and the rejoining."""
        voters, rejoining = self.voters, self.rejoining
        self.voting = [
            progress
            for peer, progress in self.progress.items()
            if peer in voters and peer not in rejoining
        ]
        self.uncounted = [NO_INDEX for peer in rejoining if peer in voters]

    def restart_election_timer(self) -> None:
        """Wait a new random time before the next campaign.

        A candidate waits less than a follower does: it knows already that there is no leader, and
        pre-vote keeps its haste from disturbing one it cannot see.
        """
        low, high = self.config.election_ticks_min, self.config.election_ticks_max
        if self.role is not FOLLOWER and self.role is not LEADER:
            low, high = max(2, low // 4), max(4, high // 3)
        self.election_elapsed = 0
        self.election_timeout = self.rng.randint(low, high)

    def note_seldom(
        self, kind: EventKind, sender: NodeId, words: str = "", index: LogIndex = NO_INDEX
    ) -> None:
        """Record once in a while what a peer, or who passes for one, may do without end."""
        noted = self.seldom_ticks.get(kind, LONG_AGO)
        if self.tick - noted >= self.config.election_ticks_max:
            self.seldom_ticks[kind] = self.tick
            self.events.append(Event(kind, self.term, self.role, sender, index, extra=words))

    def hears_leader(self) -> bool:
        """Tell whether a leader lives as far as this replica knows, itself included.

        While so, it helps nobody to depose that leader (dissertation 4.2.3 and 9.6).
        """
        if self.role is Role.LEADER:
            return True
        recent = self.tick - self.contact_tick < self.config.election_ticks_min
        return self.leader_id is not None and recent

    def become(self, role: Role, term: Term, leader_id: NodeId | None) -> None:
        """Change role, term and leader together; a new term forgets the vote of the old one."""
        assert (self.role, role) in TRANSITIONS, (self.role, role)
        assert term >= self.term, (term, self.term)
        if (self.role, self.term, self.leader_id) != (role, term, leader_id):
            self.events.append(Event(EventKind.ROLE, term, role, leader_id))
            self.role_changes += 1
        if leader_id != self.leader_id:
            self.ack_index = None  # it was for the leader that is followed no more
        if term != self.term:
            self.term = term
            self.voted_for = None
            self.ack_index = None
        if role is not Role.LEADER:
            self._leave_leadership()
        self.role = role
        self.leader_id = leader_id
        self.votes = {}
        self.restart_election_timer()

    def _leave_leadership(self) -> None:
        """Forget what only a leader has under way."""
        self.progress, self.rejoining = {}, {}
        self.count_followers()
        self.reads.drop()
        if self.transfer is not None:
            self.transfer.become(Phase.DONE)
            self.transfer = None

    def become_follower(self, term: Term, leader_id: NodeId | None) -> None:
        """Follow ``leader_id``, or nobody yet."""
        self.become(Role.FOLLOWER, term, leader_id)

"""The state of one replica (paper Figure 2), and the changes of role and term.

`election` and `replication` hold the rules; what they all need is here: the fields, the one way to
change role, and the outbox that `Raft.ready` empties.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dledger.core.log import RaftLog
from dledger.core.model import (
    TRANSITIONS,
    HardState,
    LogIndex,
    NodeId,
    NoopBuilder,
    Rng,
    Role,
    Term,
)
from dledger.core.office import Phase, Reads, Transfer
from dledger.core.quorum import majority
from dledger.core.ready import Event, EventKind, Reply

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
    """All members, this one included, in an order that is the same at every start."""
    heartbeat_ticks: int = 4
    election_ticks_min: int = 20
    election_ticks_max: int = 40
    preferred_leader: NodeId | None = None
    """Who should lead when it can; a leader that is another hands over."""
    span_bytes_max: int = 1024 * 1024
    inflight_bytes_max: int = 8 * 1024 * 1024
    inflight_spans_max: int = 128

    def __post_init__(self) -> None:
        """Check the relations between the fields."""
        assert self.self_id in self.voters, (self.self_id, self.voters)
        assert 0 < self.heartbeat_ticks < self.election_ticks_min < self.election_ticks_max, self

    @property
    def others(self) -> tuple[NodeId, ...]:
        """All members but this one."""
        return tuple(node for node in self.voters if node != self.self_id)


class RaftState:
    """Everything a replica knows. Changed only by `Raft`, `election` and `replication`."""

    __slots__ = (
        "ack_index", "config", "contact_tick", "delivered_index", "election_elapsed",
        "election_timeout", "events", "heartbeat_elapsed", "heartbeat_round", "hindered",
        "leader_id", "log", "make_noop", "messages", "others", "prefer_tick", "progress", "quorum",
        "reads", "replies", "rng", "role", "saved", "staging", "term", "tick", "transfer",
        "voted_for", "votes",
    )  # fmt: skip

    def __init__(
        self, config: RaftConfig, saved: HardState, log: RaftLog, rng: Rng, make_noop: NoopBuilder
    ) -> None:
        self.config = config
        self.rng = rng
        self.make_noop = make_noop
        self.others = config.others
        self.quorum = majority(len(config.voters))

        self.term: Term = saved.term
        self.voted_for: NodeId | None = saved.voted_for
        self.saved = saved
        """The hard state last handed to the driver."""
        self.log = log
        self.delivered_index: LogIndex = log.commit_index
        """Commit index last handed to the driver and accepted."""

        self.role = Role.FOLLOWER
        self.leader_id: NodeId | None = None
        self.votes: dict[NodeId, bool] = {}
        """Who answered the candidacy, and what: voters are counted, not votes."""
        self.progress: dict[NodeId, Progress] = {}
        """Of each follower; empty unless leader."""
        self.reads = Reads()
        self.transfer: Transfer | None = None
        """The transfer under way; only a leader has one."""
        self.prefer_tick = 0
        """The preferred leader is not asked before."""
        self.ack_index: LogIndex | None = None
        """What to acknowledge to the leader at the next `Ready`."""

        self.staging: Staging | None = None
        """The snapshot on its way in; outlives terms."""
        self.hindered: str | None = None
        """Why this replica does not campaign, None if it may."""
        self.tick = 0
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

    @property
    def node_id(self) -> NodeId:
        """This replica."""
        return self.config.self_id

    def restart_election_timer(self) -> None:
        """Wait a new random time before the next campaign.

        A candidate waits less than a follower does: it knows already that there is no leader, and
        pre-vote keeps its haste from disturbing one it cannot see.
        """
        low, high = self.config.election_ticks_min, self.config.election_ticks_max
        if self.role in (Role.PRE_CANDIDATE, Role.CANDIDATE):
            low, high = max(2, low // 4), max(4, high // 3)
        self.election_elapsed = 0
        self.election_timeout = self.rng.randint(low, high)

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
        if term != self.term:
            self.term = term
            self.voted_for = None
            self.ack_index = None
        if role is not Role.LEADER:
            self.progress = {}
            self._leave_office()
        self.role = role
        self.leader_id = leader_id
        self.votes = {}
        self.restart_election_timer()

    def _leave_office(self) -> None:
        """Forget what only a leader has under way."""
        self.reads.drop()
        if self.transfer is not None:
            self.transfer.become(Phase.DONE)
            self.transfer = None

    def become_follower(self, term: Term, leader_id: NodeId | None) -> None:
        """Follow ``leader_id``, or nobody yet."""
        self.become(Role.FOLLOWER, term, leader_id)

"""A plan: everything that a run is made of. Equal plans, equal runs; a file that can be replayed.

A plan is complete before the run begins: settings, workload, and each fault with its time. Targets
are roles (`Role`) or names of hosts; a role is resolved when the fault is applied, from what is
true then. Pure: values and their JSON. Source: spec/proof.md 4.4 (plan.json).
"""

from enum import Enum
from typing import Annotated, Final, Literal

import msgspec

from chaos.catalogue.faults import BY_SIMULATOR
from chaos.catalogue.kinds import FaultEntry, FaultSpec
from sim.faults.classic import Classic
from sim.faults.edges import Edges
from sim.faults.everyday import Everyday
from sim.faults.fitful import Fitful
from sim.faults.further import Further
from sim.faults.guarded import Guarded
from sim.faults.press import Pressed
from sim.faults.seldom import Seldom
from sim.faults.skilled import Skilled
from sim.faults.small import Small
from sim.faults.strain import Strain
from sim.faults.switch import Switch
from sim.faults.traffic import Broadcast, Delayed, Orderly, Retrying, Transactional
from sim.faults.unwilling import Unwilling
from sim.faults.worn import Worn
from sim.kinds import Odd

FORMAT: Final = 1
"""Of the plan file; another number is refused."""


class Package(Enum):
    """A group of faults that a seed has on or off; each draws from a stream of its own."""

    PARTITION = "partition"
    FRAMES = "frames"
    LINK = "link"
    FLAP = "flap"
    CRASH = "crash"
    CRASH_AT = "crash_at"
    PAUSE = "pause"
    POWER = "power"
    DISK_ERROR = "disk_error"
    DISK_FULL = "disk_full"
    DISK_SLOW = "disk_slow"
    DISK_DAMAGE = "disk_damage"
    CLOCK = "clock"
    MEMBERS = "members"
    TRANSFER = "transfer"
    CLIENTS = "clients"
    NAMESRV = "namesrv"
    ALONE = "alone"
    """What happens to a broker outside the group."""
    DERIVED = "derived"
    """What a replica has made of its log is damaged while it is down."""
    BEHIND = "behind"
    """A replica is away for long, or has lost all, while the others drop what it lacks."""
    FAR = "far"
    """Some clients are far from all others from the beginning: how it is, not a fault."""
    HALF_OPEN = "half_open"
    """Connections of clients end for one end alone."""
    AMBUSH = "ambush"
    """Something happens just as the product's code waits where it seldom does: no fault yet."""
    CLASSIC = "classic"
    """What happens to a master and its slaves, in plans that have them."""
    SWITCH = "switch"
    """What happens to brokers whose role controllers say, and to these, in plans that have them."""


class FaultKind(Enum):
    """What is done; docs/simulation.md says how."""

    ISOLATE = "isolate"
    HALVES = "halves"
    BRIDGE = "bridge"
    RING = "ring"
    ONE_WAY = "one_way"
    LEADER_MINORITY = "leader_minority"
    LEADER_MAJORITY = "leader_majority"
    CLIENT_CUT = "client_cut"
    FLAP = "flap"

    DROP = "drop"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    REPLAY = "replay"
    CORRUPT = "corrupt"
    DELAY = "delay"
    RESET = "reset"

    CRASH = "crash"
    STOP = "stop"
    STOP_AND = "stop_and"
    CRASH_LOOP = "crash_loop"
    CRASH_AT = "crash_at"
    AMBUSH = "ambush"
    RESTART_ALL = "restart_all"
    PAUSE = "pause"
    POWER_LOSS = "power_loss"
    POWER_LOSS_ALL = "power_loss_all"

    EIO = "eio"
    DISK_FULL = "disk_full"
    SLOW_DISK = "slow_disk"
    HUNG_DISK = "hung_disk"
    BIT_ROT = "bit_rot"
    WIPE = "wipe"
    SPOIL = "spoil"
    LYING_SYNC = "lying_sync"

    CLOCK_JUMP = "clock_jump"
    CLOCK_DRIFT = "clock_drift"
    CLOCK_STROBE = "clock_strobe"

    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"
    TRANSFER = "transfer"

    CLIENT_CRASH = "client_crash"
    CLIENT_LEAVE = "client_leave"
    CLIENT_RESET = "client_reset"
    NAMESRV_CRASH = "namesrv_crash"
    NAMESRV_PAUSE = "namesrv_pause"
    NAMESRV_CUT = "namesrv_cut"
    NAMESRV_DELAY = "namesrv_delay"
    NAMESRV_RESET = "namesrv_reset"
    NAMESRV_TURN = "namesrv_turn"

    @property
    def entry(self) -> FaultEntry:
        """What the catalogue says of it."""
        return BY_SIMULATOR[self.value]


class Role:
    """Targets that are resolved when the fault is applied; any other target is a host's name."""

    LEADER: Final = "leader"
    EX_LEADER: Final = "ex_leader"
    """Who led before the leader; the leader if nobody did."""
    FOLLOWER: Final = "follower"
    """A follower, chosen by the event's seed."""
    FOLLOWER_0: Final = "follower0"
    FOLLOWER_1: Final = "follower1"
    MOST_BEHIND: Final = "most_behind"
    """The broker with the shortest log."""
    RANDOM: Final = "random"
    """A broker, chosen by the event's seed."""
    PRODUCER: Final = "producer"
    CONSUMER: Final = "consumer"
    MEMBER: Final = "member"
    """A host with members of a further group, chosen by the event's seed."""
    ASKER: Final = "asker"
    """A host whose clients ask others and wait for replies, likewise."""
    NAMESRV: Final = "namesrv"
    CONTROLLER: Final = "controller"
    """The controller that leads, nobody where there are none."""
    ALL: Final = "all"
    """All brokers at once."""


Value = int | float | str
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class FaultEvent(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One fault; times are milliseconds of virtual time."""

    at_ms: Count
    kind: FaultKind
    package: Package
    target: str = Role.RANDOM
    for_ms: Count = 0
    """How long it lasts; what cannot be undone, or is over at once, has what comes after it (a
    crashed process is started again) so much later."""
    seed: int = 0
    """Of every choice made while it is applied, so that no other event is shifted."""
    params: dict[str, Value] = {}

    @property
    def end_ms(self) -> int:
        """When it is undone."""
        return self.at_ms + self.for_ms

    @property
    def spec(self) -> FaultSpec:
        """The fault without its time and its choices."""
        return FaultSpec(
            kind=self.kind.entry, target=(self.target,), hold_ms=self.for_ms, parameters=self.params
        )

    def number(self, name: str, default: float = 0) -> float:
        """Return a parameter that is a number."""
        value = self.params.get(name, default)
        assert not isinstance(value, str), (self.kind, name, value)
        return value

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter that is a text."""
        return str(self.params.get(name, default))


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the cluster and of the run; milliseconds, bytes, ticks."""

    brokers: Positive = 3
    spares: Count = 0
    """Further hosts that may join the group."""
    namesrvs: Positive = 1
    flush_disk_type: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = "ASYNC_FLUSH"
    tick_ms: Positive = 50
    heartbeat_ticks: Positive = 2
    election_ticks_min: Positive = 10
    election_ticks_max: Positive = 20
    segment_bytes: Positive = 256 * 1024
    queue_file_bytes: Positive = 20_000
    safety_ms: Positive = 10_000
    """How long there are faults."""
    liveness_ms: Positive = 60_000
    """How long the healed cluster may take to be as it should."""
    max_wait_ack_ms: Positive = 2_500
    """How long a broker waits for a majority before it answers that the outcome is unknown."""
    preferred: str = ""
    """The host that is to lead whenever it can; empty for none."""
    peer_key: bool = False
    """Whether members share a key. Rules that drop, double, replay or spoil frames between them
    then end a connection, where without a key they reach the members."""
    alone: Literal["", "plain", "single"] = ""
    """A further broker, outside the group: with RocketMQ's plain log, or a group of one."""
    alone_flush: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = "ASYNC_FLUSH"
    checkpoint_ms: Positive = 5_000
    """How often queues write a checkpoint."""
    clock_spread_ms: Count = 0
    """How far apart the clocks of the hosts are at the beginning, at most."""
    retention_ms: Count = 0
    """How old a segment becomes before it goes; 0: none goes by age."""
    retention_by: Literal["hour", "request"] = "hour"
    """Whether what is old goes at any hour, or only when an operator asks for it."""
    alone_retention_ms: Count = 0
    """How old a segment of a broker outside the group becomes, likewise."""
    span_bytes: Positive = 1024 * 1024
    """Bytes of entries in one message to a peer."""
    inflight_spans: Positive = 128
    """Messages with entries that one follower has not acknowledged yet."""
    tell_clock_ms: Count = 0
    """How often members tell each other their clocks; 0: never."""
    delay_levels: str = ""
    """How long delayed messages wait, as ``messageDelayLevel``; empty for the usual levels."""
    overkill: bool = False
    """Faults may go beyond what the contract promises to survive."""
    classic: Classic | None = None
    """A master and slaves in the place of the group; None: there is a group."""
    switch: Switch | None = None
    """Brokers whose role controllers say in its place, likewise."""

    @property
    def election_ms(self) -> int:
        """Return the shorter election timeout."""
        return self.tick_ms * self.election_ticks_min

    @property
    def is_sync(self) -> bool:
        """Whether a replica acknowledges only what it has synced."""
        return self.flush_disk_type == "SYNC_FLUSH"

    @property
    def minority(self) -> int:
        """How many replicas may be lost."""
        return (self.brokers - 1) // 2


class LateGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A further group of consumers, which comes later, and may not begin at the beginning."""

    start: Literal["first", "last", "timestamp"] = "last"
    at_ms: Count = 3_000
    tags: str = "*"
    members: Positive = 1
    churn_ms: Count = 0
    """The last member leaves and comes again after so long; 0: it stays."""
    suspend_ms: Count = 15_000
    pull_count: Positive = 32
    commit_on_pull: bool = True
    """Whether pulls carry the offset; if not, it is committed by requests of its own alone."""
    cache_bytes: Count = 0
    """Bytes that a member keeps before it pulls no more; 0: the library's own limit."""


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the clients do; see `sim.workload`."""

    rate_per_s: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    producers: Count = 2
    consumers: Count = 1
    queues: Positive = 4
    ordered_queues: Count = 1
    batch_p: float = 0.1
    burst_p: float = 0.0
    search_p: float = 0.0
    """Searches by time, for each other operation."""
    lock_p: float = 0.0
    """Locks of queues, likewise."""
    tags: bool = False
    """Whether messages have tags, and reads ask for some."""
    body_max: Positive = 1024
    """Bytes of the largest body."""
    cancel_p: float = 0.0
    """Sends that are cancelled in flight, likewise."""
    query_p: float = 0.0
    """Queries by key and id, likewise."""
    grow_p: float = 0.0
    """How often somebody gives the topic more queues, likewise; the first one counts."""
    compact_p: float = 0.03
    """How often an operator drops old log, of all operations."""
    term_compact_p: float = 0.0
    """How often logs are dropped around the beginning of a term, of all terms."""
    expire_p: float = 0.0
    """How often an operator has old messages dropped, for each other operation."""
    commit_on_pull: bool = True
    """As `LateGroup.commit_on_pull`, of the group that is judged for loss."""
    oneway_p: float = 0.0
    """How often a client commits an offset without waiting for an answer, of all its commits."""
    burst_max: Positive = 8
    """Messages of the largest burst."""
    compress_over: Count = 0
    """Larger bodies are compressed; 0: none is."""
    rich: bool = False
    """Whether messages have several keys, and properties of their user's."""
    fail_p: float = 0.0
    """How often a listener fails, or raises."""
    suspend_ms: tuple[Count, ...] = (0,)
    """How long the broker may hold a read; each read takes one of them."""
    pull_counts: tuple[Positive, ...] = (16,)
    """Messages of a read, likewise."""
    seek_p: float = 0.0
    """How often a read goes back to some earlier place, or ahead."""
    late: tuple[LateGroup, ...] = ()
    delayed: Delayed | None = None
    retrying: Retrying | None = None
    orderly: Orderly | None = None
    broadcast: Broadcast | None = None
    transactional: Transactional | None = None
    further: Further | None = None
    strain: Strain | None = None
    edges: Edges | None = None
    small: Small | None = None
    seldom: Seldom | None = None
    unwilling: Unwilling | None = None
    worn: Worn | None = None
    everyday: Everyday | None = None
    fitful: Fitful | None = None
    skilled: Skilled | None = None
    pressed: Pressed | None = None
    guarded: Guarded | None = None
    odd: dict[Odd, float] = {}
    """Operations of odd and hostile clients by kind, for each other operation."""
    skip: tuple[int, ...] = ()
    """Numbers of operations that are left out; a shrinker adds them."""

    def members(self, prefix: str) -> int:
        """Return how many hosts there are with members of a further group, see `MEMBERS`."""
        kind = getattr(self, MEMBERS[prefix])
        return 0 if kind is None else kind.group.members


MEMBERS: Final = {
    "w": "retrying",
    "o": "orderly",
    "v": "broadcast",
    "t": "transactional",
    "x": "further",
}
"""How the hosts of groups that are there for one kind of messages are called."""


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run before it is run."""

    seed: int
    options: Options = Options()
    workload: Workload = Workload()
    events: tuple[FaultEvent, ...] = ()
    """In the order of their times."""
    format: int = FORMAT

    @property
    def moves_clocks(self) -> bool:
        """Whether some clock does not run as time does."""
        return any(one.package is Package.CLOCK for one in self.events)

    @property
    def checks_age(self) -> bool:
        """Whether all clocks agree, and nobody but time has a broker drop its log."""
        workload = self.workload
        is_odd = self.options.clock_spread_ms or workload.compact_p or workload.term_compact_p
        return not is_odd and not any(
            one.package is Package.CLOCK or one.kind is FaultKind.STOP_AND for one in self.events
        )


def encode_plan(plan: Plan) -> bytes:
    """Return the text of a plan file: one line for each event."""
    head = msgspec.json.encode(msgspec.structs.replace(plan, events=()))
    assert head.count(b'"events":[]') == 1, head
    lines = b",\n ".join(msgspec.json.encode(event) for event in plan.events)
    events = b'"events":[\n ' + lines + b"\n]" if lines else b'"events":[]'
    return head.replace(b'"events":[]', events) + b"\n"


def decode_plan(data: bytes) -> Plan:
    """Return the plan of a file. Errors: `ValueError` that says where it is wrong."""
    plan = msgspec.json.decode(data, type=Plan)
    if plan.format != FORMAT:
        raise ValueError(f"a plan of format {plan.format}, this program reads {FORMAT}")
    roles = {value for name, value in vars(Role).items() if name.isupper()}
    for event in plan.events:
        if event.target not in roles and event.target not in _hosts(plan):
            raise ValueError(f"there is no {event.target!r}; roles: {', '.join(sorted(roles))}")
    return plan


def _hosts(plan: Plan) -> set[str]:
    """Return the names of the machines, see `sim.world`."""
    options, workload = plan.options, plan.workload
    return {
        f"{prefix}{number}"
        for prefix, count in (
            ("n", options.brokers + options.spares),
            ("ns", options.namesrvs),
            ("p", workload.producers),
            ("c", workload.consumers),
            ("g", len(workload.late)),
            ("b", int(bool(options.alone))),
            ("a", 0 if options.classic is None else len(options.classic.names)),
            ("a", 0 if options.switch is None else len(options.switch.names)),
            *((prefix, workload.members(prefix)) for prefix in MEMBERS),
        )
        for number in range(count)
    }

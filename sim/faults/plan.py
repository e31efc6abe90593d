"""A plan: everything that a run is made of. Equal plans, equal runs; a file that can be replayed.

A plan is complete before the run begins: settings, workload, and each fault with its time. Targets
are roles (`Role`) or names of hosts; a role is resolved when the fault is applied, from what is
true then. Pure: values and their JSON. Source: chaos.md 6.4 (plan.json).
"""

from enum import Enum
from typing import Final

import msgspec

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
    CRASH_LOOP = "crash_loop"
    CRASH_AT = "crash_at"
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
    NAMESRV_CRASH = "namesrv_crash"


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
    NAMESRV: Final = "namesrv"
    ALL: Final = "all"
    """All brokers at once."""


Value = int | float | str


class FaultEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fault; times are milliseconds of virtual time."""

    at_ms: int
    kind: FaultKind
    package: Package
    target: str = Role.RANDOM
    for_ms: int = 0
    """How long it lasts; what cannot be undone, or is over at once, has what comes after it (a
    crashed process is started again) so much later."""
    seed: int = 0
    """Of every choice made while it is applied, so that no other event is shifted."""
    params: dict[str, Value] = {}

    @property
    def end_ms(self) -> int:
        """When it is undone."""
        return self.at_ms + self.for_ms

    def number(self, name: str, default: float = 0) -> float:
        """Return a parameter that is a number."""
        value = self.params.get(name, default)
        assert not isinstance(value, str), (self.kind, name, value)
        return value

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter that is a text."""
        return str(self.params.get(name, default))


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the cluster and of the run; milliseconds, bytes, ticks."""

    brokers: int = 3
    spares: int = 0
    """Further hosts that may join the group."""
    namesrvs: int = 1
    flush_disk_type: str = "ASYNC_FLUSH"
    tick_ms: int = 50
    heartbeat_ticks: int = 2
    election_ticks_min: int = 10
    election_ticks_max: int = 20
    segment_bytes: int = 256 * 1024
    queue_file_bytes: int = 20_000
    safety_ms: int = 10_000
    """How long there are faults."""
    liveness_ms: int = 60_000
    """How long the healed cluster may take to be as it should."""
    overkill: bool = False
    """Faults may go beyond what the contract promises to survive."""

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


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What the clients do; see `sim.workload`."""

    rate_per_s: float = 10.0
    producers: int = 2
    consumers: int = 1
    queues: int = 4
    ordered_queues: int = 1
    batch_p: float = 0.1
    body_max: int = 1024
    """Bytes of the largest body."""
    skip: tuple[int, ...] = ()
    """Numbers of operations that are left out; a shrinker adds them."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A run before it is run."""

    seed: int
    options: Options = Options()
    workload: Workload = Workload()
    events: tuple[FaultEvent, ...] = ()
    """In the order of their times."""
    format: int = FORMAT


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
    return plan

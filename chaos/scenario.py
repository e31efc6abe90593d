"""A scenario: the workload's size, the timeline of faults, and what is promised. Plain data.

Knows no cluster. The timeline names roles (``leader``, ``follower``, ``other``), which a ``look``
step binds to nodes when it is reached. Source: spec/proof.md 4.4.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from chaos.catalogue.contracts import RAFT
from chaos.catalogue.faults import BY_NEMESIS
from chaos.catalogue.kinds import FaultSpec
from chaos.generator import Op


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the timeline, ``after_s`` after the one before it has ended.

    ``do``: ``look`` binds the roles once the cluster is healthy; ``start`` applies the fault
    ``name`` of ``kind`` on ``targets``; ``stop`` lifts it; ``switch`` makes the slave that
    ``targets`` names the master, by hand; ``await`` waits for ``what``:
    ``leader`` (one other than the bound), ``acks`` (a send begun from now on is acknowledged),
    ``healthy`` (all nodes answer and are caught up), ``at`` (so many seconds of the main phase are
    over) or ``time`` (so many seconds). A ``look`` with what ``now`` does not wait for health.
    """

    do: str
    name: str = ""
    kind: str = ""
    targets: tuple[str, ...] = ()
    what: str = ""
    after_s: float = 0.0
    within_s: float = 10.0
    parameters: Mapping[str, float | str] = field(default_factory=dict)
    """Of the fault; those that are not named have their defaults."""

    @property
    def fault(self) -> FaultSpec:
        """The fault that is applied; a later step lifts it. Errors: KeyError for no known kind."""
        kind = BY_NEMESIS[self.kind]
        return FaultSpec(kind=kind, target=self.targets, parameters=self.parameters)


TOPIC, ORDERED_TOPIC, TXN_TOPIC = "chaos-queue", "chaos-order", "chaos-txn"
ASK_TOPIC = "chaos-ask"
MAIN_GROUP = "chaos-group"
TAGS = ("red", "Aa", "blue", "BB", "")
"""Tags in turn; two of them have the same hash code, by which brokers filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A consumer group beside the main one, with one member."""

    name: str
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Tags that it wants of a topic; none: all of it."""
    sql: bool = False
    """Whether it says so by an expression over properties."""
    replies: bool = False
    """Whether its members reply to what they get, where a reply is wanted."""
    topics: tuple[str, ...] = (TOPIC, ORDERED_TOPIC)
    from_last: bool = False
    """Whether it begins at the end of each queue, not at its first message."""
    joins_s: tuple[float, ...] = (0.0,)
    """When in the main phase each of its members joins; 0: before everything."""
    suspend_ms: int = 15_000
    mode: str = "concurrent"
    """How it consumes: concurrent, orderly or broadcast."""
    fail_every: int = 0
    """Its listeners refuse a call whose first message has such a key, once."""
    refuse_every: int = 0
    """Its listeners refuse a message with such a key whenever it comes."""
    reconsume_max: int | None = None
    """How often a message comes again before it is a dead letter; None: as the client has it."""


TAGGED = Group(name="chaos-tags", tags={TOPIC: ("red", "Aa")}, topics=(TOPIC,), suspend_ms=400)
LATE = Group(name="chaos-late", from_last=True, joins_s=(2.0,), suspend_ms=5_000)
ORDERLY = Group(
    name="chaos-orderly",
    mode="orderly",
    topics=(ORDERED_TOPIC,),
    joins_s=(0.0, 4.0),
    suspend_ms=1_000,
    fail_every=53,
)
FAILING = Group(
    name="chaos-fails",
    tags={TOPIC: ("blue",)},
    topics=(TOPIC,),
    suspend_ms=2_000,
    refuse_every=17,
    reconsume_max=2,
)
CAST = Group(
    name="chaos-cast",
    mode="broadcast",
    topics=(ORDERED_TOPIC,),
    joins_s=(0.0, 0.0),
    suspend_ms=3_000,
)
FILTERED = Group(
    name="chaos-sql", tags={TOPIC: ("red", "BB")}, topics=(TOPIC,), suspend_ms=700, sql=True
)
REPLYING = Group(
    name="chaos-replies",
    topics=(ASK_TOPIC,),
    joins_s=(0.0, 4.0),
    suspend_ms=1_500,
    replies=True,
)
DELAYS_MS = (1_000, 2_000, 1_000, 2_000, *[3_000] * 13, 9_000)
"""How long each level waits, 1 first. What is refused climbs from the third."""
DELAY_LEVELS = (1, 2, 5, 18)
"""In turn, of the messages that are sent to wait; who is woken for the last alone is late."""
CHECK_BACK = {"after_ms": 2_000, "interval_ms": 500, "max": 15}
"""When the brokers ask how a transaction ended, how often, and how many times at the most."""
TRANSACTIONS = {
    "transactionTimeOut": str(CHECK_BACK["after_ms"]),
    "transactionCheckInterval": str(CHECK_BACK["interval_ms"]),
    "transactionCheckMax": str(CHECK_BACK["max"]),
}
"""The settings that say so."""
STILL_S = 130.0
"""Who gives nothing for longer than a lock (a minute) and a silent member (two) last, in a cluster
that answers, gives nothing any more."""
DECIDED_S = 5.0
"""After so long whatever somebody can tell of has been asked for."""
LATE_MS_MAX = 5_000.0
"""How long a delayed message may be overdue where no fault is near. Machines may be slow."""
LATE_MS_HALF_MAX = 3_000.0
"""How long half of them may be: one may meet a machine that is busy, half of all do not."""
RECOVERY_MS_MAX = 20_000
"""How long after a fault nothing may be acknowledged. Machines may be slow."""
AVAILABILITY_MIN = 0.5
"""Which part of the sends far from any fault is acknowledged at the least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Who sends and who consumes, how much."""

    producers: int = 3
    processes_each: int = 16
    """Logical processes in each producer; each has one send in flight."""
    consumers: int = 2
    rate: float = 300.0
    """Sends per second of all producers together."""
    queues: int = 4
    sizes: tuple[tuple[int, int], ...] = ((80, 200), (14, 1024), (5, 6_000), (1, 200_000))
    """Body sizes in bytes with their weights, as pairs (weight, size). Above 4 KiB a client
    compresses, except in batches."""
    batches: tuple[int, ...] = (1, 1, 8)
    """Messages in one request, by producer in turn: the third one sends batches."""
    send_timeouts_ms: tuple[int, ...] = (3_000, 1_000)
    """Time that a send has with all its retries, by producer in turn. The short one ends before
    a majority is back, so that sends of unknown outcome occur."""
    tags: tuple[str, ...] = TAGS
    ordered: int = 1
    """Further producers that choose the queue, each process its own, on a topic of their own."""
    groups: tuple[Group, ...] = (TAGGED, LATE)
    """Consumer groups beside the main one."""
    cancel_every: int = 61
    """The second producer abandons each such send after a moment; 0: none."""
    large_every: int = 97
    """The third producer sends each such batch with bodies that go beyond 1 MiB together."""
    fail_every: int = 89
    """The main group's listener refuses a call whose first message has such a key, once."""
    joiner_s: tuple[float, float] | None = (3.0, 9.0)
    """When in the main phase one more member joins the main group, and when it leaves."""
    hostile: bool = True
    """Whether somebody sends frames that no client of ours would."""
    delay_every: int = 0
    """The first producer sends each such message to wait; 0: none."""
    transactional: int = 0
    """Further producers that send in transactions, on a topic of their own; of two or more the
    first is killed when a consumer is, and the others are asked about what it left."""
    askers: int = 0
    """Further producers that want a reply to each message, on a topic of their own."""

    @property
    def senders(self) -> int:
        """How many producers there are, of every kind."""
        return self.producers + self.ordered + self.transactional + self.askers


WORKLOADS: Mapping[str, Workload] = {
    "plain": Workload(),
    "orderly": Workload(groups=(TAGGED, LATE, ORDERLY)),
    "delay": Workload(delay_every=5),
    "retry": Workload(groups=(TAGGED, LATE, FAILING)),
    "broadcast": Workload(groups=(TAGGED, LATE, CAST)),
    "txn": Workload(transactional=2),
    "sql": Workload(groups=(TAGGED, LATE, FILTERED)),
    "request": Workload(groups=(TAGGED, LATE, REPLYING), askers=1),
    "every": Workload(
        groups=(TAGGED, LATE, ORDERLY, FAILING, CAST, FILTERED, REPLYING),
        delay_every=5,
        transactional=2,
        askers=1,
    ),
}
"""By the name under which a run may choose it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that a run is made of, fixed before it starts."""

    name: str
    workload: Workload = field(default_factory=Workload)
    timeline: tuple[Step, ...] = ()
    warmup_s: float = 3.0
    baseline_s: float = 4.0
    quiesce_s: float = 1.5
    drain_s: float = 20.0
    """Most time the group gets to read everything after the last send."""
    timeline_s_max: float = 300.0
    crash_consumer_s: float | None = None
    """When in the main phase a consumer is killed and another takes its place: who begins there
    asks the brokers how far the group came. None: never."""
    flush: str = "ASYNC_FLUSH"
    """``ASYNC_FLUSH`` or ``SYNC_FLUSH``."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings of the brokers."""
    sealed: bool = False
    """Whether the brokers seal what they say to each other."""
    mode: str = RAFT
    """How the brokers replicate: `chaos.catalogue.contracts.MODES`."""
    coverage: Mapping[str, int] = field(default_factory=dict)
    """Least number of effective faults per kind (`any`: of all), else the verdict is unknown."""

    @property
    def drain_s_max(self) -> float:
        """How long the groups are waited for at the most, as long as they move."""
        return 2 * self.drain_s + STILL_S

    @property
    def seconds_max(self) -> float:
        """How long the phases may take from the first send to the end of the drain."""
        calm_s = self.warmup_s + self.baseline_s + self.quiesce_s
        return calm_s + self.timeline_s_max + self.drain_s_max


def planned_faults(scenario: Scenario) -> list[tuple[str, FaultSpec]]:
    """Return the faults of the timeline with their names, in order."""
    return [(step.name, step.fault) for step in scenario.timeline if step.do == "start"]


def as_script(scenario: Scenario) -> tuple[tuple[int, Op], ...]:
    """Return the timeline as operations with their delays in nanoseconds."""
    steps = []
    for step in scenario.timeline:
        value: dict[str, object] = {
            "name": step.name,
            "kind": step.kind,
            "targets": list(step.targets),
            "what": step.what,
            "within_s": step.within_s,
            "parameters": dict(step.parameters),
        }
        op = Op(f=step.do, value={k: v for k, v in value.items() if v})
        steps.append((int(step.after_s * 1e9), op))
    return tuple(steps)


def kill_leader(name: str, *, down_s: float = 4.0) -> tuple[Step, ...]:
    """SIGKILL the leader; the others elect another; the old one returns as a follower."""
    return (
        Step(do="look"),
        Step(do="start", name=f"{name}-kill", kind="kill", targets=("leader",), after_s=0.5),
        Step(do="await", what="acks", within_s=10),
        Step(do="stop", name=f"{name}-kill", after_s=down_s),
        Step(do="await", what="healthy"),
    )


def minority_leader(name: str) -> tuple[Step, ...]:
    """Leave the leader without a majority, then kill it, then let the others elect.

    1. The link leader-follower is cut: the leader goes on with ``other``.
    2. The link leader-other is cut too and ``other`` is paused: what the leader appends now is
       nowhere else, and nobody can elect. A broker that acknowledged it would lose it.
    3. The leader is killed. What it had sent into the cut links dies with it.
    4. ``other`` goes on, the links heal: the two elect a leader, which must be ``other`` if the
       follower lacks committed entries.
    5. Only when the new leader has acknowledged sends does the old one return; its tail conflicts.
    """
    cut, wall, pause, kill = (f"{name}-{part}" for part in ("cut", "cut-other", "pause", "kill"))
    return (
        Step(do="look"),
        Step(do="start", name=cut, kind="cut", targets=("leader", "follower"), after_s=0.5),
        Step(do="start", name=wall, kind="cut", targets=("leader", "other"), after_s=3.0),
        Step(do="start", name=pause, kind="pause", targets=("other",)),
        Step(do="start", name=kill, kind="kill", targets=("leader",), after_s=0.4),
        Step(do="stop", name=pause, after_s=1.0),
        Step(do="stop", name=wall),
        Step(do="stop", name=cut),
        Step(do="await", what="leader"),
        Step(do="await", what="acks"),
        Step(do="stop", name=kill, after_s=1.5),
        Step(do="await", what="healthy"),
    )


def zombie_leader(name: str) -> tuple[Step, ...]:
    """Cut the leader off while ``other`` sleeps, then let everything go on: nobody is killed.

    The old leader is there, with a tail that nobody else has, when the others elect and send it
    the first entries of the new term.
    """
    cut, wall, pause = (f"{name}-{part}" for part in ("cut", "cut-other", "pause"))
    return (
        Step(do="look"),
        Step(do="start", name=cut, kind="cut", targets=("leader", "follower"), after_s=0.5),
        Step(do="start", name=wall, kind="cut", targets=("leader", "other"), after_s=0.3),
        Step(do="start", name=pause, kind="pause", targets=("other",)),
        Step(do="stop", name=pause, after_s=1.0),
        Step(do="stop", name=wall),
        Step(do="stop", name=cut),
        Step(do="await", what="acks"),
        Step(do="await", what="healthy"),
    )


def pause_follower(name: str, *, hold_s: float = 2.0) -> tuple[Step, ...]:
    """Freeze one follower and let it go on: it must catch up, nobody else may notice."""
    return (
        Step(do="look"),
        Step(do="start", name=f"{name}-pause", kind="pause", targets=("follower",), after_s=0.5),
        Step(do="stop", name=f"{name}-pause", after_s=hold_s),
        Step(do="await", what="healthy"),
    )


CONSUMER_CRASH_S = 5.0
"""After the first kill, when another leader answers for the group's offsets."""
ROUND_S = 18.0
"""About how long the three acts of the demo take together."""


FLUSH = {"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"}


def flush_of(seed: int, chosen: str | None) -> str:
    """Return the flush mode of a run: the one chosen, else by the seed, half and half."""
    return FLUSH[chosen] if chosen else ("ASYNC_FLUSH", "SYNC_FLUSH")[seed % 2]


def demo(*, seconds: float = 18.0, rate: float = 300.0, workload: str = "plain") -> Scenario:
    """The main job: rounds of leader kill, minority leader, paused follower, for ``seconds``."""
    rounds = max(1, round(seconds / ROUND_S))
    timeline: tuple[Step, ...] = ()
    for at in range(1, rounds + 1):
        mark = "" if rounds == 1 else f"{at}."
        timeline += kill_leader(f"{mark}1") + minority_leader(f"{mark}2")
        timeline += pause_follower(f"{mark}3")
    return Scenario(
        name="demo",
        workload=replace(WORKLOADS[workload], rate=rate),
        timeline=timeline,
        coverage={"kill": 2, "cut": 1, "pause": 2},
        timeline_s_max=120.0 * rounds,
        crash_consumer_s=CONSUMER_CRASH_S,
    )


def baseline(*, seconds: float = 6.0, rate: float = 200.0, workload: str = "plain") -> Scenario:
    """No faults at all: whatever is reported here is a fault of the harness or of the build."""
    load = replace(WORKLOADS[workload], producers=2, consumers=2, rate=rate)
    return Scenario(name="baseline", workload=load, warmup_s=1.0, baseline_s=seconds)


def failover(*, kills: int = 20, rate: float = 300.0, workload: str = "plain") -> Scenario:
    """The leader is killed again and again; measures how long sends are refused."""
    timeline: tuple[Step, ...] = ()
    for at in range(1, kills + 1):
        timeline += kill_leader(str(at), down_s=2.5)
    return replace(
        demo(rate=rate, workload=workload),
        name="failover",
        crash_consumer_s=None,
        timeline=timeline,
        coverage={"kill": kills},
        timeline_s_max=15.0 * kills,
    )


def zombies(*, rounds: int = 5, rate: float = 300.0, workload: str = "plain") -> Scenario:
    """The leader is left alone with a tail of its own and comes back alive, again and again."""
    timeline: tuple[Step, ...] = ()
    for at in range(1, rounds + 1):
        timeline += zombie_leader(str(at))
    return replace(
        demo(rate=rate, workload=workload),
        name="zombies",
        crash_consumer_s=None,
        timeline=timeline,
        coverage={"cut": rounds, "pause": rounds},
        timeline_s_max=20.0 * rounds,
    )

"""How each kind of fault is drawn: which target, how long, with which parameters.

Holds are chosen from the run's own constants (election timeout, heartbeat), a little below and
above them, because that is where bugs are. Pure. Source: spec/proof.md 2, 2.1 (lease table).
"""

from collections.abc import Callable
from typing import Final

from sim.disk_rules import Op
from sim.faults.classic import MASTER, SLAVES
from sim.faults.plan import FaultKind, Options, Package, Role, Value
from sim.faults.recipe import LOSS_MODES, SIDES, Drawn, Recipe
from sim.faults.switch_recipes import SWITCH
from sim.rng import SplitRng

BLIP_P: Final = 0.3
ALONE: Final = "b0"
"""The host of a broker outside the group."""
MESSAGES: Final = ("heartbeats", "votes", "acks", "appends")
HOW: Final = ("crash", "pause", "cut")
"""What happens to a name server."""
WHICH: Final = ("one", "all")
"""Name servers that a fault is about."""
LATE_MS: Final = (900, 2_000, 4_000, 8_000)
"""How long a broker holds a connection of which its client has no end any more."""
CHANGING_STEPS: Final = (Op.CREATE, Op.WRITE, Op.SYNC, Op.RENAME, Op.SYNC_DIRECTORY)


def _hold_ms(rng: SplitRng, options: Options) -> int:
    """Return how long a fault holds: a blip, around the election timeout, or long."""
    if rng.split("blip").chance(BLIP_P):
        return rng.split("short").randint(20, options.election_ms)
    factor = rng.split("factor").choice((0.8, 1.2, 2.0, 4.0, 8.0))
    return int(options.election_ms * factor)


def _broker(rng: SplitRng) -> str:
    """Return a role; every second time it is the leader's."""
    roles = (Role.LEADER, Role.FOLLOWER, Role.EX_LEADER, Role.MOST_BEHIND, Role.RANDOM)
    return rng.split("role").weighted(roles, (5, 2, 1, 1, 1))


def _on_broker(**params: tuple[Value, ...]) -> Callable[[SplitRng, Options], Drawn]:
    """Return a drawer for a fault at one broker; each parameter is one of the values given."""

    def draw(rng: SplitRng, options: Options) -> Drawn:
        chosen = {name: rng.split(name).choice(values) for name, values in params.items()}
        return Drawn(_broker(rng), _hold_ms(rng, options), chosen)

    return draw


def _at(role: str, **params: tuple[Value, ...]) -> Callable[[SplitRng, Options], Drawn]:
    """Return a drawer for a fault with a fixed role."""

    def draw(rng: SplitRng, options: Options) -> Drawn:
        return _on_broker(**params)(rng, options)._replace(target=role)

    return draw


def _frames(rng: SplitRng, options: Options) -> Drawn:
    """Draw what happens to frames between brokers: which messages, to and from whom, how often."""
    params: dict[str, Value] = {
        "messages": rng.split("messages").choice((*MESSAGES, "all")),
        "side": rng.split("side").choice(("to", "from", "both")),
        "probability": rng.split("probability").choice((0.05, 0.2, 0.5)),
    }
    return Drawn(_broker(rng), _hold_ms(rng, options) * 2, params)


def _drop(rng: SplitRng, options: Options) -> Drawn:
    drawn = _frames(rng, options)
    drawn.params["messages"] = rng.split("which").choice(MESSAGES)
    drawn.params["probability"] = rng.split("share").choice((0.3, 1.0))
    return drawn


def _heartbeats_only(rng: SplitRng, options: Options) -> Drawn:
    """Draw a leader whose entries reach nobody, while its heartbeats do."""
    params: dict[str, Value] = {"messages": "appends", "side": "from", "probability": 1.0}
    return Drawn(Role.LEADER, _hold_ms(rng, options) * 2, params)


def _flap(rng: SplitRng, options: Options) -> Drawn:
    period_ms = rng.split("period").choice((50, 150, 400, 1_000, 2_500))
    count = rng.split("count").randint(2, 8)
    return Drawn(_broker(rng), min(period_ms * count, options.safety_ms), {"period_ms": period_ms})


def _step(rng: SplitRng) -> tuple[str, Op]:
    """Return some files of a broker, and a step that happens to them."""
    state = (Op.CREATE, Op.WRITE, Op.SYNC, Op.RENAME)
    data = (Op.CREATE, Op.WRITE, Op.WRITE, Op.SYNC, Op.SYNC)
    glob, ops = rng.split("glob").weighted(
        (
            ("*/currterm*", state), ("*/membership*", state), ("*/snapshot*", state),
            ("*/checkpoint*", state), ("*/config*", state), ("*/dledger-*", CHANGING_STEPS),
            ("*/data*", data), ("*/index*", data), ("*/consumequeue*", data),
        ),
        (4, 1, 1, 1, 1, 2, 4, 2, 2),
    )  # fmt: skip
    return glob, rng.split("op").choice(ops)


def _crash_at(rng: SplitRng, options: Options) -> Drawn:
    """Draw a step at which the first broker to come there is to end."""
    glob, op = _step(rng)
    params: dict[str, Value] = {
        "op": op.value,
        "glob": glob,
        "skip": rng.split("skip").choice((0, 0, 1, 5)),
        "when": rng.split("when").choice(("before", "after")),
        "down_ms": rng.split("down").choice((10, 300, 1_500)),
    }
    return Drawn(Role.ALL, max(5_000, _hold_ms(rng, options)), params)


def _crash_alone_at(rng: SplitRng, options: Options) -> Drawn:
    """Draw a step at which a broker outside the group is to end."""
    drawn = _crash_at(rng, options)
    glob = rng.split("files").choice(
        ("*/commitlog/*", "*/commitlog/*", "*/dledger-*", "*/consumequeue*", "*/config*", "*/c*t*")
    )
    return drawn._replace(target=ALONE, params={**drawn.params, "glob": glob})


def _eio(rng: SplitRng, options: Options) -> Drawn:
    glob, op = _step(rng)
    params: dict[str, Value] = {
        "op": op.value,
        "glob": glob,
        "count": rng.split("count").randint(1, 2),
    }
    return Drawn(_broker(rng), max(4_000, _hold_ms(rng, options)), params)


def _drift(rng: SplitRng, options: Options) -> Drawn:
    """Draw a rate of a clock; from half to double the speed, mostly a few percent."""
    rate = rng.split("rate").choice((0.5, 0.9, 0.98, 1.02, 1.1, 2.0))
    return Drawn(_broker(rng), max(2_000, _hold_ms(rng, options)), {"rate": rate})


def _order(rng: SplitRng, _: Options) -> Drawn:
    """Draw how long an operator insists."""
    return Drawn(_broker(rng), rng.split("patience").choice((500, 3_000, 10_000)), {})


def _stop_and(rng: SplitRng, options: Options) -> Drawn:
    """Draw what meets a process that has just ended in good order and starts again."""
    params: dict[str, Value] = {
        "then": rng.split("then").choice(("crash", "crash", "trim", "trim crash", "stop")),
        "count": rng.split("count").choice((1, 1, 2, 3)),
        "down_ms": rng.split("down").choice((20, 300)),
        "after_ms": rng.split("after").choice((1, 30, 200, 800)),
        "trim_ms": rng.split("trim").choice((1, 30, 300)),
    }
    return Drawn(_broker(rng), max(3_000, _hold_ms(rng, options)), params)


def _stop_alone_and(rng: SplitRng, options: Options) -> Drawn:
    """Draw the same for a broker outside the group."""
    drawn = _stop_and(rng, options)
    then = rng.split("then").choice(("crash", "crash", "power", "stop"))
    return drawn._replace(target=ALONE, params={**drawn.params, "then": then})


def _registry(**params: tuple[Value, ...]) -> Callable[[SplitRng, Options], Drawn]:
    """Return a drawer for a fault between a broker and name servers, short or of seconds."""

    def draw(rng: SplitRng, options: Options) -> Drawn:
        drawn = _on_broker(**params)(rng, options)
        is_long = rng.split("long").chance(0.5)
        long_ms = rng.split("hold").randint(1_500, 6_000)
        return drawn._replace(for_ms=long_ms) if is_long else drawn

    return draw


def _away(rng: SplitRng, _: Options) -> Drawn:
    """Draw who is away for so long that the others go on without it."""
    role = rng.split("role").choice((Role.FOLLOWER, Role.MOST_BEHIND, Role.LEADER))
    return Drawn(role, rng.split("hold").randint(2_000, 5_000), {})


CLASSIC_HOLDS_MS: Final = (50, 300, 1_000, 2_500, 6_000, 12_000)
"""From a blip to what has consumers go to a slave."""


def _of_pair(
    to_master: float = 0.5, **params: tuple[Value, ...]
) -> Callable[[SplitRng, Options], Drawn]:
    """Return a drawer for a fault at a master, so probably, or at a slave."""

    def draw(rng: SplitRng, options: Options) -> Drawn:
        classic = options.classic
        slaves = SLAVES[: 1 if classic is None else classic.slaves]
        is_master = rng.split("master").chance(to_master)
        chosen = {name: rng.split(name).choice(values) for name, values in params.items()}
        target = MASTER if is_master else rng.split("slave").choice(slaves)
        return Drawn(target, rng.split("hold").choice(CLASSIC_HOLDS_MS), chosen)

    return draw


def _crash_pair_at(rng: SplitRng, options: Options) -> Drawn:
    """Draw a step at which a master or a slave is to end."""
    drawn, pair = _crash_at(rng, options), _of_pair()(rng, options)
    glob = rng.split("files").choice(
        ("*/commitlog/*", "*/commitlog/*", "*/consumequeue*", "*/c*t*", "*/config*")
    )
    return drawn._replace(target=pair.target, params={**drawn.params, "glob": glob})


def _half_open(role: str) -> Callable[[SplitRng, Options], Drawn]:
    """Return a drawer for connections of which a broker holds its end for some time more."""

    def draw(rng: SplitRng, _options: Options) -> Drawn:
        late_ms = rng.split("late").choice(LATE_MS)
        return Drawn(role, late_ms, {"late_ms": late_ms})

    return draw


_BROKER = _on_broker()
STOPPED: Final = Recipe(FaultKind.STOP, _BROKER)
"""A broker that ends in good order."""
NAMESRV_RESTARTED: Final = Recipe(FaultKind.NAMESRV_CRASH, _at(Role.NAMESRV))
"""A name server that is killed, and begins anew."""

RECIPES: Final[dict[Package, tuple[Recipe, ...]]] = {
    Package.PARTITION: (
        Recipe(FaultKind.ISOLATE, _BROKER, 3),
        Recipe(FaultKind.HALVES, _BROKER),
        Recipe(FaultKind.BRIDGE, _on_broker(middle=("leader", "follower")), 2),
        Recipe(FaultKind.RING, _BROKER, 0.5),
        Recipe(FaultKind.ONE_WAY, _on_broker(side=("to", "from"), acks=(0, 1)), 2),
        Recipe(FaultKind.LEADER_MINORITY, _at(Role.LEADER)),
        Recipe(FaultKind.LEADER_MAJORITY, _at(Role.LEADER)),
        Recipe(FaultKind.CLIENT_CUT, _at(Role.PRODUCER, who=("producer", "consumer"))),
    ),
    Package.FRAMES: (
        Recipe(FaultKind.DROP, _drop, 3),
        Recipe(FaultKind.DROP, _heartbeats_only),
        Recipe(FaultKind.DUPLICATE, _frames),
        Recipe(FaultKind.REORDER, _frames),
        Recipe(FaultKind.REPLAY, _frames),
        Recipe(FaultKind.CORRUPT, _frames),
    ),
    Package.LINK: (
        Recipe(
            FaultKind.DELAY,
            _on_broker(
                base_ms=(1, 20, 100, 400), spread_ms=(0, 10, 100), loss=(0.0, 0.0, 0.05, 0.3)
            ),
            3,
        ),
        Recipe(FaultKind.RESET, _BROKER),
    ),
    Package.FLAP: (Recipe(FaultKind.FLAP, _flap),),
    Package.CRASH: (
        Recipe(FaultKind.CRASH, _BROKER, 4),
        Recipe(FaultKind.STOP, _BROKER),
        Recipe(FaultKind.STOP_AND, _stop_and, 2),
        Recipe(FaultKind.CRASH_LOOP, _on_broker(count=(2, 4), period_ms=(100, 700, 2_000))),
        Recipe(FaultKind.RESTART_ALL, _at(Role.ALL, gracefully=(0, 1))),
    ),
    Package.CRASH_AT: (Recipe(FaultKind.CRASH_AT, _crash_at),),
    Package.PAUSE: (Recipe(FaultKind.PAUSE, _BROKER),),
    Package.POWER: (
        Recipe(FaultKind.POWER_LOSS, _on_broker(mode=LOSS_MODES), 3),
        Recipe(FaultKind.POWER_LOSS_ALL, _at(Role.ALL, mode=LOSS_MODES)),
    ),
    Package.DISK_ERROR: (Recipe(FaultKind.EIO, _eio),),
    Package.DISK_FULL: (
        Recipe(FaultKind.DISK_FULL, _on_broker(free_bytes=(0, 4_096, 32_768))),
        Recipe(FaultKind.DISK_FULL, _at(Role.ALL, free_bytes=(0, 16_384)), 0.3),
    ),
    Package.DISK_SLOW: (
        Recipe(FaultKind.SLOW_DISK, _on_broker(ms=(10, 60, 250), op=("sync", "write", "all"))),
        Recipe(FaultKind.HUNG_DISK, _on_broker(op=("sync", "write"), glob=("*", "*/data/*"))),
    ),
    Package.DISK_DAMAGE: (
        Recipe(FaultKind.BIT_ROT, _on_broker(glob=("*/data/*",), bytes=(1, 3))),
        Recipe(FaultKind.WIPE, _on_broker()),
        Recipe(FaultKind.LYING_SYNC, _on_broker(), 1, is_overkill=True),
    ),
    Package.CLOCK: (
        Recipe(
            FaultKind.CLOCK_JUMP,
            _on_broker(ms=(-288_000, -30_000, -1_000, -100, 100, 1_000, 30_000, 288_000)),
        ),
        Recipe(FaultKind.CLOCK_DRIFT, _drift, 2),
        Recipe(FaultKind.CLOCK_STROBE, _on_broker(ms=(4, 500, 30_000), period_ms=(20, 200, 1_000))),
    ),
    Package.MEMBERS: (
        Recipe(FaultKind.ADD, _order),
        Recipe(FaultKind.REMOVE, _order),
        Recipe(FaultKind.REPLACE, _order),
    ),
    Package.TRANSFER: (Recipe(FaultKind.TRANSFER, _at(Role.FOLLOWER)),),
    Package.CLIENTS: (
        Recipe(FaultKind.CLIENT_CRASH, _at(Role.PRODUCER)),
        Recipe(FaultKind.CLIENT_CRASH, _at(Role.CONSUMER)),
        Recipe(FaultKind.CLIENT_LEAVE, _at(Role.CONSUMER)),
    ),
    Package.HALF_OPEN: (
        Recipe(FaultKind.CLIENT_RESET, _half_open(Role.PRODUCER)),
        Recipe(FaultKind.CLIENT_RESET, _half_open(Role.CONSUMER)),
        Recipe(FaultKind.CLIENT_RESET, _half_open(Role.MEMBER), 2),
        Recipe(FaultKind.CLIENT_RESET, _half_open(Role.ASKER), 4),
    ),
    Package.ALONE: (
        Recipe(FaultKind.CRASH, _at(ALONE), 3),
        Recipe(FaultKind.STOP, _at(ALONE)),
        Recipe(FaultKind.STOP_AND, _stop_alone_and, 3),
        Recipe(FaultKind.NAMESRV_CUT, _at(ALONE, which=("one", "all"), side=SIDES)),
        Recipe(FaultKind.PAUSE, _at(ALONE)),
        Recipe(FaultKind.POWER_LOSS, _at(ALONE, mode=LOSS_MODES), 4),
        Recipe(FaultKind.CRASH_AT, _crash_alone_at, 3),
        Recipe(FaultKind.SLOW_DISK, _at(ALONE, ms=(10, 60), op=("sync", "write", "all"))),
        Recipe(FaultKind.DISK_FULL, _at(ALONE, free_bytes=(0, 32_768))),
        Recipe(FaultKind.CRASH_LOOP, _at(ALONE, count=(2, 4), period_ms=(100, 700, 2_000))),
    ),
    Package.DERIVED: (
        Recipe(
            FaultKind.SPOIL,
            _on_broker(
                glob=("*/consumequeue/*", "*/consumequeue.checkpoint", "*/consumequeue*"),
                bytes=(1, 3),
            ),
        ),
    ),
    Package.BEHIND: (
        Recipe(FaultKind.CRASH, _away, 2),
        Recipe(FaultKind.ISOLATE, _away),
        Recipe(FaultKind.WIPE, _away, 2),
    ),
    Package.CLASSIC: (
        Recipe(FaultKind.CRASH, _of_pair(), 5),
        Recipe(FaultKind.STOP, _of_pair(), 2),
        Recipe(FaultKind.PAUSE, _of_pair(), 3),
        Recipe(FaultKind.POWER_LOSS, _of_pair(mode=LOSS_MODES), 4),
        Recipe(FaultKind.WIPE, _of_pair(), 2),
        Recipe(FaultKind.ISOLATE, _of_pair(), 3),
        Recipe(FaultKind.ONE_WAY, _of_pair(side=("to", "from"), acks=(0, 1)), 3),
        Recipe(FaultKind.FLAP, _of_pair(period_ms=(150, 1_000)), 1),
        Recipe(FaultKind.DELAY, _of_pair(base_ms=(20, 100, 400), loss=(0.0, 0.05, 0.3)), 2),
        Recipe(FaultKind.RESET, _of_pair()),
        Recipe(FaultKind.SLOW_DISK, _of_pair(ms=(10, 60, 250), op=("sync", "write", "all")), 3),
        Recipe(FaultKind.DISK_FULL, _of_pair(free_bytes=(0, 4_096)), 1),
        Recipe(FaultKind.CRASH_AT, _crash_pair_at, 2),
        Recipe(FaultKind.CRASH_LOOP, _of_pair(count=(2, 4), period_ms=(100, 700, 2_000)), 1),
        Recipe(FaultKind.RESTART_ALL, _at(Role.ALL, gracefully=(0, 1)), 1),
        Recipe(FaultKind.NAMESRV_CRASH, _at(Role.NAMESRV), 1),
        Recipe(FaultKind.NAMESRV_CUT, _of_pair(which=("all",), side=SIDES), 1),
        Recipe(FaultKind.CLIENT_CRASH, _at(Role.CONSUMER), 1),
        Recipe(FaultKind.CLIENT_CRASH, _at(Role.PRODUCER), 1),
    ),
    Package.SWITCH: SWITCH,
    Package.NAMESRV: (
        Recipe(FaultKind.NAMESRV_CRASH, _at(Role.NAMESRV), 2),
        Recipe(FaultKind.NAMESRV_PAUSE, _at(Role.NAMESRV)),
        Recipe(FaultKind.NAMESRV_CUT, _registry(which=WHICH, side=SIDES, acks=(0, 1)), 3),
        Recipe(
            FaultKind.NAMESRV_DELAY, _registry(which=WHICH, base_ms=(100, 700), loss=(0.0, 0.3))
        ),
        Recipe(FaultKind.NAMESRV_RESET, _on_broker(which=WHICH)),
        Recipe(
            FaultKind.NAMESRV_TURN,
            _registry(after_ms=(0, 200, 600, 1_000), down_ms=(10, 300, 1_500, 4_000), how=HOW),
            2,
        ),
    ),
}

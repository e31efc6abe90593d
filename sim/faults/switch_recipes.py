"""How faults are drawn of brokers that controllers switch, and of these controllers. Pure.

Holds are chosen around the run's own constants: how long a silent replica counts as alive, how long
a slave may lag before it is taken out of the in-sync set.
"""

from collections.abc import Callable
from typing import Final

from sim.faults.plan import FaultKind, Options, Role, Value
from sim.faults.recipe import LOSS_MODES, SIDES, Drawn, Recipe
from sim.faults.switch import Switch
from sim.rng import SplitRng

_Draw = Callable[[SplitRng, Options], Drawn]

BLIPS_MS: Final = (30, 150, 400)
FACTORS: Final = (0.5, 1.1, 1.5, 3.0)
"""Of how long a silent replica counts as alive."""
FILES: Final = (
    "*/commitlog/*", "*/commitlog/*", "*epochFileCheckpoint*", "*epochFileCheckpoint*",
    "*brokerIdentity*", "*/consumequeue*", "*/config*",
)  # fmt: skip
CONTROLLER_FILES: Final = ("*/controller/journal*", "*/controller/vote*", "*/controller/*")
STEPS: Final = ("create", "write", "sync", "rename")


def hold_ms(rng: SplitRng, switch: Switch) -> int:
    """Return how long a fault holds: a blip, or around what has the controllers act."""
    if rng.split("blip").chance(0.3):
        return rng.split("short").choice(BLIPS_MS)
    long_ms = rng.split("of").choice((switch.silence_ms, switch.silence_ms, switch.behind_max_ms))
    return int(long_ms * rng.split("factor").choice(FACTORS))


def _chosen(rng: SplitRng, params: dict[str, tuple[Value, ...]]) -> dict[str, Value]:
    return {name: rng.split(name).choice(values) for name, values in params.items()}


def _at_broker(to_master: float = 0.5, **params: tuple[Value, ...]) -> _Draw:
    """Return a drawer for a fault at the master, so probably, or at some broker."""

    def draw(rng: SplitRng, options: Options) -> Drawn:
        switch = options.switch or Switch()
        is_master = rng.split("master").chance(to_master)
        target = Role.LEADER if is_master else rng.split("which").choice(switch.names)
        return Drawn(target, hold_ms(rng, switch), _chosen(rng, params))

    return draw


def _at_controller(to_leader: float = 0.6, **params: tuple[Value, ...]) -> _Draw:
    """Return a drawer for a fault at the controller that leads, so probably, or at any."""

    def draw(rng: SplitRng, options: Options) -> Drawn:
        is_leader = rng.split("leads").chance(to_leader)
        target = Role.CONTROLLER if is_leader else Role.NAMESRV
        return Drawn(target, hold_ms(rng, options.switch or Switch()), _chosen(rng, params))

    return draw


def _at_all(**params: tuple[Value, ...]) -> _Draw:
    def draw(rng: SplitRng, options: Options) -> Drawn:
        return _at_broker(0.0, **params)(rng, options)._replace(target=Role.ALL)

    return draw


def _at_client(role: str) -> _Draw:
    def draw(rng: SplitRng, options: Options) -> Drawn:
        return _at_broker()(rng, options)._replace(target=role)

    return draw


def _crash_at(files: tuple[str, ...], base: _Draw) -> _Draw:
    """Return a drawer for a step of the disk at which a process is to end."""

    def draw(rng: SplitRng, options: Options) -> Drawn:
        params: dict[str, Value] = {
            "op": rng.split("op").choice(STEPS),
            "glob": rng.split("files").choice(files),
            "skip": rng.split("skip").choice((0, 0, 1, 5)),
            "when": rng.split("when").choice(("before", "after")),
            "down_ms": rng.split("down").choice((10, 300, 1_500)),
        }
        drawn = base(rng, options)
        return drawn._replace(for_ms=max(3_000, drawn.for_ms), params=params)

    return draw


_JUMPS_MS: Final = (-50_000, -5_000, -500, 500, 5_000, 50_000)

SWITCH: Final = (
    Recipe(FaultKind.CRASH, _at_broker(0.7), 6),
    Recipe(FaultKind.STOP, _at_broker(0.7), 2),
    Recipe(FaultKind.PAUSE, _at_broker(0.6), 4),
    Recipe(FaultKind.POWER_LOSS, _at_broker(mode=LOSS_MODES), 4),
    Recipe(FaultKind.WIPE, _at_broker(0.4), 2),
    Recipe(FaultKind.ISOLATE, _at_broker(), 4),
    Recipe(FaultKind.ONE_WAY, _at_broker(side=("to", "from"), acks=(0, 1)), 3),
    Recipe(FaultKind.FLAP, _at_broker(period_ms=(150, 1_000)), 1),
    Recipe(FaultKind.DELAY, _at_broker(base_ms=(20, 100, 400), loss=(0.0, 0.05, 0.3)), 2),
    Recipe(FaultKind.RESET, _at_broker()),
    Recipe(FaultKind.SLOW_DISK, _at_broker(ms=(10, 60, 250), op=("sync", "write", "all")), 3),
    Recipe(FaultKind.HUNG_DISK, _at_broker(op=("sync", "write"), glob=("*", "*/commitlog/*")), 2),
    Recipe(FaultKind.DISK_FULL, _at_broker(free_bytes=(0, 4_096)), 1),
    Recipe(FaultKind.CRASH_AT, _crash_at(FILES, _at_broker()), 3),
    Recipe(FaultKind.CRASH_LOOP, _at_broker(count=(2, 4), period_ms=(100, 700, 2_000)), 1),
    Recipe(FaultKind.RESTART_ALL, _at_all(gracefully=(0, 1)), 1),
    Recipe(FaultKind.CLOCK_JUMP, _at_broker(ms=_JUMPS_MS), 1),
    Recipe(FaultKind.CLOCK_DRIFT, _at_broker(rate=(0.9, 0.98, 1.02, 1.1)), 1),
    Recipe(FaultKind.NAMESRV_CUT, _at_broker(which=("all", "one"), side=SIDES, acks=(0, 1)), 5),
    Recipe(FaultKind.NAMESRV_DELAY, _at_broker(which=("all", "one"), base_ms=(100, 700)), 1),
    Recipe(FaultKind.NAMESRV_CRASH, _at_controller(), 4),
    Recipe(FaultKind.NAMESRV_PAUSE, _at_controller(), 2),
    Recipe(FaultKind.ISOLATE, _at_controller(), 3),
    Recipe(FaultKind.ONE_WAY, _at_controller(side=("to", "from"), acks=(0, 1)), 2),
    Recipe(FaultKind.DELAY, _at_controller(base_ms=(20, 100, 400), loss=(0.0, 0.05, 0.3)), 1),
    Recipe(FaultKind.POWER_LOSS, _at_controller(mode=LOSS_MODES), 3),
    Recipe(FaultKind.SLOW_DISK, _at_controller(ms=(10, 60, 250), op=("sync", "write")), 2),
    Recipe(FaultKind.HUNG_DISK, _at_controller(op=("sync", "write"), glob=("*",)), 1),
    Recipe(FaultKind.CRASH_AT, _crash_at(CONTROLLER_FILES, _at_controller(0.3)), 2),
    Recipe(FaultKind.CLOCK_JUMP, _at_controller(ms=_JUMPS_MS), 1),
    Recipe(FaultKind.CLIENT_CRASH, _at_client(Role.CONSUMER), 1),
    Recipe(FaultKind.CLIENT_CRASH, _at_client(Role.PRODUCER), 1),
)

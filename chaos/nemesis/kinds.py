"""Every kind of fault that the nemesis has: how it is made, of whom, with which parameters.

By its name in histories; what else is known of it is in `chaos.catalogue`. Scenarios are checked
against this before anything starts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from chaos.catalogue.contracts import CONTROLLER, MODES, RAFT
from chaos.nemesis.base import Fault
from chaos.nemesis.clients import ClientKill, Storm
from chaos.nemesis.controllers import Isolation, cut_controllers
from chaos.nemesis.disk import damage
from chaos.nemesis.limits import Descriptors, Starve
from chaos.nemesis.membership import Remove, Transfer
from chaos.nemesis.partition import cut_clients, cut_link, cut_name_servers, cut_one_way, isolate
from chaos.nemesis.power import loses_power
from chaos.nemesis.process import Kill, Pause
from chaos.nemesis.restarts import CrashLoop, RestartAll, Rolling, Stop
from chaos.nemesis.retention import Trim
from chaos.nemesis.servers import of_servers
from chaos.nemesis.shaping import shape_name_servers, shape_peers
from chaos.nemesis.shimmed import STEPS, shimmed
from chaos.net.rules import CODES
from chaos.shim.unsynced import Loss

ROLES: Final = ("leader", "follower", "other", "any", "all")
"""Names of nodes in a plan: bound by a look. ``any`` is drawn, ``all`` stands for every broker."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A number that a kind takes: what it is if nobody says, and its limits."""

    default: float
    low: float
    high: float

    def check(self, value: object) -> float:
        """Return a value that is allowed. Errors: ValueError."""
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
        if number is None or not self.low <= number <= self.high:
            raise ValueError(f"{value!r} is not a number of {self.low:g}..{self.high:g}")
        return float(number)


@dataclass(frozen=True, slots=True)
class OneOf:
    """A word that a kind takes, of a few."""

    words: tuple[str, ...]

    @property
    def default(self) -> str:
        """What it is if nobody says."""
        return self.words[0]

    def check(self, value: object) -> str:
        """Return a value that is allowed. Errors: ValueError."""
        if value not in self.words:
            raise ValueError(f"{value!r} is not one of {', '.join(self.words)}")
        return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of fault; ``make(setting, *nodes, **parameters)`` makes one."""

    make: Callable[..., Fault]
    targets: tuple[int, int] = (1, 1)
    """Least and most roles that it takes; `all` counts as one."""
    parameters: Mapping[str, Bounds | OneOf] = field(default_factory=dict)
    method: str = ""
    """How it is done, as the ``faults`` table names it; none: as the cluster breaks links."""
    shimmed: bool = False
    """Whether a library must stand between brokers and their disks and clocks."""
    every_link: bool = False
    """Whether clients and name servers must be behind links that can be broken."""
    modes: tuple[str, ...] = tuple(MODES)
    """The ways to replicate that have what it is done to."""

    def complete(self, given: Mapping[str, Any]) -> dict[str, float | str]:
        """Return all parameters: those given, else their defaults. Errors: ValueError."""
        unknown = sorted(set(given) - set(self.parameters))
        if unknown:
            takes = ", ".join(self.parameters) or "none"
            raise ValueError(f"no parameter is called {', '.join(unknown)}; there are: {takes}")
        found: dict[str, float | str] = {}
        for name, one in self.parameters.items():
            try:
                found[name] = one.check(given[name]) if name in given else one.default
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        return found


_SHARE: Final = {"share": Bounds(0.2, 0.001, 1)}
_LATE: Final = {"ms": Bounds(100, 1, 30_000), "jitter_ms": Bounds(0, 0, 30_000)}
_LINKS: Final = (1, 2)
_SOME: Final = (1, 3)
_FILES: Final = "files"
_REQUEST: Final = "request"


def _shape(kind: str, parameters: Mapping[str, Bounds | OneOf]) -> Kind:
    return Kind(make=shape_peers(kind), targets=_LINKS, parameters=parameters)


def _library(kind: str, parameters: Mapping[str, Bounds | OneOf]) -> Kind:
    return Kind(make=shimmed(kind), parameters=parameters, method="LD_PRELOAD", shimmed=True)


def _power(kind: str, targets: tuple[int, int]) -> Kind:
    parameters: dict[str, Bounds | OneOf] = {
        "what": OneOf(tuple(loss.value for loss in Loss)),
        "noted_ms": Bounds(1_000, 50, 60_000),
        "slow_ms": Bounds(0, 0, 1_000),
    }
    made = loses_power(kind)
    return Kind(
        make=made, targets=targets, parameters=parameters, method="LD_PRELOAD", shimmed=True
    )


def _of_name_servers(kind: str, parameters: Mapping[str, Bounds | OneOf]) -> Kind:
    made = shape_name_servers(kind)
    return Kind(make=made, targets=(1, 3), parameters=parameters, every_link=True)


def _servers(kind: str, count: int, method: str) -> Kind:
    made, parameters = of_servers(kind), {"count": Bounds(count, 1, 3)}
    modes = (CONTROLLER,) if kind.startswith("controller_") else tuple(MODES)
    return Kind(make=made, targets=(0, 0), parameters=parameters, method=method, modes=modes)


FAULTS: Final[Mapping[str, Kind]] = {
    "kill": Kind(make=Kill, method="SIGKILL"),
    "pause": Kind(make=Pause, method="SIGSTOP"),
    "stop": Kind(make=Stop, method="SIGTERM"),
    "rolling": Kind(
        make=Rolling,
        targets=_SOME,
        parameters={"down_ms": Bounds(500, 0, 30_000)},
        method="SIGTERM",
    ),
    "restart_all": Kind(make=RestartAll, targets=_SOME, method="SIGKILL"),
    "crash_loop": Kind(
        make=CrashLoop,
        parameters={"times": Bounds(4, 1, 50), "up_ms": Bounds(700, 0, 30_000)},
        method="SIGKILL",
    ),
    "starve": Kind(
        make=Starve,
        parameters={"share": Bounds(0.8, 0.1, 0.99), "period_ms": Bounds(200, 20, 5_000)},
        method="SIGSTOP",
    ),
    "descriptors": Kind(
        make=Descriptors, parameters={"spare": Bounds(0, 0, 1_000)}, method="prlimit"
    ),
    "client_kill": Kind(
        make=ClientKill,
        targets=(0, 0),
        parameters={"role": OneOf(("consumer", "producer", "orderly", "broadcast"))},
        method="SIGKILL",
    ),
    "rebalance_storm": Kind(
        make=Storm,
        targets=(0, 0),
        parameters={
            "stay_ms": Bounds(1_000, 0, 60_000),
            "away_ms": Bounds(500, 0, 60_000),
            "role": OneOf(("consumer", "orderly")),
        },
        method="clients",
    ),
    "wipe": Kind(make=damage("wipe"), method=_FILES),
    "rollback": Kind(
        make=damage("rollback"), parameters={"age_ms": Bounds(2_000, 0, 60_000)}, method=_FILES
    ),
    "flip": Kind(make=damage("flip"), parameters={"bits": Bounds(3, 1, 10_000)}, method=_FILES),
    "truncate": Kind(
        make=damage("truncate"), parameters={"bytes": Bounds(4_096, 1, 1 << 30)}, method=_FILES
    ),
    "spoil": Kind(make=damage("spoil"), method=_FILES),
    "eio": _library("eio", {"of": OneOf(("sync", "write")), "times": Bounds(1, 1, 1_000_000)}),
    "full": _library("full", {}),
    "crash_at": _library("crash_at", {"at": OneOf(tuple(STEPS)), "times": Bounds(1, 1, 1_000_000)}),
    "lie": _library("lie", {}),
    "power_loss": _power("power_loss", (1, 1)),
    "power_loss_all": _power("power_loss_all", _SOME),
    "slow": _library("slow", {"ms": Bounds(50, 1, 10_000)}),
    "hang": _library("hang", {}),
    "clock_jump": _library("clock_jump", {"ms": Bounds(-30_000, -1e9, 1e9)}),
    "clock_strobe": _library(
        "clock_strobe", {"ms": Bounds(5_000, -1e9, 1e9), "period_ms": Bounds(200, 1, 60_000)}
    ),
    "clock_drift": _library("clock_drift", {"percent": Bounds(100, -50, 100)}),
    "cut": Kind(make=cut_link, targets=(2, 2)),
    "oneway": Kind(make=cut_one_way, targets=(2, 2)),
    "isolate": Kind(make=isolate),
    "client_cut": Kind(make=cut_clients, targets=(1, 3), every_link=True),
    "namesrv_cut": Kind(make=cut_name_servers, targets=(1, 3), every_link=True),
    "controller_cut": Kind(make=cut_controllers, targets=(1, 3), modes=(CONTROLLER,)),
    "controller_isolate": Kind(
        make=Isolation,
        targets=(0, 0),
        parameters={"count": Bounds(2, 1, 3)},
        modes=(CONTROLLER,),
    ),
    "controller_kill": _servers("controller_kill", 1, "SIGKILL"),
    "controller_pause": _servers("controller_pause", 2, "SIGSTOP"),
    "namesrv_kill": _servers("namesrv_kill", 1, "SIGKILL"),
    "namesrv_pause": _servers("namesrv_pause", 1, "SIGSTOP"),
    "remove_member": Kind(make=Remove, method=_REQUEST, modes=(RAFT,)),
    "transfer": Kind(make=Transfer, method=_REQUEST, modes=(RAFT,)),
    "trim": Kind(
        make=Trim,
        targets=_SOME,
        parameters={"keep": Bounds(100, 0, 1e9)},
        method=_REQUEST,
        modes=(RAFT,),
    ),
    "namesrv_delay": _of_name_servers("namesrv_delay", _LATE),
    "namesrv_reset": _of_name_servers("namesrv_reset", {}),
    "delay": _shape("delay", _LATE),
    "narrow": _shape("narrow", {"kib_s": Bounds(64, 1, 1 << 20)}),
    "reset": _shape("reset", {"after_bytes": Bounds(20_000, 1, 1 << 30)}),
    "duplicate": _shape("duplicate", _SHARE),
    "reorder": _shape("reorder", _SHARE),
    "replay": _shape("replay", _SHARE),
    "corrupt": _shape("corrupt", {"share": Bounds(0.02, 0.001, 1)}),
    "drop": _shape("drop", {"of": OneOf(tuple(CODES))}),
    "flap": _shape("flap", {"cut_ms": Bounds(50, 10, 60_000), "open_ms": Bounds(500, 10, 60_000)}),
}
"""By its name in histories."""

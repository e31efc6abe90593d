"""Something happens to a process just as its code waits where it has seldom waited before.

Faults that come at a drawn time meet what takes long; what takes a moment is met by chance alone.
An ambush lies over a stretch of the run. It closes at the first point that has been seen no more
than so often in this run (`sim.lookout`), in a part of the product's files that its seed chose, and
then has something happen there: to that process, to who leads, or to the log. It is no fault by
itself: what it does is one, and counts as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.faults.disk import LOG
from sim.faults.plan import FaultEvent, FaultKind, Package, Role
from sim.faults.stage import NS_PER_MS, Effect
from sim.lookout import DISK, FRAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sim.faults.plan import Value
    from sim.lookout import Point

DOES: Final[dict[str, tuple[FaultKind, Package]]] = {
    "crash": (FaultKind.CRASH, Package.CRASH),
    "power": (FaultKind.POWER_LOSS, Package.POWER),
    "cut": (FaultKind.ISOLATE, Package.PARTITION),
    "deaf": (FaultKind.ONE_WAY, Package.PARTITION),
    "pause": (FaultKind.PAUSE, Package.PAUSE),
    "lead": (FaultKind.TRANSFER, Package.TRANSFER),
    "leave": (FaultKind.CLIENT_LEAVE, Package.CLIENTS),
    "client crash": (FaultKind.CLIENT_CRASH, Package.CLIENTS),
    "client cut": (FaultKind.CLIENT_CUT, Package.CLIENTS),
    "reset": (FaultKind.CLIENT_RESET, Package.CLIENTS),
    "namesrv crash": (FaultKind.NAMESRV_CRASH, Package.NAMESRV),
    "namesrv pause": (FaultKind.NAMESRV_PAUSE, Package.NAMESRV),
    "full": (FaultKind.DISK_FULL, Package.DISK_FULL),
    "log full": (FaultKind.DISK_FULL, Package.DISK_FULL),
}
"""What may happen, by its name in the parameter ``does``; ``trim`` beside them is no fault."""
TRIM: Final = "trim"
PARAMS: Final[dict[str, dict[str, Value]]] = {
    "deaf": {"side": "from", "acks": 1},
    "full": {"free_bytes": 0},
    "log full": {"glob": f"*{LOG}*"},
}
BESIDE_CODE: Final = (FRAMES, DISK)
"""What an ambush may wait for in the place of the product's code, in its parameter ``points``."""
CONTENT: Final = 10
"""In the second half of its time it takes any file, and points seen so many times as often."""


class Ambush(Effect):
    """A trap for the processes of some hosts."""

    _closed = 0

    def apply(self) -> None:
        """Lay it."""
        number, text = self.event.number, self.event.text
        self._seen_max = int(number("seen_max", 3))
        self._chance = number("chance", 1.0)
        self._files_p = number("files", 1.0)
        self._content_ns = self.stage.now_ns + self.event.for_ms * NS_PER_MS // 2
        self._does = text("does", "crash")
        self._points = text("points")
        self._chances = self.rng.split("chance")
        self._among = frozenset(self._hosts(text("among", "brokers")))
        self._trap: Callable[[str, Point, int], None] = self._look
        self.target.lookout.traps.append(self._trap)

    def undo(self) -> None:
        """Take it away, if it has not closed."""
        traps = self.target.lookout.traps
        if self._trap in traps:
            traps.remove(self._trap)

    def count(self) -> float:
        """Return whether it has closed."""
        return self._closed

    def _hosts(self, among: str) -> Iterable[str]:
        target = self.target
        groups: dict[str, Callable[[], Iterable[str]]] = {
            "brokers": target.brokers,
            "alone": target.alone,
            "clients": lambda: (*target.clients(), *target.members()),
            "namesrvs": target.namesrvs,
        }
        return groups[among]()

    def _look(self, name: str, point: Point, count: int) -> None:
        """Close at a point, if it is one for this trap."""
        lookout = self.target.lookout
        if name not in self._among or point in lookout.closed:
            return
        if (point[0] if point[0] in BESIDE_CODE else "") != self._points:
            return
        if not self._fits(point, count):
            return
        self.undo()
        lookout.closed.add(point)
        self._closed = 1
        self.target.trace.event("ambush", name, point=":".join(map(str, point)), seen=count)
        self.stage.after(self.event.number("after_ms"), lambda: self._spring(name))

    def _fits(self, point: Point, count: int) -> bool:
        """Tell whether it closes at a point; one that waits for long is content with more."""
        if self.stage.now_ns >= self._content_ns:
            return count <= CONTENT * self._seen_max
        return (
            count <= self._seen_max
            and self.rng.split(f"file {point[bool(self._points)]}").chance(self._files_p)
            and self._chances.chance(self._chance)
        )

    def _spring(self, name: str) -> None:
        if self.stage.is_over:
            return
        if self._does == TRIM:
            self.target.compact(self.stage.leader(self.rng.split("who")))
            return
        is_left_out = self._does == "leave" and name not in self.stage.consumers()
        kind, package = DOES["client crash" if is_left_out else self._does]
        one = FaultEvent(
            at_ms=self.stage.now_ns // NS_PER_MS, kind=kind, package=package,
            target=self._victim(name), for_ms=self._hold_ms(),
            seed=self.rng.split("what").randint(0, (1 << 31) - 1),
            params=PARAMS.get(self._does, {}),
        )  # fmt: skip
        self.stage.spring(one)

    def _hold_ms(self) -> int:
        """Return how long it lasts: not beyond the safety phase."""
        left_ms = self.target.plan.options.safety_ms - self.stage.now_ns // NS_PER_MS
        return max(0, min(int(self.event.number("hold_ms", 500)), left_ms))

    def _victim(self, name: str) -> str:
        """Return to whom it happens: who was seen, or who leads."""
        return Role.LEADER if self.event.text("victim") == "leader" else name

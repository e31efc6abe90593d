"""Applies the events of a plan to the world, takes them back, and says which had an effect.

A target that is a role is resolved when the event is due, and noted in the trace. What the budget
forbids then (`sim.faults.guard`) is tried again for a while, and given up; with ``overkill`` it is
done all the same, and the contract counts as exceeded. A fault counts only if its *witness*, a
number that is read before, at the end, and after, shows an effect. Source: spec/proof.md 2, A47.
"""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from sim.faults import ambush, cluster, disk, network, process, registry
from sim.faults.guard import Guard
from sim.faults.plan import FaultEvent, FaultKind, Package
from sim.faults.stage import NS_PER_MS, Effect, Stage
from sim.rng import SplitRng
from sim.rules import Action

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from sim.faults.target import Target

EFFECTS: "Final[dict[FaultKind, Callable[..., Effect]]]" = {
    FaultKind.ISOLATE: network.Isolate,
    FaultKind.HALVES: network.Halves,
    FaultKind.BRIDGE: network.Bridge,
    FaultKind.RING: network.Ring,
    FaultKind.ONE_WAY: network.OneWay,
    FaultKind.LEADER_MINORITY: network.LeaderMinority,
    FaultKind.LEADER_MAJORITY: network.LeaderMajority,
    FaultKind.CLIENT_CUT: network.ClientCut,
    FaultKind.FLAP: network.Flap,
    FaultKind.DROP: network.frames(Action.DROP),
    FaultKind.DUPLICATE: network.frames(Action.DUPLICATE),
    FaultKind.REORDER: network.frames(Action.DELAY),
    FaultKind.REPLAY: network.frames(Action.REPLAY),
    FaultKind.CORRUPT: network.frames(Action.CORRUPT),
    FaultKind.DELAY: network.SlowLinks,
    FaultKind.RESET: network.Reset,
    FaultKind.CRASH: process.Down,
    FaultKind.STOP: process.Stop,
    FaultKind.STOP_AND: process.StopAnd,
    FaultKind.CRASH_LOOP: process.CrashLoop,
    FaultKind.CRASH_AT: process.CrashAt,
    FaultKind.AMBUSH: ambush.Ambush,
    FaultKind.RESTART_ALL: process.RestartAll,
    FaultKind.PAUSE: process.Pause,
    FaultKind.POWER_LOSS: process.PowerLoss,
    FaultKind.POWER_LOSS_ALL: process.PowerLoss,
    FaultKind.EIO: disk.Eio,
    FaultKind.DISK_FULL: disk.DiskFull,
    FaultKind.SLOW_DISK: disk.SlowDisk,
    FaultKind.HUNG_DISK: disk.HungDisk,
    FaultKind.BIT_ROT: disk.BitRot,
    FaultKind.WIPE: disk.Wipe,
    FaultKind.SPOIL: disk.Spoil,
    FaultKind.LYING_SYNC: disk.LyingSync,
    FaultKind.CLOCK_JUMP: cluster.ClockJump,
    FaultKind.CLOCK_DRIFT: cluster.ClockDrift,
    FaultKind.CLOCK_STROBE: cluster.ClockStrobe,
    FaultKind.ADD: cluster.Add,
    FaultKind.REMOVE: cluster.Remove,
    FaultKind.REPLACE: cluster.Replace,
    FaultKind.TRANSFER: cluster.Transfer,
    FaultKind.CLIENT_CRASH: process.Down,
    FaultKind.CLIENT_LEAVE: process.Stop,
    FaultKind.CLIENT_RESET: network.ClientReset,
    FaultKind.NAMESRV_CRASH: process.Down,
    FaultKind.NAMESRV_PAUSE: process.Pause,
    FaultKind.NAMESRV_CUT: registry.NamesrvCut,
    FaultKind.NAMESRV_DELAY: registry.NamesrvDelay,
    FaultKind.NAMESRV_RESET: registry.NamesrvReset,
    FaultKind.NAMESRV_TURN: registry.NamesrvTurn,
}
HARMLESS: Final = frozenset(kind for kind in FaultKind if not kind.entry.disturbs_brokers)
"""What disturbs no broker."""
NO_FAULTS: Final = frozenset({Package.FAR, Package.AMBUSH})
"""How it is, or what is only laid."""
RETRY_MS: Final = 50
RETRIES: Final = 40
"""How long a fault waits for the budget: two seconds."""
POLL_MS: Final = 200
"""How often it is noted who leads."""
CORRUPT_LIVES: Final = 2
"""How often a process with corrupt bytes may end after healing, before its disk is emptied."""


@dataclass(slots=True)
class Applied:
    """What became of one event."""

    number: int
    event: FaultEvent
    status: str = "planned"
    """``planned``, ``active``, ``over``, or ``skipped: <why>``."""
    names: tuple[str, ...] = ()
    effect: Effect | None = None
    before: float = 0
    during: float = 0
    after: float = 0
    exceeds: bool = False
    ended_ms: int = 0
    """When it was taken back."""

    @property
    def effective(self) -> bool:
        """Whether the witness saw it, so far."""
        now = self.effect.count() if self.effect is not None and self.status == "active" else 0
        return max(self.during, self.after, now) > self.before


class Nemesis:
    """Applies a plan. Call `start` once, and `heal_all` at the end of the safety phase.

    Args:
        guard: says what must not be done now; None: that of a group.
    """

    def __init__(self, target: "Target", guard: Guard | None = None) -> None:
        self._target = target
        self._guard = guard or Guard(target)
        self._stage = Stage(target, self._guard, self._spring)
        self._overkill = target.plan.options.overkill
        self._is_over = False
        self._touched_ms = 0
        self._ended_ms = 0
        self.applied = [Applied(n, event) for n, event in enumerate(target.plan.events)]

    @property
    def is_exceeded(self) -> bool:
        """Whether something was done that no contract survives."""
        return any(one.exceeds for one in self.applied)

    def start(self) -> None:
        """Have every event applied at its time."""
        for one in self.applied:
            self._target.at(one.event.at_ms * NS_PER_MS, partial(self._apply, one))
        self._poll()

    def explains(self, name: str) -> bool:
        """Whether the process of a host may end by itself, because of what its disk did."""
        return name in self._stage.excused

    def explains_start(self, name: str) -> bool:
        """Likewise, of one that has just begun."""
        return name in self._stage.excused_starts

    def disturbed_ms(self, now_ms: int) -> int:
        """Return when a fault that is not of clients or name servers was on, began or ended."""
        is_on = any(
            one.status == "active" and one.event.kind not in HARMLESS for one in self._faults()
        )
        return now_ms if is_on else self._touched_ms

    def any_ms(self, now_ms: int) -> int:
        """Return when any fault was on, began or ended, those that disturb no broker as well."""
        return now_ms if any(one.status == "active" for one in self._faults()) else self._ended_ms

    def touched_ms(self, names: "Collection[str]", now_ms: int) -> int:
        """Return when a fault of one of some hosts was on or ended, 0 for never."""
        times = [
            now_ms if one.status == "active" else one.ended_ms
            for one in self._faults()
            if one.status in {"active", "over"} and not set(names).isdisjoint(one.names)
        ]
        return max(times, default=0)

    def spares(self, names: "Collection[str]", since_ms: int) -> bool:
        """Tell whether nothing but what concerns some hosts alone was on, or ended, since then."""
        return not any(
            one.status == "active" or (one.status == "over" and one.ended_ms >= since_ms)
            for one in self._faults()
            if not set(one.names) <= set(names)
        )

    def _faults(self) -> "Iterator[Applied]":
        return (one for one in self.applied if one.event.package not in NO_FAULTS)

    def corrupt(self) -> tuple[str, ...]:
        """Return the replicas on whose disk bytes may still be corrupt."""
        return tuple(self._guard.corrupt)

    def effective(self) -> Counter[str]:
        """Return how many events of each kind had an effect."""
        return Counter(one.event.kind.value for one in self.applied if one.effective)

    def skipped(self) -> Counter[str]:
        """Return how many events of each kind were not applied, or had no effect."""
        return Counter(one.event.kind.value for one in self.applied if not one.effective)

    def heal_all(self, names: tuple[str, ...] | None = None) -> None:
        """Take everything back and start what is down; damage that was done stays.

        Args:
            names: hosts to start again; None for all.
        """
        self._is_over = self._stage.is_over = True
        for one in reversed(self.applied):
            if one.status == "active":
                self._undo(one)
        target = self._target
        target.network.heal_all()
        members = (*target.brokers(), *target.namesrvs(), *target.clients(), *target.alone())
        for name in members:
            host = target.host(name)
            target.disk(name).heal()
            host.clock.set_rate(1.0)
            host.clock.jump(-host.clock.wall_offset_ms)
            while host.alive and host.stopped:
                target.resume(name)
        for name in members if names is None else names:
            if target.disk(name).life or name in self._stage.voters():
                target.start(name)
        target.trace.event("healed", "-")
        for name in self._guard.corrupt:
            self._replace_corrupt(name, target.disk(name).life)

    def _poll(self) -> None:
        if not self._is_over:
            self._stage.note_leader()
            self._stage.after(POLL_MS, self._poll)

    def _spring(self, event: FaultEvent) -> None:
        """Have a fault that is in no plan happen now, if it may: an ambush has closed."""
        one = Applied(len(self.applied), event)
        self.applied.append(one)
        self._apply(one, tries=0)

    def _apply(self, one: Applied, tries: int = RETRIES) -> None:
        if self._is_over:
            one.status = "skipped: the faults are over"
            return
        event = one.event
        names = self._stage.resolve(event.target, SplitRng(event.seed).split("target"))
        if not names:
            self._skip(one, f"nobody is {event.target}")
            return
        effect = EFFECTS[event.kind](self._stage, event, names)
        obstacle, objection = effect.obstacle(), effect.objection()
        if obstacle or (objection and not self._overkill):
            if tries:
                self._stage.after(RETRY_MS, partial(self._apply, one, tries - 1))
            else:
                self._skip(one, obstacle or objection)
            return
        one.exceeds = bool(objection)
        one.names, one.effect, one.status = names, effect, "active"
        one.before = effect.count()
        self._note(one, "on")
        effect.apply()
        self._stage.after(event.for_ms, partial(self._end, one))

    def _end(self, one: Applied) -> None:
        if one.status == "active":
            self._undo(one)

    def _undo(self, one: Applied) -> None:
        effect = one.effect
        assert effect is not None
        one.during = effect.count()
        one.status, one.ended_ms = "over", self._target.trace.now_ns // NS_PER_MS
        effect.undo()
        one.after = effect.count()
        self._note(one, "off")

    def _skip(self, one: Applied, why: str) -> None:
        one.status = f"skipped: {why}"
        self._note(one, "skip")

    def _note(self, one: Applied, what: str) -> None:
        if one.event.package not in NO_FAULTS:
            self._ended_ms = self._target.trace.now_ns // NS_PER_MS
            if one.event.kind not in HARMLESS:
                self._touched_ms = self._ended_ms
        self._target.trace.event(
            "fault", ",".join(one.names), what=what, number=one.number, fault=one.event.kind.value,
            role=one.event.target, witness=one.after or one.during or one.before,
        )  # fmt: skip

    def _replace_corrupt(self, name: str, life: int) -> None:
        """Do what an operator does with a replica that refuses to start: give it an empty disk."""
        target = self._target
        is_early = target.disk(name).life - life < CORRUPT_LIVES
        if is_early or self._guard.objection_to_wipe((name,)):
            self._stage.after(1_000, partial(self._replace_corrupt, name, life))
        else:
            target.trace.event("replaced", name)
            target.wipe(name)
            target.start(name)

"""Faults of processes: killed, stopped, in a loop, at a named point, all at once; paused.

Source: spec/proof.md P1-P5, P7.
"""

from collections.abc import Callable, Mapping
from functools import partial

from sim.disk_rules import Action, Op, Rule
from sim.faults.plan import FaultEvent
from sim.faults.stage import Effect, Stage
from sim.inode import PowerLossMode

POLL_MS = 50
"""How often it is looked whether a process has come to the point at which it is to crash."""
STOP_POLL_MS = 100
STOP_TRIES = 600
"""A process that was asked to stop may take its time: it is started again when it is gone."""


class Down(Effect):
    """Processes end, and are started again when the fault is undone."""

    gracefully = False
    ended = 0

    def __init__(self, stage: Stage, event: FaultEvent, names: tuple[str, ...]) -> None:
        super().__init__(stage, event, names)
        self.asked: dict[str, int] = {}
        """Which life of each was asked to end, and may take its time."""

    def apply(self) -> None:
        """End them."""
        for name in self.names:
            self.ended += self.target.host(name).alive
            if self.gracefully:
                self.ask(name)
            else:
                self.target.crash(name)

    def ask(self, name: str) -> None:
        """Ask a process to end, if one runs."""
        host = self.target.host(name)
        if host.alive:
            self.asked[name] = host.incarnation
            self.target.stop(name)

    def undo(self) -> None:
        """Start them again; one that is still about to stop is started later."""
        for name in self.names:
            self._start(name)

    def count(self) -> float:
        """Return how many have ended."""
        return self.ended

    def _start(self, name: str, tries: int = STOP_TRIES) -> None:
        host = self.target.host(name)
        if not host.alive:
            self.target.start(name)
        elif self.asked.get(name) == host.incarnation and tries:
            self.stage.after(STOP_POLL_MS, lambda: self._start(name, tries - 1))


class Stop(Down):
    """Processes are asked to end."""

    gracefully = True


class StopAnd(Stop):
    """A process ends in good order, starts, and meets something else a moment later, for rounds.

    It is killed, its log is dropped as far as may be, or both; so what it left behind in good order
    is all that the next life has.
    """

    def apply(self) -> None:
        """Ask it to end the first time."""
        self._left = int(self.event.number("count", 1))
        super().apply()
        self._later(self.event.number("down_ms", 100), self._again)

    def undo(self) -> None:
        """Let it live."""
        self._left = 0
        super().undo()

    def _later(self, wait_ms: float, step: Callable[[], None]) -> None:
        self.stage.after(wait_ms, lambda: step() if self._left else None)

    def _again(self) -> None:
        """Start it when it has ended."""
        if self.target.host(self.name).alive:
            self._later(STOP_POLL_MS, self._again)
            return
        self.target.start(self.name)
        self._later(self.event.number("after_ms", 100), self._then)

    def _then(self) -> None:
        then = self.event.text("then", "crash")
        if "trim" in then:
            self.target.compact(self.name)
            self._later(self.event.number("trim_ms", 100), partial(self._end, then))
        else:
            self._end(then)

    def _end(self, then: str) -> None:
        if "crash" in then:
            self.target.crash(self.name)
        elif "power" in then:
            self.target.power_loss(self.name, PowerLossMode.LOST)
        else:
            self.ask(self.name)
        self._left -= 1
        self._later(self.event.number("down_ms", 100), self._again)


class RestartAll(Down):
    """All brokers end at once."""

    def apply(self) -> None:
        """See `Down`."""
        self.gracefully = bool(self.event.number("gracefully"))
        super().apply()


class CrashLoop(Down):
    """A process is killed, started, and killed again."""

    def apply(self) -> None:
        """Kill it the first time."""
        self._left = int(self.event.number("count", 2)) - 1
        super().apply()
        self._plan_next()

    def undo(self) -> None:
        """Let it live."""
        self._left = 0
        super().undo()

    def _plan_next(self) -> None:
        self.stage.after(self.event.number("period_ms", 500) / 2, self._turn)

    def _turn(self) -> None:
        if self.target.host(self.name).alive:
            if not self._left:
                return
            self._left -= 1
            self.ended += 1
            self.target.crash(self.name)
        elif self._left:
            self.target.start(self.name)
        if self._left or not self.target.host(self.name).alive:
            self._plan_next()


class CrashAt(Effect):
    """The first process that comes to a step of its disk ends there, before or behind it."""

    _rules: Mapping[str, Rule] = {}

    def apply(self) -> None:
        """Lay a trap for each, and look whether one has closed."""
        self._rules = {name: self._rule() for name in self.names}
        for name, rule in self._rules.items():
            self.target.disk(name).add_rule(rule)
        self._is_over = False
        self._look()

    def undo(self) -> None:
        """Take the traps away and start whoever lies in one."""
        self._is_over = True
        for name, rule in self._rules.items():
            self.target.disk(name).drop_rule(rule)
            if rule.hits:
                self.target.start(name)

    def count(self) -> float:
        """Return how many traps have closed."""
        return sum(rule.hits for rule in self._rules.values())

    def _rule(self) -> Rule:
        is_before = self.event.text("when") == "before"
        return Rule(
            action=Action.CRASH_BEFORE if is_before else Action.CRASH_AFTER,
            ops=frozenset({Op(self.event.text("op"))}),
            glob=self.event.text("glob", "*"),
            skip=int(self.event.number("skip")),
            count=1,
        )

    def _look(self) -> None:
        if self._is_over:
            return
        caught = [name for name, rule in self._rules.items() if rule.hits]
        if not caught:
            self.stage.after(POLL_MS, self._look)
            return
        for name, rule in self._rules.items():
            if not rule.hits:
                self.target.disk(name).drop_rule(rule)
        down_ms = self.event.number("down_ms", 300)
        for name in caught:
            self.stage.after(down_ms, partial(self.target.start, name))


class Pause(Effect):
    """A process stands still."""

    _held = False

    def apply(self) -> None:
        """Hold it."""
        self._held = self.target.host(self.name).alive
        if self._held:
            self.target.pause(self.name)

    def undo(self) -> None:
        """Let it go on."""
        if self._held and self.target.host(self.name).paused:
            self.target.resume(self.name)

    def count(self) -> float:
        """Return whether it was held."""
        return int(self._held)


class PowerLoss(Down):
    """Machines lose power: processes and unsynced changes are gone."""

    def objection(self) -> str:
        """See `Effect`."""
        return self.stage.guard.objection_to_power_loss(self.names)

    def apply(self) -> None:
        """Cut the power."""
        mode = PowerLossMode(self.event.text("mode", "lost"))
        for name in self.names:
            changes, entries = self.target.disk(name).unsynced()
            self.ended += self.target.host(name).alive or changes + entries > 0
            self.target.power_loss(name, mode)

"""What happens around the steps of a simulated disk: rules, time, hangs, the trace. Knows no files.

Every step of `sim.disk` comes through here. While nothing is to go wrong that costs one test. Time
is charged to the process that calls, if one does; what a thread of it syncs takes effect when it
does the next thing, or when its work ends.
Source: spec/proof.md D2-D7, P5.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from ledgermq.runtime.disk import NO_SPACE, Buffer
from ledgermq.runtime.rng import Rng
from sim.context import CURRENT, SimCrash
from sim.disk_rules import CRASHES, Action, Latency, Op, Rule

if TYPE_CHECKING:
    from sim.power import Standing

SYNC_LATENCY: Final = Latency(100_000, 2_000_000)
"""Of a sync of data or of a directory, by default; everything else takes no time."""


UNNOTED: Final = (Op.READ, Op.OPEN)
"""Steps that change nothing: they are not in the trace."""


class Trace(Protocol):
    """Where operations are noted; `sim.trace.Trace` is one."""

    def event(self, kind: str, host: str, **columns: object) -> None:
        """Note one line."""
        ...

    def disk(self, host: str, op: str, path: int, offset: int, size: int, crc: int) -> None:
        """Note a step."""
        ...


class Hardware(ABC):
    """The part of a disk that may be slow, hang, fail, or be where the process ends."""

    def __init__(self, rng: Rng, trace: Trace | None, host: str) -> None:
        """See `sim.disk.SimDisk`."""
        self._latency_random = Random(rng.randint(0, (1 << 64) - 1))
        self._damage_random = Random(rng.randint(0, (1 << 64) - 1))
        self.trace = trace
        self.host = host
        self.sync_latency = SYNC_LATENCY
        self.may_settle = False
        """A sync of a thread was done; whether its work has ended since is not known."""
        self.is_watched = False
        """Something may go wrong: there is a rule, or a limit, or the process has crashed."""
        self.is_disturbed = False
        """Likewise, but for rules that only end the process."""
        self.disturbances = 0
        """How often that began."""
        self.on_block: Callable[[], None] | None = None
        """Called when a call that is no thread's hangs: the process must stand still."""
        self.on_unblock: Callable[[], None] | None = None
        """Called when nothing hangs any more."""
        self.blocked = False
        """A call that is no thread's hangs."""
        self.failures: list[str] = []
        """Paths of the steps that a rule has failed, in their order; not for want of space."""
        self.damages = 0
        """How often a fault has changed what lies here: flipped bits, lost power, lost files."""
        self.flips = 0
        """How often bits of what was synced were flipped."""
        self.capacity_bytes: int | None = None
        """Space there is; None for enough."""
        self.told_used: float | None = None
        """The part that others use, where somebody asks; what is written has room all the same."""
        self.times_told = 0
        """How often that was asked."""
        self.on_step: Callable[[Op, str], None] | None = None
        """Hears of steps that change something, but for writes into open files."""
        self._standing: Standing | None = None
        """Since when it does."""
        self._hung: list[Callable[[], None]] = []
        """Syncs that hang, of calls that are no thread's."""
        self._crashed = False
        self._rules: list[Rule] = []
        self._path_numbers: dict[str, int] = {}

    # Rules

    def add_rule(self, rule: Rule) -> Rule:
        """Let a rule meet steps from now on."""
        self._rules.append(rule)
        self._watch()
        return rule

    def drop_rule(self, rule: Rule) -> None:
        """Take a rule away; what hangs because of it goes on when no rule lets anything hang."""
        if rule in self._rules:
            self._rules.remove(rule)
        self._watch()
        if not any(one.action is Action.HANG for one in self._rules):
            self.blocked, self._standing = False, None
            hung, self._hung = self._hung, []
            for sync in hung:
                sync()
            if self.on_unblock is not None:
                self.on_unblock()

    # Steps

    def step(self, op: Op, path: str, effect: Callable[[], None], offset: int = 0) -> None:
        """Do one step of an operation, unless a rule has it fail.

        Errors: `OSError`, `SimCrash`.
        """
        if self.may_settle:
            self.settle_earlier()
        if not self.is_watched:
            effect()
        else:
            if not self._meet(op, path):
                effect()
            self._end_step(op, path)
        if op not in UNNOTED:
            self._note(op, path, offset)
            if self.on_step is not None:
                self.on_step(op, path)

    def _sync(self, op: Op, path: str, sync: Callable[[], None]) -> None:
        """Sync: at once, or when the work of a thread is over, or when nothing hangs any more."""
        if self.may_settle:
            self.settle_earlier()
        self._cost(self.sync_latency)
        lied = self.is_watched and self._meet(op, path)
        process = CURRENT.get()
        if lied:
            pass
        elif process is not None and process.settling is not None:
            process.settling.append(sync)
            self.may_settle = True
        elif self.blocked:
            self._hung.append(sync)
        else:
            sync()
        if self.is_watched:
            self._end_step(op, path)
        self._note(op, path)
        if self.on_step is not None:
            self.on_step(op, path)

    def settle_earlier(self) -> None:
        """Let the syncs that this piece of work has done before take effect: they have returned.

        Only the last one of a thread is under way until its work ends.
        """
        self.may_settle = False
        process = CURRENT.get()
        if process is not None and process.settling:
            for settle in process.settling:
                settle()
            process.settling.clear()

    def _cost(self, latency: Latency) -> None:
        latency_ns = latency.draw(self._latency_random)
        process = CURRENT.get()
        if process is not None:
            process.charge(latency_ns)

    def _hang(self) -> None:
        process = CURRENT.get()
        if process is not None and process.settling is not None:
            process.gate_shut = True
            return
        if not self.blocked:
            self._stand_still()
        self.blocked = True
        if self.on_block is not None:
            self.on_block()

    @abstractmethod
    def _stand_still(self) -> None:
        """Remember what was done before this moment."""

    def _meet(self, op: Op, path: str) -> bool:
        """Apply the rules before a step; returns whether it is to have no effect (a lie)."""
        if self._crashed:
            raise SimCrash(path)
        lied = False
        for rule in self._rules:
            if rule.action is Action.CRASH_AFTER or not rule.meets(op, path, self._damage_random):
                continue
            match rule.action:
                case Action.SLOW:
                    self._cost(rule.latency)
                case Action.HANG:
                    self._hang()
                case Action.LIE:
                    lied = True
                case Action.FAIL:
                    self._note_fault(rule, op, path)
                    if rule.error not in NO_SPACE:
                        self.failures.append(path)
                    raise OSError(rule.error, "fault of the simulated disk", path)
                case _:
                    self._crash(rule, op, path)
        return lied

    def _end_step(self, op: Op, path: str) -> None:
        for rule in self._rules:
            if rule.action is Action.CRASH_AFTER and rule.meets(op, path, self._damage_random):
                self._crash(rule, op, path)

    def _crash(self, rule: Rule, op: Op, path: str) -> NoReturn:
        self._note_fault(rule, op, path)
        self._crashed = True
        why = f"{rule.action.value} {op.value} {path}"
        raise SimCrash(why)

    # The trace

    def path_number(self, path: str) -> int:
        """Return the number that stands for a path in the trace."""
        number = self._path_numbers.get(path)
        if number is None:
            number = self._path_numbers[path] = len(self._path_numbers)
            if self.trace is not None:
                self.trace.event("disk_path", self.host, number=number, path=path)
        return number

    def _note(self, op: Op, path: str, offset: int = 0, content: Buffer = b"") -> None:
        if self.trace is not None:
            number = self.path_number(path)
            self.trace.disk(
                self.host, op._value_, number, offset, len(content), zlib.crc32(content)
            )

    def _note_fault(self, rule: Rule, op: Op, path: str) -> None:
        if self.trace is not None:
            number = self.path_number(path)
            self.trace.event(
                "disk_fault", self.host, action=rule.action.value, op=op.value, path=number
            )

    def _note_damage(self, what: str, path: str, offset: int, size: int) -> None:
        self.damages += 1
        self.flips += what == "corruption"
        if self.trace is not None:
            number = self.path_number(path)
            self.trace.event(
                "disk_damage", self.host, what=what, path=number, offset=offset, size=size
            )

    @property
    def lacks_room(self) -> bool:
        """Whether some files get no space, or may soon get none."""
        is_limited = self.capacity_bytes is not None
        return is_limited or any(rule.error in NO_SPACE for rule in self._rules)

    def _watch(self) -> None:
        is_limited = self.capacity_bytes is not None
        self.is_watched = bool(self._rules) or self._crashed or is_limited
        was_disturbed = self.is_disturbed
        acts = any(rule.action not in CRASHES for rule in self._rules)
        self.is_disturbed = acts or is_limited
        self.disturbances += self.is_disturbed and not was_disturbed

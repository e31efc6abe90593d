"""Faults of disks: errors, no space, slow, hung, corrupt bytes, nothing left, syncs that lie.

Source: spec/proof.md D2-D10.
"""

import errno
from abc import abstractmethod
from collections.abc import Mapping
from typing import Final

from sim.disk_rules import CHANGING, SYNCS, Action, Latency, Op, Rule
from sim.faults.stage import NS_PER_MS, Effect

ROT_TRIES = 20
LOG: Final = "/data/"
"""In the paths of a group's log."""
GROWING: Final = frozenset({Op.CREATE, Op.WRITE})
"""Steps that need room."""


class Ruled(Effect):
    """The disks of some hosts follow a rule for a while."""

    _rules: Mapping[str, Rule] = {}  # replaced as a whole

    @abstractmethod
    def rule(self) -> Rule:
        """Return the rule, anew for each host."""

    def apply(self) -> None:
        """Begin."""
        self._rules = {name: self.rule() for name in self.names}
        for name, rule in self._rules.items():
            self.target.disk(name).add_rule(rule)

    def undo(self) -> None:
        """End."""
        for name, rule in self._rules.items():
            self.target.disk(name).drop_rule(rule)

    def count(self) -> float:
        """Return how many steps of the disks met the rule."""
        return sum(rule.hits for rule in self._rules.values())

    def ops(self) -> frozenset[Op]:
        """Return the steps that the event is about."""
        match self.event.text("op", "all"):
            case "all":
                return CHANGING
            case "sync":
                return SYNCS
            case op:
                return frozenset({Op(op)})


class Eio(Ruled):
    """Steps fail with EIO; what a failed sync was to save is lost at the next loss of power."""

    def rule(self) -> Rule:
        """See `Ruled`."""
        return Rule(
            action=Action.FAIL,
            ops=frozenset({Op(self.event.text("op"))}),
            glob=self.event.text("glob", "*"),
            count=int(self.event.number("count", 1)),
            error=errno.EIO,
        )

    def apply(self) -> None:
        """Begin; the process may end itself, which is what it should do."""
        self.stage.excused[self.name] = None
        super().apply()

    def undo(self) -> None:
        """End, and have the process run."""
        super().undo()
        self.target.start(self.name)


class SlowDisk(Ruled):
    """Steps take longer."""

    def rule(self) -> Rule:
        """See `Ruled`."""
        high_ns = int(self.event.number("ms", 10) * NS_PER_MS)
        return Rule(action=Action.SLOW, ops=self.ops(), latency=Latency(high_ns // 2, high_ns))


class HungDisk(Ruled):
    """Steps do not return until the fault is undone."""

    def rule(self) -> Rule:
        """See `Ruled`."""
        glob = self.event.text("glob", "*")
        return Rule(action=Action.HANG, ops=self.ops(), glob=glob)


class LyingSync(Ruled):
    """Syncs return and save nothing."""

    def objection(self) -> str:
        """See `Effect`."""
        return "no contract survives a disk that lies"

    def rule(self) -> Rule:
        """See `Ruled`."""
        return Rule(action=Action.LIE, ops=SYNCS)


class DiskFull(Effect):
    """Little or no space is left for a while.

    With ``glob``, none for these files alone; with ``used``, others use that part of the disk, and
    there is room all the same.
    """

    _rules: Mapping[str, Rule] = {}  # replaced as a whole

    def apply(self) -> None:
        """Fill the disks; a process that cannot save its vote ends itself.

        Where the log and the vote have room no process may end that runs: queues wait to be
        written. One that begins writes zeros behind what its queues have, and needs room for that.
        """
        glob, used = self.event.text("glob"), self.event.number("used")
        for name in self.names if used else ():
            self.target.disk(name).told_used = used
        if used:
            return
        self._rules = {name: _no_room(glob) for name in self.names if glob}
        for name in self.names:
            disk = self.target.disk(name)
            if glob:
                is_of_log = LOG in glob  # which cannot cut its end then, either
                excused = self.stage.excused if is_of_log else self.stage.excused_starts
                excused[name] = None
                disk.add_rule(self._rules[name])
            else:
                self.stage.excused[name] = None
                disk.limit(int(self.event.number("free_bytes")))

    def undo(self) -> None:
        """Free the disks, and have the processes run."""
        for name in self.names:
            disk = self.target.disk(name)
            disk.told_used = None
            if name in self._rules:
                self.stage.excused_starts.pop(name, None)
                disk.drop_rule(self._rules[name])
            else:
                disk.limit(None)
            self.target.start(name)

    def count(self) -> float:
        """Return how many writes met a full disk, or how often one was told to be crowded."""
        disks = [self.target.disk(name) for name in self.names]
        refused = sum(disk.writes_refused + disk.times_told for disk in disks)
        return refused + sum(rule.hits for rule in self._rules.values())


def _no_room(glob: str) -> Rule:
    return Rule(action=Action.FAIL, ops=GROWING, glob=glob, error=errno.ENOSPC)


class BitRot(Effect):
    """Some synced bytes of a log change."""

    _corrupted = 0

    def objection(self) -> str:
        """See `Effect`. One replica may have corrupt bytes in a run: a repair cannot be seen."""
        guard = self.stage.guard
        if any(name != self.name for name in guard.corrupt):
            return "another replica has corrupt bytes"
        return guard.objection_to_loss(self.names)

    def apply(self) -> None:
        """Flip bits."""
        self.stage.guard.corrupt[self.name] = None
        self.stage.excused[self.name] = None
        self.flip_all()
        self.target.watch.excuse_corruption(self.name)

    def flip_all(self) -> None:
        """Flip as many bits as the event says."""
        for number in range(int(self.event.number("bytes", 1))):
            self._corrupted += self._flip(number)

    def count(self) -> float:
        """Return how many bytes are corrupt."""
        return self._corrupted

    def _flip(self, number: int) -> bool:
        disk = self.target.disk(self.name)
        glob = self.event.text("glob", "*")
        paths = [path for path in disk.paths_like(glob) if disk.nonzero_end(path)]
        if not paths:
            return False
        for attempt in range(ROT_TRIES):
            rng = self.rng.split(f"{number}/{attempt}")
            path = rng.choice(paths)
            offset = rng.randint(0, disk.nonzero_end(path) - 1)
            bit = 1 << rng.randint(0, 7)
            if disk.corrupt(path, offset, int(self.event.number("mask")) or bit):
                return True
        return False


class Spoil(BitRot):
    """A replica is killed, and what it has made of its log is damaged before it starts again."""

    def objection(self) -> str:
        """See `Effect`. The log has it all."""
        return ""

    def apply(self) -> None:
        """Kill the process, and flip bits."""
        self.target.crash(self.name)
        self.flip_all()

    def undo(self) -> None:
        """Start the process."""
        self.target.start(self.name)


class Wipe(Effect):
    """A replica loses all it has."""

    _files = 0

    def objection(self) -> str:
        """See `Effect`."""
        return self.stage.guard.objection_to_wipe(self.names)

    def apply(self) -> None:
        """Empty the disk."""
        self._files = len(self.target.disk(self.name).paths())
        self.target.wipe(self.name)
        self.stage.guard.corrupt.pop(self.name, None)

    def undo(self) -> None:
        """Start the process on the empty disk."""
        self.target.start(self.name)

    def count(self) -> float:
        """Return how many files were lost."""
        return self._files

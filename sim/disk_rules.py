"""What may go wrong on a simulated disk: which steps a rule meets, and what becomes of them.

Pure: it knows neither files nor time; `sim.disk` asks it at every step while there is a rule.
Source: spec/proof.md D2-D7, P5.
"""

from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from random import Random
from typing import NamedTuple


class Op(Enum):
    """A step that a disk makes; `RealDisk` makes the same ones in the same order."""

    OPEN = "open"
    CREATE = "create"
    TRUNCATE = "truncate"
    WRITE = "write"
    READ = "read"
    SYNC = "sync"
    RENAME = "rename"
    REMOVE = "remove"
    MKDIR = "mkdir"
    SYNC_DIRECTORY = "sync_directory"


CHANGING: frozenset[Op] = frozenset(Op) - {Op.OPEN, Op.READ}
SYNCS: frozenset[Op] = frozenset({Op.SYNC, Op.SYNC_DIRECTORY})


class Action(Enum):
    """What becomes of a step that a rule meets."""

    SLOW = "slow"
    """It takes longer."""
    HANG = "hang"
    """It does not return until the disk is healed."""
    FAIL = "fail"
    """It raises an `OSError` and has no effect; a failed write may have written a part."""
    LIE = "lie"
    """A sync returns and has no effect."""
    CRASH_BEFORE = "crash_before"
    """The process ends instead of it."""
    CRASH_AFTER = "crash_after"
    """The process ends right behind it."""


CRASHES: frozenset[Action] = frozenset({Action.CRASH_BEFORE, Action.CRASH_AFTER})


class Latency(NamedTuple):
    """A range from which a time is drawn, in nanoseconds."""

    low_ns: int
    high_ns: int

    def draw(self, random: Random) -> int:
        """Return a time of the range, both ends included."""
        return self.low_ns + int((self.high_ns - self.low_ns + 1) * random.random())


NO_LATENCY = Latency(0, 0)


@dataclass(slots=True, kw_only=True, eq=False)
class Rule:
    """Meets steps by kind and path until it is dropped or used up."""

    action: Action
    ops: frozenset[Op] = CHANGING
    glob: str = "*"
    """Of the whole path; ``*`` matches ``/`` too."""
    skip: int = 0
    """How many matching steps pass before the first that it meets."""
    count: int | None = None
    """How many steps it meets; None for all."""
    latency: Latency = NO_LATENCY
    """How long `Action.SLOW` takes."""
    error: int = 0
    """``errno`` of `Action.FAIL`."""
    probability: float = 1.0
    """How probable it is that it meets a matching step."""
    hits: int = field(default=0, init=False)
    """How many steps it has met: the witness that it took effect."""

    def meets(self, op: Op, path: str, random: Random) -> bool:
        """Return whether this step is met; counts it."""
        if op not in self.ops or (self.count is not None and self.hits >= self.count):
            return False
        if not fnmatchcase(path, self.glob):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.probability < 1.0 and random.random() >= self.probability:
            return False
        self.hits += 1
        return True

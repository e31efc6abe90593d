"""How far the log of a synchronous master counts as committed. Pure.

While a slave is there that keeps up, an entry counts once a slave has it too. Without one it counts
when the master has it, and whoever waits is told that no slave was there; an entry that no slave
confirmed in time counts likewise. So messages are delivered either way, as RocketMQ does, but
nobody is told SEND_OK for what is on one machine alone.
Source: spec/disk.md 7.2; RocketMQ HAService.isSlaveOK, GroupTransferService 4.9.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum


class Lack(Enum):
    """Why an entry counts although no slave has confirmed it."""

    NO_SLAVE = "no slave"
    """None was there that keeps up."""
    TIMEOUT = "timeout"
    """None confirmed it in time."""


@dataclass(slots=True)
class Gate:
    """Owns what slaves have confirmed, and what counts without.

    Times are milliseconds.
    """

    wait_ms: int
    """``slaveTimeout``."""
    behind_max: int
    """``haSlaveFallbehindMax``: a slave that lacks so many bytes does not keep up."""
    confirmed: int = 0
    """Position up to which a slave that was connected had the log."""
    best: int | None = None
    """How far the best of the slaves connected now is, None for none."""
    released: int = 0
    """Position up to which entries count without a slave."""
    _marks: deque[tuple[int, int]] = field(default_factory=deque)

    def on_slaves(self, positions: Sequence[int]) -> None:
        """Take how far the connected slaves are, each as it has reported."""
        self.best = max(positions, default=None)
        if self.best is not None:
            self.confirmed = max(self.confirmed, self.best)

    def keeps_up(self, end: int) -> bool:
        """Tell whether a slave is there, and not too far behind a log that ends there."""
        return self.best is not None and end - self.best < self.behind_max

    def pass_time(self, now_ms: int, end: int) -> bool:
        """Note where the log ends; tell whether something has waited too long."""
        if end > max(self.confirmed, self.released):
            self._marks.append((now_ms, end))
        late = 0
        while self._marks and self._marks[0][0] <= now_ms - self.wait_ms:
            late = self._marks.popleft()[1]
        self.released = max(self.released, late)
        return late > self.confirmed

    def limit(self, own: int, end: int) -> tuple[int, Lack | None]:
        """Return up to where the log counts, and what the end of that lacks.

        ``own``: up to where the master's own disk has it as it should; ``end``: of the log.
        """
        if min(own, self.confirmed) == own:
            return own, None
        if not self.keeps_up(end):
            self.released = max(self.released, own)
            return own, Lack.NO_SLAVE
        if self.released > self.confirmed:
            return min(own, self.released), Lack.TIMEOUT
        return min(own, self.confirmed), None

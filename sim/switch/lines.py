"""The logs of masters, epoch by epoch, and whose beginning each broker's log is. Knows no process.

Each master has a *line*: the log with which its epoch began, which is the beginning of an earlier
line, and what it has written since. Source: docs/adr/0020; RocketMQ 5 EpochFileCache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.copies import Book, Line

if TYPE_CHECKING:
    from sim.oracles.copies import Copy

Start = tuple[int, int]
"""An epoch, and where it begins."""


class EpochLine(Line):
    """What the master of one epoch has had."""

    starts: tuple[Start, ...] = ()
    """Of the epochs in which something of it was written, its own last."""
    epoch = 0

    def epoch_at(self, position: int) -> int:
        """Return the epoch in which a record was written; 0: before there were any."""
        return next((one for one, start in reversed(self.starts) if start <= position), 0)


class Lines(Book):
    """The lines of all epochs, and the logs of all brokers."""

    diverged_name: Final = "A34 log of a replica"

    def __init__(self, copies: dict[str, Copy]) -> None:
        super().__init__(copies)
        self.lines: list[Line] = [EpochLine(0)]
        self.name = self.diverged_name

    def begin(self, epoch: int, copy: Copy) -> EpochLine:
        """Have the log of a broker go on as that of the master of an epoch; return its line."""
        number = max(copy.lines)
        left = self.lines[number]
        assert isinstance(left, EpochLine), left
        end = copy.end
        line = EpochLine(len(self.lines), {at: row for at, row in left.rows.items() if at < end})
        line.end, line.epoch = end, epoch
        kept = tuple(start for start in left.starts if start[1] < end)
        # The first epoch stands for all that there was before.
        line.starts = (*kept, (epoch, end if kept else copy.base))
        self.lines.append(line)
        for other in self.copies.values():
            if number in other.lines and other.end <= end:
                other.lines.add(line.number)
        return line

    def of_epoch(self, epoch: int) -> EpochLine | None:
        """Return the line of an epoch, None while its master has not opened its log."""
        for line in reversed(self.lines):
            if isinstance(line, EpochLine) and line.epoch == epoch and epoch:
                return line
        return None

    def has(self, copy: Copy, position: int, data: bytes) -> bool:
        """Tell whether a log has a record."""
        return copy.end >= position + len(data) and self.is_on_line(copy, position, data)

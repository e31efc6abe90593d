"""What a slave makes of the stream: it compares, assembles, and appends at the very end.

A slave asks for its own last record again and compares it before it takes anything new: that two
logs end alike shows that they are the same, which the stream does not tell otherwise. Nothing is
ever cut or written over here.
"""

from collections.abc import Iterable

from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.ha.assembly import Assembly, Run
from store.ha.codec import BadStream, Piece
from store.ha.slave_log import SlaveLog
from store.limits import HA_BEGIN_MAX


class Diverged(BadStream):
    """The log of the master is another one."""


class DiskFull(Exception):  # noqa: N818  # a state of the disk, not of the program
    """The own disk has no space for what comes."""


class Intake:
    """Takes what comes over one connection."""

    def __init__(self, log: SlaveLog) -> None:
        self._log = log
        written = log.written
        self._known_end = written.last_end
        """Up to where there is something to compare."""
        self._next: int | None = None if log.is_blank else max(written.last_start, 1)
        """Where the next bytes must lie; None: wherever a file begins."""
        self._is_heard = False
        self.first_report = self._next or 0
        """What to ask for; 0, which asks for the last file of the master, of an empty log alone."""
        self._assembly = Assembly(log.config.segment_bytes, written)

    @property
    def is_verified(self) -> bool:
        """Whether the master has been found to have the same log; an empty one is anybody's."""
        return self._is_heard if self._next is None else self._next >= self._known_end

    def report(self) -> int:
        """Return what to report now: what is on the own disk as it should be."""
        return self._log.own_position if self.is_verified else self.first_report

    def take(self, pieces: Iterable[Piece]) -> None:
        """Take what has come together; it is written at once.

        Errors: `BadStream`, `DiskFull`; `FatalError` of the own disk.
        """
        runs: list[Run] = []
        try:
            for piece in pieces:
                self._take(piece, runs)
        finally:  # what came before a lie is right
            if runs and not self._log.copy(runs):
                raise DiskFull("the disk is full")

    def _take(self, piece: Piece, runs: list[Run]) -> None:
        position, data = piece
        if self._next is None:
            if not len(data):
                self._is_heard = True
                return
            self._begin(position)
        if position != self._next:
            raise BadStream(f"it sends position {position}, and {self._next} comes next")
        self._next = position + len(data)
        known = self._assembly.position - position
        if known > 0:
            self._compare(position, data[:known])
            data = data[known:]
            position += known
        if len(data):
            runs += self._assembly.add(position, data)

    def _begin(self, position: int) -> None:
        """Let an empty log begin where the master's last file does."""
        log = self._log
        if position > HA_BEGIN_MAX:
            raise BadStream(f"no log begins at position {position}")
        if position % log.config.segment_bytes:
            raise BadStream(
                f"it begins at position {position}, which is not a multiple of"
                f" mappedFileSizeCommitLog={log.config.segment_bytes}: is that the same there?"
            )
        if position != log.next_position:
            try:
                log.begin_at(position)
            except OSError as error:
                message = f"the commit log cannot begin at {position}: {error}"
                raise FatalError(message, EXIT_ENVIRONMENT) from error
        self._known_end = self._next = position
        self._assembly = Assembly(log.config.segment_bytes, log.written)

    def _compare(self, position: int, data: bytes | memoryview) -> None:
        """See that the master has what this log ends with. Errors: `Diverged`."""
        count = min(len(data), self._known_end - position)
        if count > 0 and data[:count] != self._log.view(position, count):
            raise Diverged(f"it has other messages at position {position}")

"""The plain log of a slave: the bytes of its master's, at the same positions."""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Final, Protocol, Unpack

from dledger.core.model import Role
from store.ha.assembly import Run
from store.ha.recent import Recent
from store.ha.watched_log import Machine, WatchedLog
from store.plain.config import PlainLogConfig
from store.plain.log import PlainListener
from store.plain.parts import PlainFeed
from store.plain.view import Body
from store.plain.writer import NOTHING, Extent

FULL_READ_BYTES: Final = 128 * 1024
"""A master that sends so much at once has more: this log is behind."""
UNDISPATCHED_BYTES_MAX: Final = 256 * 1024 * 1024
"""So far the log may go ahead of the queues then."""
SHARE_BEHIND: Final = 8
"""One entry in so many that could be is dispatched meanwhile: messages are safe first, and readable
then. With nothing more to read that slows nothing down: turns follow each other."""


class SlaveListener(PlainListener, Protocol):
    """Who uses the log of a slave."""

    def on_begun(self, position: int) -> None:
        """Take that the log, which is empty, begins there from now on."""
        ...


class SlaveLog(WatchedLog):
    """A log that nothing appends to but `copy`."""

    _user: SlaveListener
    _takes_entries = False

    def __init__(self, config: PlainLogConfig, **machine: Unpack[Machine]) -> None:
        super().__init__(config, **machine)
        self._recent: Final = Recent()
        self.feed: SlaveFeed = SlaveFeed(self, self._recent)

    @property
    def role(self) -> Role:
        """A follower, ever."""
        return Role.FOLLOWER

    def maybe_term(self, applied: int) -> None:
        """Return None: sends are not taken here."""

    @property
    def is_blank(self) -> bool:
        """Whether there is no entry."""
        return self.written.last_start == NOTHING

    @property
    def has_synced_last(self) -> bool:
        """Whether the own disk has all before the last record as ``flushDiskType`` wants it.

        A connection begins with that position, which RocketMQ's masters take as confirmed.
        """
        return self.is_blank or self.own_position >= max(self.written.last_start, 1)

    def begin_at(self, position: int) -> None:
        """Let a log without an entry begin there. Errors: `OSError`."""
        assert self.is_blank, self.written
        self._segments.clear()
        self._writer.begin(self._segments, Extent(position, NOTHING, position))
        flusher = self._flusher
        flusher.written_position = flusher.synced_position = position
        self.committed_position = position
        self._user.on_begun(position)

    def copy(self, runs: Sequence[Run]) -> bool:
        """Append what the master sent; False if the disk is full. Errors: `FatalError`."""
        segment_bytes = self.config.segment_bytes
        self.feed.came_bytes = sum(len(run.data) for run in runs)
        is_whole = True
        for _, group in groupby(runs, lambda run: run.position // segment_bytes):
            side_by_side = list(group)
            buffers = [run.data for run in side_by_side]
            first, last = side_by_side[0], side_by_side[-1]
            is_whole = is_whole and self._writer.copy(first.position, buffers, last.extent)
            if is_whole:
                self._recent.add(side_by_side)
        if not is_whole:
            self._disk_full.shut(self._clock.monotonic_ms(), self.next_position)
        self._work_off()
        return is_whole

    def walk(self, start: int, end: int, limit: int) -> Iterator[Body]:
        """Walk records, see `PlainView.walk`; those that have just come, as they came."""
        recent = self._recent.walk(start, end, limit)
        first = next(recent, None)
        return super().walk(start, end, limit) if first is None else chain((first,), recent)

    def _look_ahead(self) -> None:
        """Make no file ahead before it is known where the log begins."""
        if not self.is_blank:
            super()._look_ahead()


class SlaveFeed(PlainFeed):
    """The log of a slave as dispatch follows it."""

    def __init__(self, log: SlaveLog, recent: Recent) -> None:
        super().__init__(log)
        self._log = log
        self._recent = recent
        self.came_bytes = 0
        """How much the master sent last at once."""

    def next_batch(self, applied: int, most: int, least: int = 0) -> int:
        """Return how many entries to dispatch next: few while the log itself is behind."""
        del least
        self._recent.drop_before(applied)
        is_behind = self.came_bytes >= FULL_READ_BYTES
        if is_behind and self._log.end_position - applied < UNDISPATCHED_BYTES_MAX:
            return max(1, most // SHARE_BEHIND)
        return most

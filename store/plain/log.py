"""RocketMQ's CommitLog without a group: one broker, one log, nobody to ask.

The asyncio shell around `Writer`, `Flusher` and the files. All of it runs in one event loop thread;
syncs and removals run in a worker thread. What happens in one turn of the loop is done at once by
`PlainLog._turn`: the appends of the turn are written by one call, then the listener hears of the
new commit, once. ASYNC_FLUSH commits what is written, SYNC_FLUSH what is synced.

A full disk refuses appends, takes back what could not be written, and is tried again after a
moment. Any other failure of the disk, a failed sync before all, is the end of the process.

Life: construct, `open`, `start`, ..., `stop`. Who owns the directory (lock, ``abort``,
``checkpoint``) is the owner's business.
Source: spec/disk.md 5.1, 5.2, 5.7; RocketMQ CommitLog.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from dledger.config import FlushDiskType
from dledger.core.model import Role
from dledger.disk.full import DiskFullGate
from dledger.disk.watch import DiskWatch
from dledger.disk.worker import Worker
from dledger.errors import DiskFull, DLedgerError, NotLeader
from dledger.listener import exit_process
from dledger.segments.gather import Gather
from ledgermq.runtime.clock import Clock, SystemClock
from ledgermq.runtime.disk import NO_FILES, Disk, RealDisk
from ledgermq.runtime.errors import EXIT_BAD_INPUT, EXIT_ENVIRONMENT, FatalError
from store.plain.config import PlainLogConfig
from store.plain.files import open_segments
from store.plain.flusher import Flusher
from store.plain.parts import PlainFeed, PlainFiles, PlainMarks
from store.plain.recovery import Recovered, Synced, recover
from store.plain.view import TERM, PlainView
from store.plain.writer import Extent, Writer

if TYPE_CHECKING:
    from dledger.segments.row import Dropped

TICK_MS_MAX: Final = 100

_log: Final = logging.getLogger(__name__)


class PlainListener(Protocol):
    """Who uses the log; a part of `dledger.replicated_log.LogUser`. Called in the loop thread."""

    def on_committed(self, position: int) -> None:
        """Take that all entries before ``position`` are committed. At most once a turn."""
        ...

    def on_role(self, role: Role, term: int, leader_id: str | None) -> None:
        """Take that the log accepts entries from now on, or does no more."""
        ...

    def on_rolled_back(self, position: int) -> None:
        """Take that entries from ``position`` on were not appended after all: they failed."""
        ...


class PlainLog(PlainView):
    """A log in the format of RocketMQ; a `store.ports.Log`, with the other parts of `LogParts`."""

    feed: PlainFeed
    marks: PlainMarks
    files: PlainFiles

    reserve: Callable[[int], int]
    """Return the physical offset of a record appended next, see `Writer.reserve`."""
    append: Callable[[Sequence[bytes], int], None]
    """Append the record that was just reserved, see `Writer.append`."""
    append_batch: Callable[[Sequence[bytes]], None]
    """Append those that were reserved together, see `Writer.append_batch`."""
    _takes_entries: bool = True
    """Whether its user appends; otherwise somebody else does, in its own way."""

    def __init__(
        self,
        config: PlainLogConfig,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        on_fatal: Callable[[FatalError], None] = exit_process,
    ) -> None:
        """Make a log; nothing is touched before `open`.

        Args:
            config: see `PlainLogConfig`.
            disk: where the files lie; the machine's by default.
            clock: source of time; the machine's by default.
            on_fatal: called when the log cannot go on; by default the process ends.
        """
        self.config = config
        self._disk: Disk = disk or RealDisk()
        self._clock: Clock = clock or SystemClock()
        self._on_fatal = on_fatal
        self._is_sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._disk_full = DiskFullGate(config.name, config.disk_full_retry_ms)
        self._disk_watch = DiskWatch(
            config.name, config.disk_hang_ms, _tick_ms(config), self._clock
        )
        self._damaged: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._opened = self._started = self._running = False
        self.was_opened = False
        """Whether it is open, or was: then it is known where it ends."""
        self._told_role = False
        self._prepared = -1
        """The segment that was made ahead last."""
        self._leaving: deque[Dropped] = deque()
        """Files that were dropped and are still there, the oldest first."""
        self._is_removing = False
        self.committed_position = 0
        self.recovered: Recovered
        """What `open` found."""
        self._writer = Writer(config, schedule=self._call_turn, refusal=self._refusal)
        self.reserve = self._writer.reserve
        self.append = self._writer.append
        self.append_batch = self._writer.append_batch
        self.entries = self
        self.feed, self.marks, self.files = PlainFeed(self), PlainMarks(self), PlainFiles(self)

    # Life

    def open(
        self, *, clean: bool = False, safe_timestamp_ms: int = 0, synced: Synced | None = None
    ) -> None:
        """Recover the log; entries can be read from then on.

        Args:
            clean: whether the last stop was a clean one.
            safe_timestamp_ms: messages stored before it are synced, see `recover`; 0: unknown.
            synced: what more is known to be synced.

        `start` does it where it was not done. Errors: `FatalError`.
        """
        if self._opened:
            return
        config = self.config
        try:
            self._segments = open_segments(self._disk, config)
            self.recovered = recover(
                self._segments,
                config,
                clean=clean,
                safe_timestamp_ms=safe_timestamp_ms,
                synced=synced,
            )
        except OSError as error:
            message = f"the commit log in {config.directory} cannot be opened: {error}"
            raise FatalError(message, EXIT_BAD_INPUT) from error
        extent = self.recovered.extent
        self._writer.begin(self._segments, extent)
        self._flusher = Flusher(
            config, self._clock, self._segments, extent.last_end, self._last_stored_ms
        )
        self.committed_position = extent.last_end
        self._opened = self.was_opened = True

    async def start(self, user: PlainListener) -> None:
        """Take entries, for ``user``. Errors: `FatalError`."""
        self._user = user
        self.open()
        self._loop = asyncio.get_running_loop()
        self._worker = Worker(f"{self.config.name}-sync", self._clock, on_error=self._on_error)
        self._disk_watch.start(self._worker)
        self._flusher.start(self._worker, self._on_synced)
        self._gather = Gather(self._loop.call_soon, self._written_position, self._begin_sync)
        self._started = self._running = True
        self._writer.accepting = self._takes_entries
        self._schedule_timer()
        self._writer.scheduled = True
        self._call_turn()

    async def stop(self) -> None:
        """Write and sync what was appended, and close. Idempotent.

        A log that had failed (`on_fatal`) only lets go of what it holds.
        """
        is_sound, self._running = self._running, False
        if self._started:
            self._started = False
            self._writer.accepting = False
            if self._timer is not None:
                self._timer.cancel()
            await self._worker.drain()
            if is_sound:
                self._finish()
            self._worker.close()
        if self._opened:
            self._opened = False
            self._segments.close()

    def _finish(self) -> None:
        """Make everything durable, and tell of it."""
        rolled_back = self._write()
        self._flusher.save_all()
        self._tell(rolled_back)
        if self._told_role:
            self._user.on_role(Role.FOLLOWER, TERM, None)

    # Looking

    @property
    def written(self) -> Extent:
        """What is written."""
        return self._writer.written

    def _written_position(self) -> int:
        return self._flusher.written_position

    @property
    def synced_position(self) -> int:
        """Where the last entry ends that survives a loss of power for sure."""
        return self._flusher.synced_position

    @property
    def own_position(self) -> int:
        """Where the last entry ends that is on this disk as ``flushDiskType`` wants it."""
        return self._find_own()

    @property
    def synced_timestamp(self) -> int:
        """When the last entry of which that is known was stored (ms), 0 for none."""
        return self._flusher.synced_timestamp

    def status(self) -> dict[str, object]:
        """Return what an administrator asks, in JSON types.

        Entries are named by the position of their last byte there, -1 stands for none.
        """
        return {
            "node": self.config.name,
            "mode": "plain",
            "role": self.role.value,
            "term": TERM,
            "leader": self.config.name if self._running else None,
            "commit": self.committed_position - 1,
            "first_index": self.first_position,
            "last_index": self.end_position - 1,
            "last_term": TERM,
            "end_position": self.next_position,
            "synced_index": self.synced_position - 1,
            "flush_disk_type": self.config.flush_disk_type.value,
            "segments": len(self._segments.bases),
            "segment_bytes": self.config.segment_bytes,
            "open_segments": self._segments.open_count,
            "disk_full": self._disk_full.is_closed,
            "damaged": len(self._damaged),
            "disk_hung": self._disk_watch.is_hung,
            "sync_ms": self._worker.waiting_ms() if self._started else 0,
        }

    # Retention

    def drop_before(self, position: int) -> int:
        """Drop whole segments that end at or before ``position``, never the last one.

        Returns the bytes dropped. Nothing that is not committed goes. Views that are held stay
        readable. The files are removed in the worker thread; should that fail, the process ends.
        Where no more files may be opened, which a removal needs, too, it is tried again.
        """
        segments = self._segments
        last = segments.end - segments.segment_bytes
        dropped = segments.drop_below(min(position, self.committed_position, last))
        files = len(dropped.bases)
        if not files:
            return 0
        _log.info("event=commit_log_dropped files=%d begins=%d", files, segments.start)
        self._leaving.append(dropped)
        if self._running:
            self._remove_soon()
        else:
            self._remove()
        return files * segments.segment_bytes

    def _remove_soon(self) -> None:
        if self._leaving and not self._is_removing:
            self._is_removing = True
            self._worker.submit(self._remove, self._end_removal)

    def _end_removal(self) -> None:
        self._is_removing = False

    def _remove(self) -> None:
        """Remove what was dropped, in order: there may be no gap between files. In a thread."""
        while self._leaving:
            dropped = self._leaving[0]
            try:
                self._segments.remove(dropped)
            except OSError as error:
                if error.errno in NO_FILES:
                    return
                path = self._segments.path(dropped.bases[0])
                message = f"the commit log cannot remove {path}: {error}"
                raise FatalError(message, EXIT_ENVIRONMENT) from error
            self._leaving.popleft()

    # The turn

    def _call_turn(self) -> None:
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Do everything that has come up since the last turn."""
        self._writer.scheduled = False
        self._guard(self._work_off)

    def _work_off(self) -> None:
        self._tell(self._write())

    def _write(self) -> int | None:
        """Write what was collected; return from where on nothing was, if the disk is full."""
        rolled_back = self._writer.flush()
        self._flusher.written_position = self._writer.written.last_end
        if rolled_back is not None:
            self._disk_full.shut(self._clock.monotonic_ms(), rolled_back)
            self._writer.accepting = False
        if self._running:
            if self._is_sync:
                self._gather.start()
            self._look_ahead()
        return rolled_back

    def _look_ahead(self) -> None:
        """Have the next segment made when half of the last one is full."""
        position = self._writer.written.position + self.config.segment_bytes // 2
        base = position - position % self.config.segment_bytes
        if base >= self._segments.end and base != self._prepared:
            self._prepared = base
            self._worker.submit(partial(self._segments.prepare, base), _nothing)

    def _tell(self, rolled_back: int | None = None) -> None:
        """Tell the listener what is new: that it leads, what is committed, what failed."""
        if self._running and not self._told_role:
            self._told_role = True
            self._user.on_role(self.role, TERM, self.config.name if self._takes_entries else None)
        committed = self._find_committed()
        if committed > self.committed_position:
            self.committed_position = committed
            self._writer.set_committed(committed)
            self._user.on_committed(committed)
        if rolled_back is not None:
            self._user.on_rolled_back(rolled_back)

    def _find_own(self) -> int:
        flusher = self._flusher
        return flusher.synced_position if self._is_sync else flusher.written_position

    def _find_committed(self) -> int:
        """Return up to where entries count as committed now."""
        return self._find_own()

    def _on_synced(self) -> None:
        self._guard(self._after_sync)

    def _after_sync(self) -> None:
        if self._is_sync:
            self._tell()
            self._gather.start()

    def _begin_sync(self) -> None:
        self._guard(self._flusher.begin)

    def _schedule_timer(self) -> None:
        self._timer = self._loop.call_later(_tick_ms(self.config) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        if self._running:
            self._schedule_timer()
            self._guard(self._pass_time)

    def _pass_time(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._disk_watch.look()
        if self._disk_full.pass_time(now_ms):
            self._writer.accepting = self._takes_entries
        self._flusher.pass_time(now_ms)
        self._remove_soon()

    def _guard(self, work: Callable[[], None]) -> None:
        """Run ``work``; whatever goes wrong is the end of this log."""
        if not self._running:
            return
        try:
            work()
        except Exception as error:  # noqa: BLE001  # must end the log, not vanish in the loop
            self._on_error(error)

    def _on_error(self, error: BaseException) -> None:
        if not isinstance(error, FatalError):
            _log.error("event=bug in=commit_log", exc_info=error)
            error = FatalError("a bug in the commit log or its listener", EXIT_ENVIRONMENT)
        if self._running:
            self._running = False
            self._writer.accepting = False
            if self._timer is not None:
                self._timer.cancel()
            self._on_fatal(error)

    # Refusals

    def _refusal(self) -> DLedgerError:
        if self._running and self._disk_full.is_closed:
            return DiskFull()
        return NotLeader(None)


def _nothing() -> None:
    """Do nothing more."""


def _tick_ms(config: PlainLogConfig) -> int:
    """Return how often a log looks what is due."""
    return min(TICK_MS_MAX, config.flush_interval_ms, config.disk_full_retry_ms)

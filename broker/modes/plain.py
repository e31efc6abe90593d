"""A broker on its own: RocketMQ's plain CommitLog in a directory that RocketMQ can share.

What is done to the directory has an order. Start: it is locked, the log is opened with what
``abort`` and ``checkpoint`` say, then tables and queues; ``abort`` is made before anything but a
torn end is cut, and before the first message is taken. Tables that RocketMQ wrote are written anew,
with our mark, before that, too. Stop: tables, queues and checkpoint, then the log; ``abort`` goes
last, and only if all of the log is in queues that are on disk.
Source: spec/disk.md 5; RocketMQ DefaultMessageStore.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from broker.cluster.guard import Guard
from broker.cluster.role import MASTER_ID
from broker.ports import check_log, check_no_epochs, check_no_group
from broker.processor.no_group import NoGroup
from broker.retention.retained_log import ALL_DUE, Dropped, SegmentAges
from broker.state.kinds import StateKind
from broker.state.saver import TableSaver
from broker.state.shared_snapshot import SharedSnapshot
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.errors import FatalError
from store.dispatch.anomalies import Unreplicated
from store.plain import PlainLog
from store.recovery.directory import StoreDirectory, SyncedTimes
from store.recovery.foreign import take_over
from store.recovery.foreign_queues import SAFETY_MS
from store.recovery.known import known_synced

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from broker.core import Core
    from broker.retention_policy import Segment
    from store.message_store import MessageStore
    from store.queues.start import QueueStart

_log = logging.getLogger(__name__)

#: The term of a registration that is not of a Raft group.
NO_TERM: Final = -1
_WRITTEN_SOON: Final = frozenset({
    StateKind.TOPIC.value, StateKind.FORGET_TOPIC.value,
    StateKind.GROUP.value, StateKind.FORGET_GROUP.value,
})  # fmt: skip


class PlainMode:
    """The parts of a broker that exist because it stands alone.

    Made once; it attaches the log to the store. Masters and slaves have one, over a log of theirs.
    ``mark`` is what ``abort`` holds meanwhile.
    """

    def __init__(
        self,
        core: Core,
        log: PlainLog | None = None,
        anomalies: type[Unreplicated] = Unreplicated,
        *,
        mark: bytes = b"",
    ) -> None:
        config, tables, store = core.config, core.tables, core.store
        disk, clock, rng, on_fatal = core.machine
        self._config = config
        self._disk = disk
        self._store = store
        self._directory = StoreDirectory(config.store_path, disk, mark)
        self._failed = self._loaded = False
        self._due = asyncio.Event()
        self._state = state = tables.state
        self.snapshot = SharedSnapshot(
            f"{config.store_path}/config", state, disk, tables.topics.is_system
        )

        self.saver = TableSaver(
            self.snapshot, lambda: self.applied_index, secure=self.secure, pause=self.pause
        )
        self.log = log or PlainLog(
            config.plain_log_config(), disk=disk, clock=clock, on_fatal=on_fatal
        )
        self._times = SyncedTimes(
            lambda: self.log.synced_timestamp,
            lambda: self.log.synced_position,
            (lambda: store.checkpoints.index_timestamp) if config.message_index_enable else None,
        )
        store.attach(self.log, self._times, anomalies)
        self.retained = PlainRetainedLog(self.log, store, self.snapshot, self.saver.save)
        #: What answers requests that only a broker of this mode answers so.
        self.processors = (NoGroup(lambda: self.applied_index, self.log.term),)
        self.credentials = core.files.credentials
        self.guard = Guard(self.credentials, config, clock.wall_ms)
        self.boot_id = f"{rng.randint(0, 2**63 - 1):016x}"

    async def check(self) -> None:
        """Find out whether this broker may start here; nothing is touched. Errors: `FatalError`."""
        check_no_group(self._disk, self._config)
        check_no_epochs(self._disk, self._config)
        check_log(self._disk, self._config)

    def open(self) -> None:
        """Take the directory, and open the log. Errors: `FatalError`."""
        self.credentials.begin()
        directory = self._directory
        directory.enter()
        self.log.open(
            clean=directory.was_clean,
            safe_timestamp_ms=max(0, directory.times.physic - SAFETY_MS),
            synced=known_synced(directory, self._disk),
        )

    def lower_promises(self) -> None:
        """Promise no more than the log has whose end was cut off. Errors: `FatalError`.

        What comes to those places is not synced, though ``checkpoint`` said so of what was there.
        """
        self._directory.lower_times(self.log.synced_timestamp)

    def load(self) -> None:
        """Load tables and queues. Errors: `FatalError`."""
        log = self.log
        applied_index = self.snapshot.load_for(
            log.end_position - 1,
            lambda index: log.maybe_size(log.following(index + 1)) is not None,
        )
        self._store.load(
            applied_index + 1,
            recover=lambda queues: take_over(
                self._directory,
                self._disk,
                queues,
                self.log,
                is_foreign=self.snapshot.has_foreign,
            ),
            index_until=None if self._directory.was_clean else self._directory.times.index,
        )
        self._directory.mark_unclean()
        self._times.last = self._directory.times
        self._loaded = True

    async def start_log(self) -> None:
        """Take entries. Errors: `FatalError`."""
        await self.log.start(self._store.log_user)

    async def begin(self) -> None:
        """Mark the tables as ours, before anything is taken that they might lack."""
        await self.saver.save()

    async def end(self) -> None:
        """Nothing was begun that has to end."""

    def on_registered(self, answer: Mapping[str, str]) -> bool:
        """Return True: nothing that name servers say matters to a broker on its own."""
        del answer
        return True

    def leave(self) -> None:
        """Give the directory up, after store and log have stopped."""
        if not self._loaded:
            self._directory.leave(clean=False)  # as it was found
            return
        is_clean = (
            not self._failed
            and self.log.synced_position == self.log.end_position == self._store.checkpoints.covered
        )
        if not is_clean:
            _log.warning(
                "event=left_unclean directory=%s log_end=%d synced=%d queues_cover=%d",
                self._config.store_path, self.log.end_position, self.log.synced_position,
                self._store.checkpoints.covered,
            )  # fmt: skip
        self._directory.leave(clean=is_clean, times=self._times.when_all_is_synced())

    @property
    def applied_index(self) -> int:
        """Last byte of what the store has dispatched: so files and status name an entry."""
        return self._store.applied - 1

    @property
    def state_index(self) -> int:
        """Last byte of the log of which the tables had the state when they were loaded."""
        return self._store.state_end - 1

    def includes(self, position: int, kind: str) -> bool:
        """Tell whether the tables include a record that the store hands out."""
        return self.snapshot.includes(kind, position - 1)

    def on_failed(self) -> None:
        """Keep ``abort``: what log or store have on disk is not what they think."""
        self._failed = True

    def on_applied(self, kind: str) -> None:
        """Have a new topic or group written soon: RocketMQ, after a crash, knows it from the file.

        All else waits for its turn, as it does in RocketMQ.
        """
        if kind in _WRITTEN_SOON:
            self._due.set()

    async def pause(self, seconds: float) -> None:
        """Wait until the tables are to be written again."""
        with contextlib.suppress(TimeoutError):
            async with timeout(seconds):
                await self._due.wait()
        self._due.clear()

    async def secure(self, index: int) -> bool:
        """Return True: RocketMQ takes its tables from the files, whatever the log has."""
        del index
        return True

    def restore(self, state: bytes) -> tuple[list[QueueStart], Iterator[None]]:
        """Refuse: nobody sends a snapshot to a log of its own."""
        del state
        raise FatalError("a snapshot of a group does not belong in a log without one")

    @property
    def broker_id(self) -> int:
        """Id under which the broker registers: that of a master."""
        return MASTER_ID

    @property
    def term(self) -> int:
        """Term that name servers are told: none."""
        return NO_TERM

    def status(self) -> dict[str, Any]:
        """Return the log's view of itself."""
        return {
            **self.log.status(),
            **self._store.status(),
            "applied": self.applied_index,
            "state_quarantined": self._state.quarantined,
            "boot_id": self.boot_id,
        }


class PlainRetainedLog:
    """A `broker.retention.retained_log.RetainedLog` without a group.

    Args:
        save: writes the tables to disk.
    """

    def __init__(
        self,
        log: PlainLog,
        store: MessageStore,
        snapshot: SharedSnapshot,
        save: Callable[[], Awaitable[None]],
    ) -> None:
        self._log = log
        self._store = store
        self._snapshot = snapshot
        self._save = save
        self._ages = SegmentAges(log)

    def segments(self) -> list[Segment]:
        """Return the segments that hold something."""
        log = self._log
        heads = range(log.first_position, log.end_position, log.config.segment_bytes)
        return self._ages.segments(heads, log.next_position)

    async def drop_before(self, position: int) -> Dropped:
        """Let the log begin at ``position``, as far as tables and queues on disk cover it."""
        await self._save()
        await self._store.checkpoints.write()
        limits = (
            (position, ALL_DUE),
            (self._snapshot.saved_index + 1, "the tables on disk include no more"),
            (self._store.checkpoints.covered, "the queues on disk cover no more"),
        )
        limit, reason = min(limits, key=lambda limit: limit[0])
        segment_bytes = self._log.config.segment_bytes
        begin = limit - limit % segment_bytes
        if begin <= self._log.first_position:
            return Dropped(0, reason)
        lacking = await self._store.log_start.resolve(begin)
        if lacking and self._store.is_repairing:
            return Dropped(0, "units of a queue are damaged; the store is repairing it")
        self._store.log_start.advance_to(begin)
        return Dropped(self._log.drop_before(begin), reason)

"""The store as the broker sees it: its parts, put together over one log, and when they do things.

Callers reach a part by its name: `writer` takes messages and state, `reader` and `schedule` answer,
`log_start` is about the beginning of the log, `checkpoints` about what is on disk. `log_user` is
what the log talks to. The store itself starts and stops, and says what is due at a tick. All of
that happens in the loop thread, but for syncs.

Life: construct, `attach` the log, `load`, start the log, `start`, ..., `stop`, stop the log.
Source: docs/architecture.md; docs/adr/0018-store-parts.md.
"""

import logging
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from dledger.listener import exit_process
from store.dispatch.anomalies import Quarantine
from store.dispatch.dispatcher import Dispatcher
from store.dispatch.turns import DispatchTurns
from store.index import IndexKeeper
from store.life import Life
from store.log_user import StoreLogUser
from store.queues.consume_queue import ConsumeQueues
from store.queues.start import LogStart
from store.read.reader import Reader
from store.read.schedule import Schedule
from store.recovery.checkpointer import Checkpointer
from store.recovery.checkpoints import Checkpoints
from store.recovery.loading import Loading
from store.recovery.repair import Repairer
from store.write.commit_log import CommitLog
from store.write.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.disk import Disk
    from ledgermq.runtime.errors import FatalError
    from store.config import StoreConfig
    from store.dispatch.anomalies import Anomalies
    from store.ports import LogFiles, LogParts, LogReader, StoreListener
    from store.queues.start import QueueStart
    from store.recovery.checkpointer import Times
    from store.recovery.start import Recovered

_log = logging.getLogger(__name__)


class MessageStore:
    """A broker's messages, kept by a log."""

    writer: Writer
    reader: Reader
    schedule: Schedule
    log_start: LogStart
    checkpoints: Checkpoints
    log_user: StoreLogUser

    def __init__(  # noqa: PLR0913 - what it stands on, and whom it tells
        self,
        config: "StoreConfig",
        disk: "Disk",
        clock: "Clock",
        listener: "StoreListener",
        *,
        on_fatal: "Callable[[FatalError], None]" = exit_process,
        call_soon: "Callable[[Callable[[], None]], object] | None" = None,
        watchers: "Sequence[Callable[[], None]]" = (),
    ) -> None:
        """Make a store; nothing is touched before `load`.

        ``on_fatal`` is called in the loop thread when the environment failed; the store does
        nothing any more then, and by default the process ends. ``call_soon`` is the loop's.
        ``watchers``, which may change, are told when something was committed, see
        `Writer.uncommitted_bytes`.
        """
        self._config = config
        self._disk = disk
        self._clock = clock
        self._listener = listener
        self._life = life = Life(on_fatal)
        self._call_soon = call_soon
        self._watchers = watchers
        self._queues = ConsumeQueues(config, disk)
        self._index: IndexKeeper | None = None
        if config.index is not None:
            directory = config.directory
            self._index = IndexKeeper(config.index, directory, disk, clock, on_fatal=life.fail)

    def attach(
        self,
        parts: "LogParts",
        times: "Times | None" = None,
        anomalies: "Callable[[LogReader, LogFiles, ConsumeQueues], Anomalies]" = Quarantine,
    ) -> None:
        """Make the parts over the log that this store writes to and reads from; the first call.

        ``times``: what RocketMQ's ``checkpoint`` may promise, see `Checkpointer`.
        ``anomalies``: makes what decides about entries that are not what is expected.
        """
        config, disk, queues, index = self._config, self._disk, self._queues, self._index
        self._log = log = parts.entries
        keys = None if index is None else index.index
        self._commit_log = CommitLog(config, queues, self._clock, log, keys)
        uncommitted = self._commit_log.uncommitted
        self._anomalies = anomalies(log, parts.files, queues)
        self._dispatcher = Dispatcher(
            config, parts, queues, uncommitted, self._listener, self._anomalies
        )
        self._dispatcher.keys = keys
        checkpointer = Checkpointer(
            config, disk, queues, parts, on_fatal=self._life.fail, times=times
        )
        self._loading = Loading(config.directory, disk, queues, index, log, parts.marks)
        self._repairer = Repairer(config, queues, log)
        self.writer = Writer(self._commit_log, log, self._listener, self._life)
        self.reader = Reader(config, queues, log, parts.files, index)
        self.schedule = Schedule(config, queues, self._commit_log.stamps)
        self.log_start = LogStart(queues, lambda: checkpointer.is_busy)
        if keys is not None:
            self.log_start.drop_keys_before = keys.drop_before
        self.checkpoints = Checkpoints(checkpointer, index, self._dispatcher, parts.marks)
        self._maybe_agree = partial(
            self._loading.agree, self._dispatcher, checkpointer, self.log_start
        )
        self._turns = DispatchTurns(
            self._dispatcher, self.writer, self._life, self._agree, self._call_soon,
            self._watchers,
        )  # fmt: skip
        self.log_user = StoreLogUser(
            self._commit_log,
            self.writer,
            self._turns,
            self.log_start,
            self._replace,
            self._begin_at,
        )

    def load(
        self,
        state_end: int = 0,
        starts: "Sequence[QueueStart]" = (),
        *,
        recover: "Callable[[ConsumeQueues], Recovered] | None" = None,
        index_until: int | None = 0,
    ) -> None:
        """Recover the consume queues; before the node starts.

        ``state_end``: state records before it are in the listener's own snapshot. Committed ones
        behind it are applied (again), and so are all if it lies behind the end of the log.
        ``starts``: where the queues begin in a log whose beginning was dropped.
        ``recover``: fills the queues in another way, with the log open (`store.recovery.foreign`).
        ``index_until``: time (ms) up to which index files of RocketMQ are whole; None: all are.
        Errors: `FatalError`.
        """
        self._dispatcher.state_end = state_end
        self._loading.load(starts, recover, index_until)

    def start(self) -> None:
        """Begin to dispatch and to tick; in the loop, after the node has started."""
        self._agree()
        self._turns.on_committed(self._log.committed_position)
        self._life.tick_every(self._config.tick_ms, self.tick)

    async def stop(self) -> None:
        """Answer what waits with UNKNOWN, write a last checkpoint and close the files."""
        if self._life.is_over:
            return
        self._life.end()
        self.writer.close()
        self.log_start.remove_left()
        await self.checkpoints.finish()
        self._queues.files.close()

    def close_files(self) -> None:
        """Close the files, also of a store whose `load` has failed. Idempotent."""
        self._queues.files.close()
        if self._index is not None:
            self._index.close()

    @property
    def readable(self) -> bool:
        """Whether this replica answers reads: it leads, or is one that others may read from."""
        return self._config.reads_following or self.writer.writable

    @property
    def is_repairing(self) -> bool:
        """Whether units of a queue are being made again, for which the log is needed as it is."""
        return self._queues.has_space and self._repairer.is_at_work

    @property
    def applied(self) -> int:
        """How far in the log all is dispatched: state is applied, messages are readable."""
        return self._dispatcher.applied_end

    @property
    def state_end(self) -> int:
        """How far in the log the listener's state came when it was loaded."""
        return self._dispatcher.state_end

    def status(self) -> dict[str, int]:
        """Return what an administrator asks: entries without a message, what the clocks say."""
        stamps = self._commit_log.stamps.status()
        return {"quarantined": self._anomalies.count, **stamps}

    def tick(self) -> None:
        """Do what is due: late puts, queue writes, dispatch after a full disk, a checkpoint."""
        now_ms, queues = self._clock.monotonic_ms(), self._queues
        self._commit_log.expire(now_ms)
        self.checkpoints.tick_index(now_ms)
        had_space = queues.has_space
        if queues.flush_some(self._config.flush_queues_max):
            if not had_space:
                _log.warning("event=consume_queues_written_again applied=%d", self.applied)
            self._turns.resume()
            self.log_start.drop_what_waits()
            if not self.checkpoints.is_busy:
                self._repairer.step(self.applied)
            self.checkpoints.tick_queues(now_ms)
        elif had_space:
            _log.warning("event=disk_full_consume_queues_wait units=%d", queues.unwritten_units)

    def _replace(self, position: int, state: bytes) -> None:
        """Replace everything: a snapshot took the place of the log before ``position``."""
        self._loading.give_up()
        self.writer.close()
        starts, steps = self._listener.restore_state(state)
        self._restart(position, starts, steps)
        _log.info("event=store_restarts_at position=%d queues=%d", position, len(starts))

    def _begin_at(self, position: int) -> None:
        """Begin where an empty log does from now on: nothing was there that counts."""
        self._loading.give_up()
        self._restart(position, (), iter(()))
        _log.info("event=store_begins_at position=%d", position)

    def _restart(
        self, position: int, starts: "Sequence[QueueStart]", restoring: "Iterator[None]"
    ) -> None:
        """Go on at ``position``, with queues that begin, empty, where ``starts`` say."""
        beginning = self.log_start.install(starts)
        self.checkpoints.forget()
        self._turns.restart(position, chain(beginning, restoring))

    def _agree(self) -> None:
        """Settle where dispatch begins, if it is not yet; it is held as long as that takes."""
        steps = self._maybe_agree()
        if steps is not None:
            self._turns.hold(steps)

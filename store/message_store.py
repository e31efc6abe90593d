"""The store as the broker sees it: put, read, replicated state, and the log's listener.

It ties together what lies beside it: `CommitLog` appends, `Dispatcher` indexes what is committed,
`Reader` answers, `store.recovery.start` starts from what is on disk. It decides when things happen:
what a commit or a change of role sets off, and what a tick does; in the loop thread, but for syncs.

Life: construct, `attach` the node, `load`, start the node, `start`, ..., `stop`, stop the node.
Source: docs/architecture.md; contract of the store between broker and log.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from dledger.core.model import LEADER
from dledger.listener import exit_process
from ledgermq.runtime.disk import NO_SPACE
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError, invariants_are_fatal
from store.dispatch.anomalies import Quarantine
from store.dispatch.dispatcher import Dispatcher
from store.index import IndexKeeper
from store.layout import record_is_sound
from store.queues import start as beginning
from store.queues.consume_queue import ConsumeQueues
from store.read.key_query import KeyQuery, KeyResult
from store.read.reader import Reader
from store.read.schedule import Schedule
from store.recovery.checkpointer import Checkpointer
from store.recovery.repair import Repairer
from store.recovery.start import Recovered, agree_with_log, load_queues
from store.write.answering import refuse, refuse_batch
from store.write.commit_log import CommitLog
from store.write.hints import is_sound_hint
from store.write.stamps import GroupClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dledger.core.model import Role
    from dledger.mark import LogMark
    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.disk import Disk
    from store.config import StoreConfig
    from store.dispatch.anomalies import Anomalies
    from store.ports import Log, StoreListener
    from store.queues.start import QueueStart
    from store.recovery.checkpointer import Times
    from store.results import (
        BatchCallback,
        Boundary,
        GetResult,
        PutBatch,
        PutCallback,
        PutMessage,
        StateCallback,
        Wanted,
    )

_log = logging.getLogger(__name__)


class MessageStore:
    """A broker's messages, kept by a log; also the user of that log (`LogUser`)."""

    put: "Callable[[PutMessage, PutCallback], None]"
    """Append one message, see `CommitLog.put`."""
    put_batch: "Callable[[PutBatch, BatchCallback], None]"
    """Append messages of one queue side by side, see `CommitLog.put_batch`."""
    propose_state: "Callable[[str, bytes, StateCallback], None]"
    """Append ``(kind, payload)`` as replicated state, see `CommitLog.propose_state`."""
    get: "Callable[[str, int, int, int, int, Wanted], GetResult]"
    """``(topic, queue_id, offset, max_count, max_bytes, wanted)``, see `Reader.get`."""
    begins_recently: "Callable[[str, int], bool]"
    earliest_store_time: "Callable[[str, int], int]"
    store_time: "Callable[[str, int, int], int]"
    log_range: "Callable[[], tuple[int, int]]"
    units: "Callable[[str, int, int, int], list[tuple[int, int, int]] | None]"
    schedule: Schedule
    before_hand_over: "Callable[[], None]" = staticmethod(lambda: None)
    """Called while state can still be proposed, before leadership is handed over on purpose."""

    def __init__(
        self,
        config: "StoreConfig",
        disk: "Disk",
        clock: "Clock",
        listener: "StoreListener",
        *,
        on_fatal: "Callable[[FatalError], None]" = exit_process,
        call_soon: "Callable[[Callable[[], None]], object] | None" = None,
    ) -> None:
        """Make a store; nothing is touched before `load`.

        ``on_fatal`` is called in the loop thread when the environment failed; the store does
        nothing any more then, and by default the process ends. ``call_soon`` is the loop's.
        """
        self._config = config
        self._disk = disk
        self._clock = clock
        self._listener = listener
        self._on_fatal = on_fatal
        self._call_soon = call_soon
        self._queues = ConsumeQueues(config, disk)
        self._index: IndexKeeper | None = None
        if config.index is not None:
            of_keys, directory = config.index, config.directory
            self._index = IndexKeeper(of_keys, directory, disk, clock, on_fatal=self._fail)
        self._log: Log
        self._commit_log: CommitLog
        self._dispatcher: Dispatcher
        self._reader: Reader
        self._key_query: KeyQuery | None = None
        self._recovered = Recovered()
        self._bases: Sequence[QueueStart] = ()
        self._drops_files = False
        self._agreed = False
        self._committed = 0
        self._scheduled = False
        self._writable_term = 0
        self._checkpointer: Checkpointer
        self._repairer: Repairer
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def attach(
        self,
        log: "Log",
        times: "Times | None" = None,
        anomalies: "Callable[[Log, ConsumeQueues], Anomalies]" = Quarantine,
    ) -> None:
        """Take the log that this store writes to and reads from; before anything else.

        ``times``: what RocketMQ's ``checkpoint`` may promise, see `Checkpointer`.
        ``anomalies``: makes what decides about entries that are not what is expected.
        """
        self._log = log
        self._commit_log = CommitLog(self._config, self._queues, self._clock, log)
        self._anomalies = anomalies(log, self._queues)
        self._dispatcher = Dispatcher(
            self._config, log, self._queues, self._commit_log.uncommitted, self._listener,
            self._anomalies,
        )  # fmt: skip
        self._reader = Reader(self._config, self._queues, log)
        self._repairer = Repairer(self._queues, log, self._config.delay_levels_ms)
        self.schedule = Schedule(self._config, self._queues, self._commit_log.stamps)
        self._checkpointer = Checkpointer(
            self._config, self._disk, self._queues, log, on_fatal=self._fail, times=times
        )
        if self._index is not None:
            self._dispatcher.keys = self._index.index
            self._commit_log.keys = self._index.index
            self._key_query = KeyQuery(
                self._index.config, self._index.index, self._reader.message_at
            )
        # What requests reach of the log: a broken invariant in there is not theirs to survive.
        self._open = (
            invariants_are_fatal(self._commit_log.put),
            invariants_are_fatal(self._commit_log.put_batch),
        )
        self.put, self.put_batch = self._open
        self.propose_state = invariants_are_fatal(self._commit_log.propose_state)
        self.get, self.begins_recently = self._reader.get, self._reader.begins_recently
        self.store_time, self.log_range = self._reader.store_time, self._reader.log_range
        self.units = self._reader.units
        self.earliest_store_time = self._reader.earliest_store_time

    def load(
        self,
        state_end: int = 0,
        bases: "Sequence[QueueStart]" = (),
        *,
        recover: "Callable[[ConsumeQueues], Recovered] | None" = None,
        index_until: int | None = 0,
    ) -> None:
        """Recover the consume queues; before the node starts.

        ``state_end``: state records before it are in the listener's own snapshot. Committed ones
        behind it are applied (again), and so are all if it lies behind the end of the log.
        ``bases``: where the queues begin in a log whose beginning was dropped.
        ``recover``: fills the queues in another way, with the log open (`store.recovery.foreign`).
        ``index_until``: time (ms) up to which index files of RocketMQ are whole; None: all are.
        Errors: `FatalError`.
        """
        self._dispatcher.state_end = state_end
        self._bases = bases
        directory = self._config.directory
        try:
            if recover is not None:
                self._recovered = recover(self._queues)
            else:
                self._recovered = load_queues(directory, self._disk, self._queues, bases)
        except OSError as error:
            message = f"the queues in {directory} cannot be read: {error}"
            raise FatalError(message, EXIT_ENVIRONMENT) from error
        if self._index is not None:
            self._index.load(trusted_until=index_until)

    def start(self) -> None:
        """Begin to dispatch and to tick; in the loop, after the node has started."""
        self._agree_with_log()
        self.on_committed(self._log.committed_position)
        self._on_timer()

    async def stop(self) -> None:
        """Answer what waits with UNKNOWN, write a last checkpoint and close the files."""
        if self._stopped:
            return
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._lose_leadership()
        if self._index is not None:
            await self._index.finish(self._maybe_mark(), is_last=True)
            self._index.close()
        await self._checkpointer.finish(self._dispatcher.applied, is_last=True)
        self._queues.files.close()

    @property
    def writable(self) -> bool:
        """Whether this replica leads and has applied everything of earlier terms."""
        return self._commit_log.writable

    def status(self) -> dict[str, int]:
        """Return what an administrator asks: entries without a message, what the clocks say."""
        stamps = self._commit_log.stamps.status()
        return {"quarantined": self._anomalies.count, **stamps}

    def compare_clocks(self, group: GroupClock) -> None:
        """Stamp messages with the time that the group agrees on."""
        self._commit_log.stamps.group = group

    @property
    def applied(self) -> int:
        """How far in the log all is dispatched: state is applied, messages are readable."""
        return self._dispatcher.applied_end

    @property
    def state_end(self) -> int:
        """How far in the log the listener's state came when it was loaded."""
        return self._dispatcher.state_end

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return one past the last readable queue offset; 0 for a queue that does not exist."""
        return self._reader.max_offset(topic, queue_id)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first readable queue offset; 0 for a queue that does not exist."""
        return self._reader.min_offset(topic, queue_id)

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: "Boundary | None" = None
    ) -> int:
        """Return the queue offset that belongs to a time (ms), see `Reader.offset_by_time`."""
        return self._reader.offset_by_time(topic, queue_id, timestamp, boundary)

    def message_at(self, physical_offset: int) -> memoryview | None:
        """Return the committed record at ``physical_offset``, None if no record begins there."""
        return self._reader.message_at(physical_offset)

    def messages_of_key(self, topic: str, key: str, limit: int, span: tuple[int, int]) -> KeyResult:
        """Return messages by key, see `KeyQuery.find`; none without an index."""
        if self._key_query is None:
            return KeyResult([])
        return self._key_query.find(topic, key, limit, span)

    @property
    def index_timestamp(self) -> int:
        """Store time (ms) up to which the key index on disk is whole, 0 for none."""
        return 0 if self._index is None else self._index.index.index_timestamp

    def is_sound_body(self, body: memoryview) -> bool:
        """Tell whether a record has the CRC it states."""
        return record_is_sound(body)

    def write_hint(self, start: int, end: int) -> bytes:
        """Return the hint of entries that were just appended."""
        return self._commit_log.write_hint(start, end)

    def is_sound_hint(self, hint: bytes, entries: int) -> bool:
        """Tell whether a hint is one, of so many entries."""
        return is_sound_hint(hint, entries)

    def noop_body(self, physical_offset: int) -> bytes:
        """Return the body of the entry with which a leader opens its term."""
        return self._commit_log.noop_body(physical_offset)

    def configuration_body(self, physical_offset: int, payload: bytes) -> bytes:
        """Return the body of an entry that holds a configuration of the group."""
        return self._commit_log.configuration_body(physical_offset, payload)

    def refuse_messages(self, refused: bool) -> None:  # noqa: FBT001 - a switch is what it is
        """Answer every message DISK_FULL, or take them again; state records are taken always."""
        self.put, self.put_batch = (refuse, refuse_batch) if refused else self._open

    def on_committed(self, position: int) -> None:
        """Dispatch what was committed, and answer those who wait for it."""
        self._committed = max(position, self._committed)
        if self._stopped:
            return
        if self._scheduled:
            self._commit_log.uncommitted.acknowledge(position)
        elif not self._dispatcher.may_wait():
            self._dispatch_turn()

    def on_role(self, role: "Role", term: int, leader_id: str | None) -> None:
        """Follow a change of role: without leadership nothing that waits can be known."""
        del leader_id
        if self._commit_log.writable and (role is not LEADER or term != self._writable_term):
            self._lose_leadership()
        self._maybe_become_writable()

    def on_hand_over(self) -> None:
        """Let the broker propose what it holds back."""
        if self._commit_log.writable:
            self.before_hand_over()

    def on_rolled_back(self, position: int) -> None:
        """Refuse the puts whose entries the log could not write for want of space."""
        self._commit_log.uncommitted.forget_from(position)

    # The beginning of the log

    @property
    def covered(self) -> int:
        """How far in the log the units of queues are on disk for sure."""
        return self._checkpointer.covered or 0

    async def write_checkpoint(self) -> None:
        """Write and sync queues and checkpoint; with the disk full, nothing happens."""
        await self._checkpointer.finish(self._dispatcher.applied)
        if self._index is not None:
            await self._index.finish(self._maybe_mark(), is_last=False)

    async def resolve_queue_starts(self, position: int) -> None:
        """Find out, a slice at a time, what `bases_at` and `on_trimmed` will need."""
        await beginning.look_up(self._queues, position)

    def bases_at(self, position: int) -> "list[QueueStart]":
        """Return where the queues begin in a log that begins at ``position``."""
        return beginning.bases_at(self._queues, position)

    def on_trimmed(self, position: int) -> None:
        """Let the queues begin where the log does from now on."""
        beginning.advance_to(self._queues, position)
        self._drops_files = True
        if self._index is not None:
            self._index.index.drop_before(position)

    def drop_queue_files(self) -> int:
        """Remove queue files before the beginning of the log; later, if a checkpoint is made."""
        self._drops_files = self._checkpointer.is_busy
        if self._drops_files:
            return 0
        queues = self._queues.by_key.values()
        before = sum(queue.file_count for queue in queues)
        for queue in queues:
            queue.drop_files()
        return before - sum(queue.file_count for queue in queues)

    def on_snapshot(self, position: int, state: bytes) -> None:
        """Replace everything: a snapshot took the place of the log before ``position``."""
        self._agreed = True
        self._lose_leadership()
        bases = self._listener.restore_state(state)
        beginning.install(self._queues, bases)
        self._checkpointer.forget()
        if self._index is not None:
            self._index.index.reset()
        self._dispatcher.restart(position)
        self._committed = position
        _log.info("event=store_restarts_at position=%d queues=%d", position, len(bases))

    def on_state_included(self, position: int) -> None:
        """Take that the state of that snapshot includes the records before ``position``."""
        self._dispatcher.state_end = max(position, self._dispatcher.state_end)

    def flush(self) -> bool:
        """Write and sync queues and checkpoint before returning; False if the disk is full."""
        if self._index is not None and not self._index.write_now(self._maybe_mark()):
            return False
        return self._checkpointer.write_now(self._dispatcher.applied)

    def tick(self) -> None:
        """Do what is due: late puts, queue writes, dispatch after a full disk, a checkpoint."""
        now_ms = self._clock.monotonic_ms()
        self._commit_log.expire(now_ms)
        if self._index is not None:
            self._index.tick(now_ms, self._maybe_mark)
        had_space = self._queues.has_space
        if self._queues.flush_some(self._config.flush_queues_max):
            if not had_space:
                _log.warning("event=consume_queues_written_again applied=%d", self.applied)
            if not self._scheduled and self.applied < self._committed:
                self._dispatch_turn()
            if self._drops_files:
                self.drop_queue_files()
            self._repair()
            self._checkpointer.tick(now_ms, self._dispatcher.applied)
        elif had_space:
            _log.warning(
                "event=disk_full_consume_queues_wait units=%d", self._queues.unwritten_units
            )

    def _repair(self) -> None:
        if not self._queues.files.damaged or self._checkpointer.is_busy:
            return
        try:
            self._repairer.step(self.applied)
        except OSError as error:
            if error.errno not in NO_SPACE:
                message = f"a consume queue cannot be repaired: {error}"
                raise FatalError(message, EXIT_ENVIRONMENT) from error

    def _on_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._config.tick_ms / 1000, self._on_timer)
        self._guard(self.tick)

    def _agree_with_log(self) -> None:
        """Settle, once the log is open, where dispatch begins."""
        if self._agreed:
            return
        self._agreed = True
        recovered, log = self._recovered, self._log
        first = agree_with_log(recovered, self._queues, log)
        beginning.settle(self._queues, self._bases)
        self._drops_files = True
        self._checkpointer.begin(recovered.marks)
        dispatcher = self._dispatcher
        if dispatcher.state_end > log.end_position:
            # The log has lost its end. What it gets there instead must not count as applied.
            _log.warning(
                "event=state_ahead_of_the_log applied=%d log_end=%d apply_again_from=%d",
                dispatcher.state_end, log.end_position, log.first_position,
            )  # fmt: skip
            dispatcher.state_end = log.first_position
        begin = max(min(first, dispatcher.state_end), log.first_position)
        newest = recovered.marks[0] if recovered.marks else None
        if self._index is not None:
            begin = min(begin, self._index.agree(log, newest))
        covered = self._checkpointer.covered
        is_behind_mark = newest is not None and begin == covered
        dispatcher.begin(newest.position if newest and is_behind_mark else -1, begin, covered)
        _log.info(
            "event=dispatch_begins position=%d log_end=%d queues=%d rebuild=%s",
            begin, log.end_position, len(self._queues.by_key), recovered.rebuild,
        )  # fmt: skip

    def _maybe_mark(self) -> "LogMark | None":
        """Return the entry up to which everything was dispatched, None if it is not known."""
        start, end = self._dispatcher.applied
        mark = self._log.mark(start, end) if start >= 0 else None
        return mark if mark is not None and mark.position >= 0 else None

    def _dispatch_turn(self) -> None:
        self._agree_with_log()
        more = self._dispatcher.run(self._committed)
        if not self._commit_log.writable:
            self._maybe_become_writable()
        if more:
            self._scheduled = True
            (self._call_soon or asyncio.get_running_loop().call_soon)(self._continue)

    def _continue(self) -> None:
        self._scheduled = False
        self._guard(self._dispatch_turn)

    def _guard(self, work: "Callable[[], None]") -> None:
        """Run ``work`` from the loop, which would only log what goes wrong."""
        if self._stopped:
            return
        try:
            work()
        except FatalError as error:
            self._fail(error)
        except Exception:  # noqa: BLE001 - a bug must end the process, not vanish in the loop
            _log.exception("event=bug in=store")
            self._fail(FatalError("a bug in the store or its listener", EXIT_ENVIRONMENT))

    def _fail(self, error: FatalError) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._on_fatal(error)

    def _maybe_become_writable(self) -> None:
        """Open for sends once everything that was in the log before is applied."""
        if self._commit_log.writable or self._stopped:
            return
        if self._log.may_write(self._dispatcher.applied_end):
            self._writable_term = self._log.term
            self._commit_log.become_writable()
            self._listener.on_writable(True, self._writable_term)  # noqa: FBT003 - the contract's

    def _lose_leadership(self) -> None:
        if self._commit_log.writable:
            self._commit_log.writable = False
            self._listener.on_writable(False, self._log.term)  # noqa: FBT003 - the contract's event
            self._commit_log.abandon()

"""One replica, alive: the asyncio shell around core, driver, disk and transport.

All of it runs in one event loop thread; only disk syncs run in two worker threads. What happens in
one turn of the loop is collected and then done at once by `DLedgerNode._turn`:

1. Appends of this turn become one span. 2. The core says what to do (`Ready`). 3. The driver writes
and sends it: one write to the data file, one to the index, one message a follower, however many
entries. 4. The listener hears of the new commit index, once, then of a change of role.

While term or vote are being synced (a `Ready` in flight) the loop goes on: messages are stepped,
appends collected, and the next turn takes them all.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NoReturn, Protocol, runtime_checkable
from zlib import crc32

from dledger.codec.entry import ENTRY_MAGIC, HEADER, HEADER_BYTES, encode_span
from dledger.codec.index import UNIT, UNIT_MAGIC
from dledger.codec.properties import Identity
from dledger.config import DLedgerConfig
from dledger.core.log import RaftLog
from dledger.core.messages import Message
from dledger.core.model import LogIndex, NodeId, Role, Span, Term
from dledger.core.raft import Raft
from dledger.core.ready import Ready, describe_event
from dledger.core.state import RaftConfig
from dledger.driver import Driver, Sync
from dledger.errors import DiskFull, DLedgerError, EntryTooLarge, NotLeader, PendingFull
from dledger.rpc import PeerTransport, TcpTransport
from dledger.storage.log_store import LogStore
from dledger.storage.recovery import open_log_store
from dledger.storage.segments import Segments
from dledger.storage.state_files import CheckpointFile, HardStateFile, claim_directory
from runtime.clock import Clock, SystemClock
from runtime.disk import Closeable, Disk, RealDisk
from runtime.errors import EXIT_ENVIRONMENT, FatalError
from runtime.rng import Rng, SystemRng

_log: Final = logging.getLogger(__name__)

TICKS_PER_WAKEUP_MAX: Final = 2
"""After a long stall of the own loop only so many ticks pass: it was us who were silent."""
READIES_PER_TURN_MAX: Final = 8

_pack_header: Final = HEADER.pack
_pack_unit: Final = UNIT.pack


class DLedgerListener(Protocol):
    """Who uses the log. All calls come from the loop thread, and must not block."""

    def noop_body(self, physical_offset: int) -> bytes:
        """Return the body of a leader's first entry; it will lie at ``physical_offset``."""
        ...

    def on_committed(self, commit_index: LogIndex) -> None:
        """Take that all entries up to ``commit_index`` are committed. At most once a turn."""
        ...

    def on_role(self, role: Role, term: Term, leader_id: NodeId | None) -> None:
        """Take a change of role, term or leader. On loss of leadership, whatever was appended and

        is not committed yet has an unknown outcome.
        """
        ...


@runtime_checkable
class RollbackListener(Protocol):
    """A listener that also wants to hear of appends that failed for want of space.

    Where it is not implemented, the leader gives up office instead, which makes them *unknown*.
    """

    def on_rolled_back(self, first_index: LogIndex) -> None:
        """Take that entries from ``first_index`` on were not appended after all."""
        ...


def exit_process(error: FatalError) -> NoReturn:
    """End the process: one log line, the error's exit code. Nothing is flushed or retried."""
    _log.critical("event=fatal exit_code=%d error=%r", error.exit_code, error.message)
    logging.shutdown()
    sys.stderr.flush()
    os._exit(error.exit_code)


class DLedgerNode:
    """A replica of the log. See the module; `status` for what can be looked at."""

    def __init__(
        self,
        config: DLedgerConfig,
        listener: DLedgerListener | None = None,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
        on_fatal: Callable[[FatalError], None] = exit_process,
    ) -> None:
        """Make a replica; nothing is touched before `open`.

        Args:
            config: see `DLedgerConfig`.
            listener: who uses the log; may be set later, but before `start`.
            disk: where the files lie; the machine's by default.
            clock: source of time; the machine's by default.
            rng: source of chance; the machine's by default.
            on_fatal: called in the loop thread when the environment failed while running; the
                node does nothing any more then. By default the process ends.
        """
        self.config = config
        self.listener = listener
        self._disk: Disk = disk or RealDisk()
        self._clock: Clock = clock or SystemClock()
        self._rng: Rng = rng or SystemRng()
        self._on_fatal = on_fatal
        self._lock: Closeable | None = None
        self._opened = False
        self._running = False

        # What a leader has collected in this turn.
        self._accepting = False
        self._disk_full_until_ms: int | None = None
        self._next_index: LogIndex = 0
        self._next_position = 0
        self._position_limit = 0
        self._committed_position = 0
        self._buffers: list[bytes] = []
        self._units: list[bytes] = []
        self._batch_first_index: LogIndex = 0
        self._batch_position = 0

        self._turn_scheduled = False
        self._in_flight: Ready | None = None
        self._sync: Sync | None = None
        self._known_role: tuple[Role, Term, NodeId | None] = (Role.FOLLOWER, 0, None)
        self._told_role = self._known_role
        self._timer: asyncio.TimerHandle | None = None
        self._last_tick_ms = 0
        self._last_flush_ms = 0
        self._last_checkpoint_ms = 0
        self.commit_index: LogIndex = -1
        """Last index told to the listener (at start: what the checkpoint had)."""

    # Life

    def open(self) -> None:
        """Claim the directory and recover the log; entries can be read from then on.

        `start` does it where it was not done. Errors: `FatalError`.
        """
        if self._opened:
            return
        config, disk = self.config, self._disk
        self.identity: Identity
        self.identity, self._lock = claim_directory(
            disk, config.directory, group=config.group, self_id=config.self_id, rng=self._rng
        )
        try:
            self._open_log()
        except BaseException:
            self._lock.close()
            raise
        self._opened = True

    def _open_log(self) -> None:
        config, disk, directory = self.config, self._disk, self.config.directory
        data = Segments(disk, f"{directory}/data", config.data_segment_bytes)
        index = Segments(disk, f"{directory}/index", config.index_segment_bytes)
        self._checkpoint_file = CheckpointFile(disk, directory)
        checkpoint = self._checkpoint_file.load()
        hard_state_file = HardStateFile(disk, directory)
        hard_state = hard_state_file.load(log_is_empty=data.is_empty)
        self._store = open_log_store(
            data, index, checkpoint, hard_state.term, config.recovery_bytes
        )
        self.commit_index = checkpoint.committed_index
        self._committed_position = self._store.position_after(self.commit_index)
        raft_config = RaftConfig(
            self_id=config.self_id,
            voters=tuple(sorted(config.peers)),
            heartbeat_ticks=config.heartbeat_ticks,
            election_ticks_min=config.election_ticks_min,
            election_ticks_max=config.election_ticks_max,
            span_bytes_max=config.span_bytes_max,
            inflight_bytes_max=config.inflight_bytes_max,
            inflight_spans_max=config.inflight_spans_max,
        )
        self._raft = Raft(
            raft_config,
            log=RaftLog(self._store, self.commit_index),
            hard_state=hard_state,
            rng=self._rng,
            make_noop=self._make_noop,
        )
        self._transport: PeerTransport = TcpTransport(
            config, on_message=self._on_message, on_unreachable=self._on_unreachable
        )
        self._driver = Driver(
            self._raft,
            self._store,
            hard_state_file,
            flush_disk_type=config.flush_disk_type,
            send=self._transport.send,
        )
        self._known_role = self._told_role = (Role.FOLLOWER, hard_state.term, None)
        _log.info(
            "event=opened node=%s group=%s term=%d first_index=%d last_index=%d commit_index=%d",
            config.self_id, config.group, hard_state.term, self._store.first_index,
            self._store.last_index, self.commit_index,
        )  # fmt: skip

    async def start(self) -> None:
        """Take part in the group. Errors: `FatalError`."""
        assert self.listener is not None, "the log needs a listener before it starts"
        self.open()
        self._loop = asyncio.get_running_loop()
        # Two threads: a vote must not wait behind the sync of a large batch.
        self._state_pool = ThreadPoolExecutor(1, f"dledger-state-{self.config.self_id}")
        self._sync_pool = ThreadPoolExecutor(1, f"dledger-sync-{self.config.self_id}")
        await self._transport.start()
        self._running = True
        self._last_tick_ms = self._last_flush_ms = self._clock.monotonic_ms()
        self._last_checkpoint_ms = self._last_flush_ms
        if len(self.config.peers) == 1:
            self._raft.campaign()
        self._schedule_timer()
        self._schedule_turn()

    async def stop(self) -> None:
        """Leave the group cleanly: what was written is synced and noted. Idempotent."""
        if self._running:
            self._running = False
            self._accepting = False
            if self._timer is not None:
                self._timer.cancel()
            await self._transport.stop()
            await self._loop.run_in_executor(self._state_pool, _nothing)
            await self._loop.run_in_executor(self._sync_pool, _nothing)
            await asyncio.sleep(0)  # let the callbacks of both come first
            if self._raft.state.role is Role.LEADER:
                self._raft.resign()
                self._note_role()
                self._tell_role()
            self._save_all()
            self._state_pool.shutdown()
            self._sync_pool.shutdown()
        if self._opened:
            self._opened = False
            self._store.close()
            if self._lock is not None:
                self._lock.close()

    def _save_all(self) -> None:
        sync = self._driver.begin_sync()
        if sync is not None:
            self._store.sync(sync.dirty)
            self._driver.end_sync(sync)
        self._checkpoint_file.save(self._driver.checkpoint())

    # Looking

    @property
    def self_id(self) -> NodeId:
        """This node."""
        return self.config.self_id

    @property
    def group(self) -> str:
        """Its group."""
        return self.config.group

    @property
    def role(self) -> Role:
        """What it is now."""
        return self._raft.state.role

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it knows."""
        return self._raft.state.role is Role.LEADER

    @property
    def term(self) -> Term:
        """Its term."""
        return self._raft.state.term

    @property
    def leader_id(self) -> NodeId | None:
        """Whom it follows; itself if it leads; None if it knows of no leader."""
        return self._raft.state.leader_id

    @property
    def first_index(self) -> LogIndex:
        """First entry retained."""
        return self._store.first_index

    @property
    def end_index(self) -> LogIndex:
        """Last entry written, -1 for none."""
        return self._store.last_index

    @property
    def first_position(self) -> int:
        """Where the first entry retained lies."""
        return self._store.first_position

    @property
    def end_position(self) -> int:
        """Position behind the last entry written."""
        return self._store.end_position

    @property
    def committed_position(self) -> int:
        """Position behind the last committed entry that the listener was told of."""
        return self._committed_position

    def entry(self, index: LogIndex) -> tuple[int, int, Term]:
        """Return position (of the header), size (with header) and term of an entry."""
        return self._store.entry(index)

    def body_view(self, index: LogIndex) -> memoryview:
        """Return the body of an entry, not copied."""
        return self._store.body_view(index)

    def view(self, physical_offset: int, size: int) -> memoryview:
        """Return bytes of the log within one segment, not copied."""
        return self._store.view(physical_offset, size)

    def status(self) -> dict[str, object]:
        """Return what an administrator asks; JSON types only."""
        state = self._raft.state
        return {
            "node": self.self_id,
            "group": self.group,
            "role": state.role.value,
            "term": state.term,
            "leader": state.leader_id,
            "commit": self.commit_index,
            "first_index": self.first_index,
            "last_index": state.log.last_index,
            "last_term": state.log.last_term,
            "voted_for": state.voted_for,
            "synced_index": self._driver.synced_index,
            "store_id": self.identity.store_id,
            "match": {peer: p.match_index for peer, p in state.progress.items()},
        }

    # Appending: the hot path

    def reserve(self, body_bytes: int) -> int:
        """Return the physical offset at which a body of this size will lie if appended next.

        Errors: `NotLeader`, `PendingFull`, `DiskFull`, `EntryTooLarge`; nothing was appended then.
        """
        if not self._accepting:
            raise self._refusal()
        size = body_bytes + HEADER_BYTES
        position = self._next_position
        if position + size > self._position_limit:
            position = self._roll(size)
        pending = position + size - self._committed_position
        if pending > self.config.pending_bytes_max:
            raise PendingFull(pending, self.config.pending_bytes_max)
        return position + HEADER_BYTES

    def reserve_batch(self, body_sizes: Sequence[int]) -> list[int]:
        """Return the physical offsets of bodies that will lie side by side in one segment.

        They must be appended one after the other, at once. Errors: as `reserve`.
        """
        offset = self.reserve(sum(body_sizes) + HEADER_BYTES * (len(body_sizes) - 1))
        offsets: list[int] = []
        for size in body_sizes:
            offsets.append(offset)
            offset += size + HEADER_BYTES
        return offsets

    def append(self, parts: Sequence[bytes], body_bytes: int) -> LogIndex:
        """Append the entry that was just reserved; its body is ``parts`` side by side.

        Returns its index. It is written and sent at the end of this turn of the loop.
        """
        assert self._accepting, "append without reserve"
        index = self._next_index
        position = self._next_position
        crc = 0
        for part in parts:
            crc = crc32(part, crc)
        size = body_bytes + HEADER_BYTES
        term = self._known_role[1]
        buffers = self._buffers
        buffers.append(
            _pack_header(ENTRY_MAGIC, size, index, term, position, 0, 0, crc, body_bytes)
        )
        buffers += parts
        self._units.append(_pack_unit(UNIT_MAGIC, position, size, index, term))
        self._next_index = index + 1
        self._next_position = position + size
        if position + size - self._batch_position > self.config.span_bytes_max:
            self._close_batch()
        if not self._turn_scheduled:
            self._schedule_turn()
        return index

    def _refusal(self) -> DLedgerError:
        if self.is_leader and self._disk_full_until_ms is not None:
            return DiskFull()
        return NotLeader(None if not self._opened or self.is_leader else self.leader_id)

    def _roll(self, size_bytes: int) -> int:
        """Continue in the next segment."""
        if size_bytes > self.config.data_segment_bytes - 8:
            raise EntryTooLarge(size_bytes, self.config.data_segment_bytes)
        self._close_batch()
        self._set_position(self._store.place(self._next_position, size_bytes))
        return self._next_position

    def _set_position(self, position: int) -> None:
        segment = self.config.data_segment_bytes
        self._next_position = self._batch_position = position
        self._position_limit = position - position % segment + segment - 8

    def _close_batch(self) -> None:
        """Hand what was appended to the core, as one span."""
        buffers = self._buffers
        if buffers:
            data = b"".join(buffers)
            span = Span(
                self._batch_first_index,
                self._next_index - 1,
                self._known_role[1],
                self._batch_position,
                data,
                b"".join(self._units),
            )
            assert span.end_position == self._next_position, "append without reserve"
            buffers.clear()
            self._units.clear()
            self._raft.propose(span)
        self._batch_first_index = self._next_index
        self._batch_position = self._next_position

    def _make_noop(self, index: LogIndex, term: Term, end_position: int) -> Span:
        """Build the entry that opens a term (see `NoopBuilder`)."""
        assert self.listener is not None
        body = self.listener.noop_body(end_position + HEADER_BYTES)
        position = self._store.place(end_position, len(body) + HEADER_BYTES)
        if position != end_position:
            body = self.listener.noop_body(position + HEADER_BYTES)
        return encode_span(index, term, position, (body,))

    # Inputs

    def _on_message(self, message: Message) -> None:
        self._raft.step(message)
        self._after_input()

    def _on_unreachable(self, peer: NodeId) -> None:
        if self._running:
            self._raft.unreachable(peer)
            self._after_input()

    def _after_input(self) -> None:
        state = self._raft.state
        known = self._known_role
        if state.role is not known[0] or state.term != known[1] or state.leader_id != known[2]:
            self._note_role()
        if not self._turn_scheduled:
            self._schedule_turn()

    def _note_role(self) -> None:
        """Take a change of role at once: not one more entry is accepted for the old one."""
        state = self._raft.state
        self._known_role = (state.role, state.term, state.leader_id)
        self._buffers.clear()
        self._units.clear()
        self._accepting = state.role is Role.LEADER and self._disk_full_until_ms is None
        self._restart_batch()

    def _restart_batch(self) -> None:
        """Continue behind what the core has."""
        if self._raft.state.role is Role.LEADER:
            log = self._raft.state.log
            self._next_index = self._batch_first_index = log.last_index + 1
            self._set_position(log.end_position)

    def _schedule_timer(self) -> None:
        self._timer = self._loop.call_later(self.config.tick_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        if not self._running:
            return
        self._schedule_timer()
        now = self._clock.monotonic_ms()
        ticks = (now - self._last_tick_ms) // self.config.tick_ms
        if ticks > TICKS_PER_WAKEUP_MAX:
            ticks = TICKS_PER_WAKEUP_MAX
            self._last_tick_ms = now
        else:
            self._last_tick_ms += ticks * self.config.tick_ms
        for _ in range(ticks):
            self._raft.tick()
        if self._disk_full_until_ms is not None and now >= self._disk_full_until_ms:
            self._disk_full_until_ms = None
            self._accepting = self.is_leader
        if now - self._last_flush_ms >= self.config.flush_interval_ms:
            self._last_flush_ms = now
            self._start_sync()
        self._after_input()

    # The turn

    def _schedule_turn(self) -> None:
        self._turn_scheduled = True
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Do everything that has come up since the last turn."""
        self._turn_scheduled = False
        if not self._running or self._in_flight is not None:
            return
        try:
            self._close_batch()
            self._work_off()
            self._tell()
        except FatalError as error:
            self._fail(error)
        except Exception:
            _log.exception("event=bug node=%s", self.self_id)
            self._fail(FatalError("a bug in the log or its listener", EXIT_ENVIRONMENT))

    def _work_off(self) -> None:
        raft, driver = self._raft, self._driver
        for _ in range(READIES_PER_TURN_MAX):
            ready = raft.ready()
            if ready is None:
                break
            if driver.begin(ready):
                self._in_flight = ready
                future = self._loop.run_in_executor(self._state_pool, driver.persist_state, ready)
                future.add_done_callback(self._on_state_persisted)
                break
            self._complete(ready)
        else:
            self._schedule_turn()
        if driver.needs_sync():
            self._start_sync()

    def _on_state_persisted(self, future: "asyncio.Future[None]") -> None:
        ready, self._in_flight = self._in_flight, None
        assert ready is not None
        if not self._running:
            return
        try:
            future.result()
            self._complete(ready)
        except FatalError as error:
            self._fail(error)
            return
        self._turn()

    def _complete(self, ready: Ready) -> None:
        for event in ready.events:
            _log.info("node=%s %s", self.self_id, describe_event(event))
        if self._driver.complete(ready):
            return
        _log.error("event=disk_full node=%s index=%d", self.self_id, ready.entries[0].first_index)
        self._disk_full_until_ms = self._clock.monotonic_ms() + self.config.disk_full_retry_ms
        self._accepting = False
        if not self.is_leader:
            return
        self._restart_batch()
        if isinstance(self.listener, RollbackListener):
            self.listener.on_rolled_back(ready.entries[0].first_index)
        else:
            self._raft.resign()

    def _tell(self) -> None:
        """Tell the listener what is new: first what is committed, then who leads."""
        commit_index = self._raft.state.delivered_index
        if commit_index > self.commit_index:
            self.commit_index = commit_index
            self._committed_position = self._store.position_after(commit_index)
            assert self.listener is not None
            self.listener.on_committed(commit_index)
        state = self._raft.state
        if (state.role, state.term, state.leader_id) != self._known_role:
            self._note_role()
        self._tell_role()

    def _tell_role(self) -> None:
        if self._told_role != self._known_role:
            self._told_role = self._known_role
            assert self.listener is not None
            self.listener.on_role(*self._known_role)

    # Syncs in the background

    def _start_sync(self) -> None:
        """Sync what was written, unless a sync is under way; that one starts the next."""
        if self._sync is not None:
            return
        now = self._clock.monotonic_ms()
        with_checkpoint = now - self._last_checkpoint_ms >= self.config.checkpoint_interval_ms
        sync = self._driver.begin_sync()
        if sync is None:
            if with_checkpoint:
                self._last_checkpoint_ms = now
                self._loop.run_in_executor(
                    self._sync_pool, self._checkpoint_file.save, self._driver.checkpoint()
                )
            return
        self._sync = sync
        future = self._loop.run_in_executor(self._sync_pool, self._store.sync, sync.dirty)
        future.add_done_callback(self._on_synced)

    def _on_synced(self, future: "asyncio.Future[None]") -> None:
        sync, self._sync = self._sync, None
        assert sync is not None
        try:
            future.result()
        except FatalError as error:
            self._fail(error)
            return
        self._driver.end_sync(sync)
        if self._running:
            self._turn()

    def _fail(self, error: FatalError) -> None:
        """Stop doing anything: what is on disk is not known any more."""
        if self._running:
            self._running = False
            self._accepting = False
            if self._timer is not None:
                self._timer.cancel()
            self._on_fatal(error)


def _nothing() -> None:
    """Take a thread's turn: what was submitted before has run then."""

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
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from dledger.appender import Appender
from dledger.config import DLedgerConfig
from dledger.core.messages import AskMembers, Message, TellClock, ToldMembers
from dledger.core.model import LogIndex, NodeId, Role, Span, Term
from dledger.core.raft import Raft
from dledger.core.ready import Ready
from dledger.core.snapshot import SnapshotMeta
from dledger.disk.flusher import Flusher
from dledger.disk.full import DiskFullGate
from dledger.disk.persister import Persister
from dledger.disk.watch import DiskWatch
from dledger.disk.worker import Worker
from dledger.driver import Driver
from dledger.errors import DiskFull, DLedgerError, NotLeader
from dledger.leadership import Leadership
from dledger.listener import DLedgerListener, exit_process, log_events
from dledger.membership import MembershipService
from dledger.operations import Operations
from dledger.peers.clocks import Clocks
from dledger.peers.rpc import PeerTransport, TcpTransport
from dledger.peers.trust import MemberCredentials
from dledger.reader import EntryReader
from dledger.recorder import Recorder
from dledger.repair import REPAIR_MESSAGES, Repairer, RepairMessage
from dledger.replica import build_noop, open_replica
from dledger.trimming import Trimmer
from dledger.view import ReplicaView
from ledgermq.runtime.clock import Clock, SystemClock
from ledgermq.runtime.disk import Disk, RealDisk
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.rng import Rng, SystemRng

_log: Final = logging.getLogger(__name__)

TICKS_PER_WAKEUP_MAX: Final = 2
"""While a follower is calm, it sleeps for so many. After a stall no more pass: we were silent."""
READIES_PER_TURN_MAX: Final = 8


class DLedgerNode(ReplicaView):
    """A replica of the log: `reader` reads it, `operations` are for administrators of the group."""

    reserve: Callable[[int], int]
    """Return where a body of so many bytes will lie if appended next, see `Appender.reserve`."""
    append: Callable[[Sequence[bytes], int], LogIndex]
    """Append the entry that was just reserved, see `Appender.append`."""
    append_batch: Callable[[Sequence[bytes]], Sequence[LogIndex]]
    """Append the entries that were reserved together, see `Appender.append_batch`."""

    def __init__(
        self,
        config: DLedgerConfig,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
        on_fatal: Callable[[FatalError], None] = exit_process,
    ) -> None:
        """Make a replica; nothing is touched before `open`.

        Args:
            config: see `DLedgerConfig`.
            disk: where the files lie; the machine's by default.
            clock: source of time; the machine's by default.
            rng: source of chance; the machine's by default.
            on_fatal: called when the node cannot go on; by default the process ends.
        """
        self.config = config
        self._disk: Disk = disk or RealDisk()
        self._clock: Clock = clock or SystemClock()
        self._rng: Rng = rng or SystemRng()
        self._on_fatal = on_fatal
        self.credentials = MemberCredentials(config, self._clock)
        self._opened = self._started = self._running = False
        self._appender = Appender(
            config, schedule=self._call_turn, refusal=self._refusal,
            committed=lambda: self._committed_position,
        )  # fmt: skip
        self.reserve = self._appender.reserve
        self.append = self._appender.append
        self.append_batch = self._appender.append_batch
        self._disk_full = DiskFullGate(config.self_id, config.disk_full_retry_ms)
        self._disk_watch = DiskWatch(
            config.self_id, config.disk_hang_ms, config.tick_ms, self._clock
        )
        self.boot_id = f"{self._rng.randint(0, 2**63 - 1):016x}"
        """A new one for each life of this object; part of every recorded event."""
        self._recorder = Recorder(config, self._disk, self._clock, self.boot_id)
        self._committed_position = 0
        self._in_flight: Ready | None = None
        self._known_role: tuple[Role, Term, NodeId | None] = (Role.FOLLOWER, 0, None)
        self._told_role: tuple[Role, Term, NodeId | None] = self._known_role
        self._known_changes = 0
        """`RaftState.role_changes` of the known role."""
        self._timer: asyncio.TimerHandle | None = None
        self._last_tick_ms = 0
        self._slow_write_ms = config.election_timeout_ms
        self.commit_index: LogIndex = -1
        """Last index told to the listener (at start: what the checkpoint had)."""

    def open(self) -> None:
        """Claim the directory and recover the log; entries can be read from then on.

        `start` does it where it was not done. Errors: `FatalError`.
        """
        if self._opened:
            return
        config = self.config
        self.credentials.load()
        replica = open_replica(config, self._disk, self._rng, self._make_noop)
        self._replica, self._store, self._raft = replica, replica.store, replica.raft
        self._transport: PeerTransport = TcpTransport(
            config, self.credentials, on_message=self._on_message,
            on_unreachable=self._on_unreachable, make_nonce=self._rng.token,
        )  # fmt: skip
        self._driver = Driver(
            self._raft,
            self._store,
            replica.hard_state_file,
            membership_file=replica.membership_file,
            flush_disk_type=config.flush_disk_type,
            send=self._transport.send,
        )
        self._flusher = Flusher(
            config, self._clock, self._driver, self._store, replica.checkpoint_file
        )
        self.reader = EntryReader(self._store)
        self._store.corruption.term_at = self._raft.state.log.committed_term_at
        self._persister = Persister(config, self._driver)
        self._repairer = Repairer(config, self._raft, self._store, self._transport.send)
        self._leadership = Leadership(self._raft)
        self._service = MembershipService(config, self._raft, self._store, self._transport)
        self.operations = Operations(
            self, self._appender, (self._driver, self._flusher), self._leadership, self._service
        )
        self.clocks = Clocks(self._raft, self._clock, self._transport.send, config.tell_clock_ms)
        self._takers: dict[type[Message], Callable[[Any], None]] = {
            **dict.fromkeys(REPAIR_MESSAGES, self._on_repair_message),
            **dict.fromkeys((AskMembers, ToldMembers), self._service.voucher.on_message),
            TellClock: self.clocks.on_message,
        }
        self.trimmer = Trimmer(config, self._raft, self._store)
        """Drops the beginning of the log."""
        state = self._raft.state
        self._recorder.open(state.term, state.log.last_index, replica.commit_index)
        self._known_role = self._told_role = (Role.FOLLOWER, state.term, None)
        self._known_changes = state.role_changes
        self._step, self._appender.propose = self._raft.step, self._raft.propose
        self.commit_index = replica.commit_index
        self._committed_position = self._store.position_after(self.commit_index)
        self._opened = True

    async def start(self, user: DLedgerListener) -> None:
        """Take part in the group, for ``user``. Errors: `FatalError`."""
        self._user = user
        self.open()
        self._loop = asyncio.get_running_loop()
        # Two threads: a vote must not wait behind the sync of a large batch.
        on_error, clock = self._on_error, self._clock
        self._state_worker = Worker(f"{self.self_id}-state", clock, on_error=on_error)
        self._sync_worker = Worker(f"{self.self_id}-sync", clock, on_error=on_error)
        self._disk_watch.start(self._state_worker, self._sync_worker)
        self._persister.start(self._state_worker, partial(self._guard, self._finish))
        self.trimmer.start(self._state_worker, self._guard, self._user, self._recorder.note)
        self._store.corruption.is_sound_body = user.is_sound_body
        self._appender.write_hint = user.write_hint
        self._transport.validate_hints(user.is_sound_hint)
        self._service.start(self._user, self.is_shut_out)
        await self._transport.start()
        self._started = self._running = True
        self._last_tick_ms = self._clock.monotonic_ms()
        self._flusher.start(self._sync_worker, partial(self._guard, self._work_on))
        if not self._raft.state.others:
            self._raft.campaign()
        self._schedule_timer()
        self._appender.call_turn()

    async def stop(self) -> None:
        """Leave the group cleanly: what was written is synced and noted. Idempotent.

        A node that had failed (`on_fatal`) only lets go of what it holds.
        """
        is_sound, self._running = self._running, False
        self._appender.accepting = False
        if self._started:
            self._started = False
            if self._timer is not None:
                self._timer.cancel()
            await self._transport.stop()
            self._persister.stop()
            await self._state_worker.drain()
            await self._sync_worker.drain()
            if is_sound:
                self._give_up_leadership()
                self._flusher.save_all()
            self._leadership.stop()
            await self.trimmer.stop()
            self._state_worker.close()
            self._sync_worker.close()
        if self._opened:
            self._opened = False
            self._recorder.close()
            self._replica.close()

    @property
    def is_running(self) -> bool:
        """Whether it takes part in the group."""
        return self._running

    def _give_up_leadership(self) -> None:
        if self._raft.state.role is Role.LEADER:
            self._raft.resign()
            self.follow_role()
            self._tell_role()

    def _refusal(self) -> DLedgerError:
        if not self._running:
            return NotLeader(None)
        if self.is_leader and (self._disk_full.is_closed or self._persister.is_blocked):
            return DiskFull()
        return NotLeader(None if self.is_leader else self.leader_id)  # itself: hands over

    def _make_noop(self, index: LogIndex, term: Term, end_position: int) -> Span:
        return build_noop(self._user.noop_body, self._store, index, term, end_position)

    # Inputs

    def _on_message(self, message: Message) -> None:
        if self._running and (self._in_flight is None or not self._is_frozen):
            try:
                self._takers.get(type(message), self._step)(message)
            except Exception as error:  # noqa: BLE001  # must end the node, not a connection
                self._on_error(error)
            self.after_input()

    @property
    def _is_frozen(self) -> bool:
        """Whether nothing may happen, as if cut off: term or vote wait for a full or hung disk."""
        waits = self._in_flight is not None
        return waits and (self._persister.is_blocked or self._disk_watch.is_hung)

    def _on_repair_message(self, message: RepairMessage) -> None:
        repairer = self._repairer
        if repairer.on_message(message):
            self._flusher.start_sync()
        if repairer.replacement is not None:
            replacement, repairer.replacement = repairer.replacement, None
            self.trimmer.adopt(*replacement, self._on_adopted)

    def _on_adopted(self, meta: SnapshotMeta) -> None:
        """Let the user begin anew behind a peer's snapshot; the log goes on as it was."""
        self.trimmer.tell_installed(meta)
        self._user.on_committed(self.commit_index)

    def _on_unreachable(self, peer: NodeId) -> None:
        if self._running:
            self._raft.unreachable(peer)
            # It may be in haste now, and does not sleep through the next tick.
            wait_ms = self._last_tick_ms + self.config.tick_ms - self._clock.monotonic_ms()
            self._loop.call_later(wait_ms / 1000, self._guard, self._pass_time)
            self.after_input()

    def after_input(self) -> None:
        """Look what has changed in the core, and work it off in the next turn."""
        state = self._raft.state
        if state.role_changes != self._known_changes:
            self.follow_role()
        elif state.transfer is not self._leadership.known_transfer:
            # It has begun or failed; what was accepted before goes into the log.
            self._appender.accepting = self._may_accept()
            self._leadership.look()
        appender = self._appender
        if not appender.scheduled and (
            self._raft.is_due() or self._told_role is not self._known_role
        ):
            appender.scheduled = True
            self._call_turn()

    def follow_role(self) -> None:
        """Take a change of role at once: not one more entry is accepted for the old one."""
        state = self._raft.state
        self._known_role = (state.role, state.term, state.leader_id)
        self._known_changes = state.role_changes
        self._appender.accepting = self._may_accept()
        # Continue behind what the core has.
        position = state.log.end_position if state.role is Role.LEADER else 0
        self._appender.restart(state.term, state.log.last_index + 1, position)
        self._leadership.look()

    def _may_accept(self) -> bool:
        state = self._raft.state
        may = self._running and self.is_leader and state.transfer is None
        return may and not (self._disk_full.is_closed or self._persister.is_blocked)

    def _schedule_timer(self) -> None:
        ticks = TICKS_PER_WAKEUP_MAX if self._raft.is_calm() else 1
        self._timer = self._loop.call_later(ticks * self.config.tick_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._guard(self._pass_time)
        if self._running:
            self._schedule_timer()

    def _pass_time(self) -> None:
        now = self._clock.monotonic_ms()
        ticks = (now - self._last_tick_ms) // self.config.tick_ms
        if ticks > TICKS_PER_WAKEUP_MAX:
            ticks = TICKS_PER_WAKEUP_MAX
            self._last_tick_ms = now
        else:
            self._last_tick_ms += ticks * self.config.tick_ms
        self._probe_disk(now)
        if self._is_frozen:
            self._appender.accepting = False
            return
        self._pass_ticks(ticks)
        if self._disk_full.pass_time(now):
            self._appender.accepting = self._may_accept()
        self._flusher.pass_time(now)
        self._recorder.flush()
        self.after_input()
        self._leadership.look()

    def _pass_ticks(self, ticks: int) -> None:
        state = self._raft.state
        if state.rejoining:
            self._appender.close_batch()  # the core may append an entry on their behalf
        last_index, transfer = state.log.last_index, state.transfer
        for _ in range(ticks):
            self._raft.tick()
        if state.log.last_index != last_index:
            self.follow_role()
        if transfer is None and state.transfer is not None:
            self.before_hand_over()  # to the preferred leader; nobody was asked yet

    def before_hand_over(self) -> None:
        """Let the user append what the next leader ought to have."""
        if self._appender.accepting:
            self._user.on_hand_over()

    def _probe_disk(self, now_ms: int) -> None:
        self._repairer.pass_time(now_ms)
        self._service.voucher.pass_time(now_ms)
        self.clocks.pass_time(now_ms)
        self._disk_watch.look()
        reason = "disk_hung" if self._disk_watch.is_hung else self._repairer.must_not_lead
        if reason != self._raft.state.blocked:
            self._raft.block(reason)

    # The turn

    def _call_turn(self) -> None:
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Do everything that has come up since the last turn."""
        self._appender.scheduled = False
        if self._in_flight is None and self._running:
            try:
                self._work_off()
                self._tell()
            except Exception as error:  # noqa: BLE001  # as `_guard`
                self._on_error(error)

    def _guard(self, work: Callable[..., None], *args: object) -> None:
        """Do ``work`` and tell the listener; whatever goes wrong is the end of this node."""
        if not self._running:
            return
        try:
            work(*args)
            self._tell()
        except Exception as error:  # noqa: BLE001  # must end the node, not vanish in the loop
            self._on_error(error)

    def _work_off(self) -> None:
        raft, driver = self._raft, self._driver
        self._appender.close_batch()
        if (commit_index := raft.take_commit()) is not None:
            self._recorder.on_commit(commit_index)
        else:
            self._work_off_readies(raft, driver)
        if driver.needs_sync():
            self._flusher.start_sync()

    def _work_off_readies(self, raft: Raft, driver: Driver) -> None:
        for _ in range(READIES_PER_TURN_MAX):
            if (ready := raft.ready()) is None:
                break
            if driver.begin(ready):
                self._in_flight = ready
                self._persister.submit(ready)
                break
            self._complete(ready)
            if not raft.is_due():  # as after most; `ready` would cost more to say so
                break
        else:
            self._appender.call_turn()

    def _finish(self, ready: Ready) -> None:
        self._in_flight = None
        if self._raft.state.role_changes == self._known_changes:
            self._appender.accepting = self._may_accept()
        self._complete(ready)
        self._work_off()

    def _complete(self, ready: Ready) -> None:
        if ready.events:
            log_events(self.self_id, ready.events)
            self._service.on_events(ready.events)
            self._recorder.note(*ready.events)
        began_ms = self._clock.monotonic_ms() if ready.entries else 0
        if self._driver.complete(ready):
            if ready.entries:
                took_ms = self._clock.monotonic_ms() - began_ms
                if took_ms >= self._slow_write_ms:
                    self._on_slow_write(took_ms)
            if ready.entries or ready.committed is not None:
                self._recorder.on_done(ready)
            if self._driver.installed is not None:
                self._on_installed(self._driver.installed)
            if ready.reads:
                self._leadership.confirm(ready.reads)
            return
        first_index = ready.entries[0].first_index
        self._disk_full.shut(self._clock.monotonic_ms(), first_index)
        self._service.on_rolled_back(first_index)
        self.follow_role()
        if self.is_leader and not self._user.on_rolled_back(first_index):
            self._raft.resign()

    def _on_installed(self, meta: SnapshotMeta) -> None:
        self._driver.installed = None
        self.commit_index = meta.id.last_index
        self._committed_position = meta.position
        self.trimmer.tell_installed(meta)

    def _on_slow_write(self, took_ms: int) -> None:
        """Give up leadership after a write that made the others wait for longer than they do."""
        if self.is_leader and self._raft.state.others:
            _log.error("event=slow_write node=%s took_ms=%d", self.self_id, took_ms)
            self._raft.resign()
            self.follow_role()  # what was collected meanwhile is not proposed any more

    def _tell(self) -> None:
        """Tell the listener what is new: first what is committed, then who leads."""
        commit_index = self._raft.state.delivered_index
        if commit_index > self.commit_index:
            self.commit_index = commit_index
            self._committed_position = self._store.position_after(commit_index)
            self._user.on_committed(commit_index)
        if self._leadership.confirmed:
            self._leadership.release(self.commit_index)
        if self._raft.state.role_changes != self._known_changes:
            self.follow_role()
        if self._told_role is not self._known_role:
            self._tell_role()

    def _tell_role(self) -> None:
        if self._told_role != self._known_role:
            self._told_role = self._known_role
            self._user.on_role(*self._known_role)

    def _work_on(self, end_sync: Callable[[], None]) -> None:
        end_sync()
        if self._in_flight is None:
            self._work_off()

    def _on_error(self, error: BaseException) -> None:
        """Stop doing anything: what is on disk, or in memory, is not known any more."""
        if not isinstance(error, FatalError):
            _log.error("event=bug node=%s", self.self_id, exc_info=error)
            error = FatalError("a bug in the log or its listener", EXIT_ENVIRONMENT)
        if self._running:
            self._running = False
            self._appender.accepting = False
            if self._timer is not None:
                self._timer.cancel()
            self._leadership.stop()
            self._recorder.flush()
            self._on_fatal(error)

"""A broker that is a member of a Raft group: what its log, its directory and its tables need.

`broker.modes.plain` is the other kind of broker; `broker.modes.mode` is what both are.
Source: docs/raft.md#durability; docs/adr/0002.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.cluster.guard import Guard
from broker.cluster.role import broker_id
from broker.ports import check_directory, check_log, check_peer_port_free
from broker.processor.compact import CompactProcessor
from broker.processor.membership import MembershipProcessor
from broker.processor.raft import RaftProcessor
from broker.retention.compaction import Compactor, state_problem
from broker.retention.retained_log import RaftLog
from broker.state.saver import TableSaver
from broker.state.snapshot import Snapshot
from dledger.node import DLedgerNode
from dledger.replicated_log import ReplicatedLog
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from broker.core import Core
    from store.queues.start import QueueStart

_log = logging.getLogger(__name__)


class RaftMode:
    """The parts of a broker that exist because it is a member of a group.

    Made once; it attaches the log to the store.
    """

    def __init__(self, core: Core) -> None:
        config, tables, store = core.config, core.tables, core.store
        disk, clock, rng, on_fatal = core.machine
        self._config = config
        self._disk = disk
        self._state, self._store = tables.state, store
        self.snapshot = Snapshot(f"{config.store_path}/config", tables.state, disk)
        self.saver = TableSaver(
            self.snapshot, lambda: self.applied_index, secure=self.secure, pause=asyncio.sleep
        )
        self.log = DLedgerNode(
            config.dledger_config(), disk=disk, clock=clock, rng=rng, on_fatal=on_fatal
        )
        self.replicated = ReplicatedLog(self.log)
        store.attach(self.replicated)
        self.replicated.serve(store.log_user)
        self.credentials = self.log.credentials
        self.guard = Guard(self.credentials, config, clock.wall_ms, self.log.is_shut_out)
        self.compactor = Compactor(self.log, self.replicated, store, self.snapshot, self.saver.save)
        self.retained = RaftLog(self.log, self.replicated, self.compactor)
        #: What answers requests that only a broker of this mode answers so.
        self.processors = (
            MembershipProcessor(self.log),
            RaftProcessor(self.log, lambda: self.applied_index),
            CompactProcessor(self.compactor),
        )

    async def check(self) -> None:
        """Find out whether this broker may start here; nothing is touched. Errors: `FatalError`."""
        await check_peer_port_free(self.log.config.listen_address)
        check_directory(self._disk, self._config.store_path, self._config.self_id)
        check_log(self._disk, self._config)

    def open(self) -> None:
        """Open the log. Errors: `FatalError`."""
        self.log.open()
        self.log.trimmer.validate_states(partial(state_problem, self.snapshot))
        self._store.writer.compare_clocks(self.log.clocks)

    def load(self) -> None:
        """Load tables and queues. Errors: `FatalError`."""
        saved_index = self.snapshot.load()
        is_ahead = saved_index > self.log.end_index
        if is_ahead:
            # The log has lost its end (a version that did not sync it first wrote the tables). They
            # hold what came from there: they are made again from what the log has.
            self.snapshot.restore({})
            saved_index = -1
        applied_index, starts = self.compactor.load(saved_index)
        if is_ahead:
            # Now, should the next stop be a crash.
            self._save_as_of(applied_index)
        self._store.load(self.replicated.position_after(applied_index), starts)

    def _save_as_of(self, applied_index: int) -> None:
        _log.warning(
            "event=state_ahead_of_the_log end_index=%d apply_again_behind=%d",
            self.log.end_index, applied_index,
        )  # fmt: skip
        try:
            self.snapshot.write(self.snapshot.capture(applied_index))
        except OSError as error:
            message = f"the tables in {self._config.store_path}/config cannot be written: {error}"
            raise FatalError(message, EXIT_ENVIRONMENT) from error

    async def start_log(self) -> None:
        """Take part in the group. Errors: `FatalError`."""
        await self.log.start(self.replicated)

    async def begin(self) -> None:
        """Nothing is due once log and store have started."""

    async def end(self) -> None:
        """Nothing was begun that has to end."""

    def on_registered(self, answer: Mapping[str, str]) -> bool:
        """Return True: nothing that name servers say matters to a group."""
        del answer
        return True

    def leave(self) -> None:
        """Nothing is left to do once store and log have stopped."""

    @property
    def applied_index(self) -> int:
        """Last entry that the store has dispatched, as files and status name it."""
        return self.replicated.index_before(self._store.applied)

    @property
    def state_index(self) -> int:
        """Last entry whose state records the tables had when they were loaded."""
        return self.replicated.index_before(self._store.state_end)

    def includes(self, position: int, kind: str) -> bool:
        """Tell whether the tables include a record that the store hands out: never."""
        del position, kind
        return False

    def on_failed(self) -> None:
        """Nothing is due: recovery asks the files."""

    def on_applied(self, kind: str) -> None:
        """Nothing is due: the log has it, on a majority of the members."""
        del kind

    async def secure(self, index: int) -> bool:
        """Wait until tables that include an entry may be written: not before the entry is synced.

        Otherwise a loss of power could take the entry and leave what followed from it.
        """
        return await self.log.operations.sync_to(index)

    def restore(self, state: bytes) -> tuple[list[QueueStart], Iterator[None]]:
        """Take over the state of a snapshot that took the log's place, see `StoreListener`."""
        restored = self.compactor.restore(state)
        if self.snapshot.lacking:  # of a leader of an earlier version
            self.replicated.hand_out_all()
        return restored

    @property
    def broker_id(self) -> int:
        """Id under which the broker registers now."""
        return broker_id(self._config.self_id, writable=self._store.writer.writable)

    @property
    def term(self) -> int:
        """Term that name servers are told."""
        return self.log.term

    def status(self) -> dict[str, Any]:
        """Return the log's view of itself."""
        return {
            **self.log.status(),
            **self._store.status(),
            "applied": self.applied_index,
            "state_quarantined": self._state.quarantined,
            "boot_id": self.boot_id,
        }

    @property
    def boot_id(self) -> str:
        """Tells this run of the process from others."""
        return self.log.boot_id

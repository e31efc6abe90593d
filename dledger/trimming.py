"""Where the log of one replica begins: trimming it, and a snapshot that takes its place.

Trimming drops whole segments, and nothing that is not committed, or that a follower which lives
still has to be sent. Whoever uses the log gives the state that stands for what goes; it is on disk,
with the place where the log begins from then on, before the first segment is removed.
Every replica trims for itself. Source: Raft paper 7.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from dledger.codec.snapshot import encode_snapshot
from dledger.config import DLedgerConfig
from dledger.core.model import LogIndex, SnapshotId
from dledger.core.raft import Raft
from dledger.core.ready import Event, EventKind
from dledger.core.snapshot import SnapshotMeta
from dledger.disk.worker import Worker
from dledger.errors import DamagedEntry
from dledger.listener import DLedgerListener
from dledger.storage.log_store import LogStore
from dledger.storage.trim import SegmentHead, TrimPlan
from ledgermq.runtime.disk import NO_SPACE
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError

LARGE_BYTES: Final = 4 * 1024**2
"""A snapshot above this is written in a thread of its own. A slow disk may take long for it, and
neither do votes wait for that, nor does it say that the disk hangs."""

_log: Final = logging.getLogger(__name__)


class TrimLimit(NamedTuple):
    """The last entry that may be dropped, and what forbids more."""

    last_index: LogIndex
    reason: str


class Trimmer:
    """Trims the log of one node."""

    def __init__(self, config: DLedgerConfig, raft: Raft, store: LogStore) -> None:
        self._node_id = config.self_id
        self._silence_ticks = config.election_ticks_min
        self._raft = raft
        self._store = store
        self._waiting: asyncio.Future[bool] | None = None
        self._own_worker: Worker | None = None

    def start(
        self,
        worker: Worker,
        guard: Callable[[Callable[[], None]], None],
        user: DLedgerListener,
        note: Callable[[Event], None],
    ) -> None:
        """Begin to work.

        Args:
            worker: where files are written and removed.
            guard: runs a piece of work in the loop; what goes wrong in it ends the node.
            user: whose state stands for what is trimmed.
            note: writes an event down.
        """
        self._worker = worker
        self._guard = guard
        self._user = user
        self._note = note

    def validate_states(self, validator: Callable[[bytes], str]) -> None:
        """Refuse a peer's snapshot if ``validator`` finds a problem in its state."""
        self._store.snapshots.validator = validator

    def limit(self) -> TrimLimit:
        """Return how much may go as far as the log is concerned."""
        state = self._raft.state
        limit = TrimLimit(state.delivered_index, "what follows is not committed")
        for progress in state.progress.values():
            lives = state.tick - progress.contact_tick < self._silence_ticks
            if lives and progress.match_index < limit.last_index:
                limit = TrimLimit(progress.match_index, f"{progress.node_id} has no more yet")
        return limit

    def segment_heads(self) -> list[SegmentHead]:
        """Return the first entries, as far as committed, of the segments of the log."""
        return self._store.segment_heads(self._raft.state.delivered_index)

    def plan(self, limit_index: LogIndex) -> TrimPlan | None:
        """Return how to drop the segments up to ``limit_index``; None if not even one can go."""
        plan = self._store.plan_trim(min(limit_index, self.limit().last_index))
        if plan is None or self._raft.state.membership.knows(plan.first_index - 1):
            return plan
        # A snapshot with other members would have whoever installs it count other voters.
        _log.warning(
            "event=trim_waits node=%s first_index=%d reason='its members are not remembered'",
            self._node_id, plan.first_index,
        )  # fmt: skip
        return None

    async def trim(self, plan: TrimPlan, state_index: LogIndex, state: bytes | bytearray) -> bool:
        """Let the log begin as planned; False if a snapshot came first, or the disk is full.

        Args:
            plan: of `plan`.
            state_index: last entry whose effect is in ``state``; it must cover what goes.
            state: what stands for the entries that go.
        """
        if self._waiting is not None or self._store.first_index >= plan.first_index:
            return False
        base = (plan.first_index - 1, plan.base_term, plan.position)
        configuration = self._raft.state.membership.at(plan.first_index - 1)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting = done
        self._worker_for(len(state)).submit(
            lambda: self._save(encode_snapshot(base, state_index, configuration, state)),
            partial(self._guard, partial(self._begin_at, plan)),
        )
        return await done

    def adopt(
        self, announced: SnapshotId, data: bytes, done: Callable[[SnapshotMeta], None]
    ) -> None:
        """Let a peer's snapshot stand for the beginning of the log, and keep what comes behind.

        ``done`` is called in the loop once the log begins behind it; not if it is unsound, or if
        something came between.
        """
        try:
            begins_at = self._store.entry(announced.last_index + 1)[0]
        except DamagedEntry:  # damaged like what comes before it: it is asked for next
            begins_at = None
        self._worker_for(len(data)).submit(
            partial(self._save_verified, announced, data, begins_at),
            partial(self._guard, partial(self._adopted, announced, done)),
        )

    def _save_verified(self, announced: SnapshotId, data: bytes, begins_at: int | None) -> None:
        """Run in the thread: what a peer sent counts only if it fits the log that goes on."""
        meta = self._store.snapshots.verify(data, announced)
        if meta is not None and meta.position != (begins_at or meta.position):
            _log.error(
                "event=snapshot_refused announced=%s reason='the log goes on at %d, not at %d'",
                announced.describe(), begins_at, meta.position,
            )  # fmt: skip
        elif meta is not None:
            self._save(data)

    def _adopted(self, announced: SnapshotId, done: Callable[[SnapshotMeta], None]) -> None:
        store, first_index = self._store, announced.last_index + 1
        meta = store.snapshots.newest
        if meta is None or meta.id != announced:
            return
        if not store.first_index < first_index <= store.last_index:
            return
        steps = store.trim(TrimPlan(first_index, meta.position, meta.id.last_term, 0))
        state = self._raft.state
        self._note(
            Event(
                EventKind.SNAPSHOT, state.term, state.role, None, meta.id.last_index,
                extra="snapshot=adopted",
            )
        )  # fmt: skip
        _log.warning("event=snapshot_adopted node=%s first_index=%d", self._node_id, first_index)
        done(meta)
        self._remove(steps, _nothing)

    async def stop(self) -> None:
        """Answer who waits, once nothing is written any more."""
        worker, self._own_worker = self._own_worker, None
        if worker is not None:
            await worker.drain()
            worker.close()
        self._answer(trimmed=False)

    def _worker_for(self, size_bytes: int) -> Worker:
        """Return the thread that is to write so much; see `LARGE_BYTES`."""
        if size_bytes <= LARGE_BYTES:
            return self._worker
        if self._own_worker is None:
            self._own_worker = self._worker.beside("snapshot")
        return self._own_worker

    def tell_installed(self, meta: SnapshotMeta) -> None:
        """Tell the user that everything it knows is to be replaced."""
        self._user.on_snapshot(meta, self._store.snapshots.state())

    def _save(self, data: bytes | bytearray) -> None:
        """Run in the thread."""
        try:
            self._store.snapshots.save(data)
        except OSError as error:
            if error.errno not in NO_SPACE:
                message = f"a snapshot cannot be written: {error}"
                raise FatalError(message, EXIT_ENVIRONMENT) from error
            _log.warning("event=disk_full node=%s file=snapshot", self._node_id)

    def _begin_at(self, plan: TrimPlan) -> None:
        store = self._store
        meta = store.snapshots.newest
        before = plan.first_index - 1
        if meta is None or meta.id.last_index != before or store.first_index > before:
            self._answer(trimmed=False)
            return
        self._user.on_trimmed(plan.position)
        steps = store.trim(plan)
        state = self._raft.state
        self._note(
            Event(
                EventKind.SNAPSHOT, state.term, state.role, None, meta.id.last_index,
                extra="snapshot=taken",
            )
        )  # fmt: skip
        _log.info(
            "event=trimmed node=%s first_index=%d position=%d segments=%d",
            self._node_id, plan.first_index, plan.position, plan.segments,
        )  # fmt: skip
        self._remove(steps, partial(self._answer, trimmed=True))

    def _remove(self, steps: Sequence[Callable[[], object]], done: Callable[[], None]) -> None:
        """Remove files, a few at a time: what else waits for the thread comes in between.

        What a stop leaves is removed at the next start.
        """
        step, *rest = steps
        again = partial(self._guard, partial(self._remove, rest, done))
        self._worker.submit(step, again if rest else done)

    def _answer(self, *, trimmed: bool) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(trimmed)


def _nothing() -> None:
    """Do nothing more."""

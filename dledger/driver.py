"""Between the core and the disk: works through a `Ready` in the order that its contract asks.

`Driver.begin` tells whether `Driver.persist_state` has work: what may wait for the disk and is
rare, term and vote, truncation. A node runs it in a thread, a simulator inline. `Driver.complete`
is the rest, and never waits: write the entries, send what may leave, report to the core. Syncs of
entries run beside that, one at a time, each for everything written before it (group commit):
`begin_sync`, then `end_sync`.

It knows no event loop, and no socket: what leaves goes through a function it is given.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dledger.codec.properties import Checkpoint
from dledger.config import FlushDiskType
from dledger.core.messages import Message
from dledger.core.model import LogIndex, Term
from dledger.core.raft import Raft
from dledger.core.ready import Ready, Reply
from dledger.errors import DiskFull
from dledger.storage.log_store import DirtyFiles, LogStore
from dledger.storage.membership_file import MembershipFile
from dledger.storage.snapshot_files import Staged
from dledger.storage.state_files import HardStateFile

if TYPE_CHECKING:
    from dledger.core.snapshot import SnapshotMeta

Send = Callable[[Message], None]
"""Lets a message leave, or drops it."""


@dataclass(slots=True, eq=False)
class Sync:
    """A sync under way."""

    dirty: DirtyFiles
    writes: int
    """How many batches of entries had been written when it began."""
    last_index: LogIndex
    """The last entry that it makes durable: none that was cut since it began, or was being cut."""


class HeldReplies(NamedTuple):
    """Replies that wait until batch ``writes`` is synced."""

    writes: int
    term: Term
    """The term of their `Ready`: in a newer one, what they acknowledge may be cut already."""
    replies: tuple[Reply, ...]


class Driver:
    """Does for one core what its `Ready` says."""

    def __init__(
        self,
        raft: Raft,
        store: LogStore,
        hard_state_file: HardStateFile,
        *,
        flush_disk_type: FlushDiskType,
        membership_file: MembershipFile | None = None,
        send: Send,
    ) -> None:
        self._raft = raft
        self._store = store
        self._hard_state_file = hard_state_file
        self._membership_file = membership_file
        self._is_sync = flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._send = send
        self._writes = 0
        self._writes_synced = 0
        self._under_way: list[Sync] = []
        self._cut_behind: LogIndex | None = None
        """Behind which entry the log is being cut, maybe in another thread; None: it is not."""
        self._is_cut = False
        """Whether the log is cut already, as this `Ready` asks: the next step found no space."""
        self._ready_term: Term = raft.state.term
        """The term of the last `Ready`; the term may change while that is worked off."""
        self._held: deque[HeldReplies] = deque()
        self.synced_index: LogIndex = store.last_index
        """Entries up to here survive a loss of power."""
        self._staged = Staged(kept=False, installed=None)
        self.installed: SnapshotMeta | None = None
        """A snapshot that took the place of the log; whoever tells the user of it clears it."""

    def begin(self, ready: Ready) -> bool:
        """Tell whether `persist_state` must run before `complete`; call it at once."""
        self._ready_term = self._raft.state.term
        self._is_cut = False
        if ready.truncate_from is not None or ready.snapshot is not None:
            kept = _last_kept(ready)
            if kept is not None:
                # A sync that began before says nothing any more about what lies behind the cut.
                for sync in self._under_way:
                    sync.last_index = min(sync.last_index, kept)
                self.synced_index = min(self.synced_index, kept)
                self._cut_behind = kept
            return True
        return ready.hard_state is not None or ready.configs is not None

    def persist_state(self, ready: Ready) -> None:
        """Make term and vote durable, then cut what the leader's log does not have.

        Errors: `DiskFull`, then it may be called again, and goes on; `FatalError`.
        """
        if ready.hard_state is not None:
            self._hard_state_file.save(ready.hard_state)
        if ready.truncate_from is not None and not self._is_cut:
            self._store.truncate(ready.truncate_from)
            self._is_cut = True
        # Behind the cut: a configuration that is cut is in these no more. Were they saved first, a
        # crash in between would leave it in the log, and its replica without knowing of it.
        if ready.configs is not None and self._membership_file is not None:
            self._membership_file.save(ready.configs)
        if ready.snapshot is not None:
            self._staged = self._store.stage(ready.snapshot)

    def complete(self, ready: Ready) -> bool:
        """Write the entries, let leave what may, report to the core; False if the disk is full.

        Then the core has forgotten the entries, and nothing of ``ready`` has left.
        Errors: `FatalError`.
        """
        self._cut_behind = None
        if ready.entries and not self._write(ready):
            return False
        send = self._send
        for message in ready.messages:
            send(message)
        if ready.replies:
            if self._is_sync and self._writes_synced < self._writes:
                self._held.append(HeldReplies(self._writes, self._ready_term, ready.replies))
            else:
                for reply in ready.replies:
                    send(reply)
        is_held = ready.entries and not self._is_sync
        self._raft.advance(ready, self._store.last_index if is_held else None)
        if ready.snapshot is not None:
            self._report_staged()
        return True

    def _write(self, ready: Ready) -> bool:
        """Write the entries; False if the disk is full, then the core has forgotten them."""
        try:
            self._store.append(ready.entries)
        except DiskFull:
            self._raft.abort(ready)
            if ready.snapshot is not None:
                self._report_staged()
            return False
        self._writes += 1
        return True

    def _report_staged(self) -> None:
        """Tell the core what became of a chunk; after the last, the log is another one."""
        kept, installed = self._staged
        if installed is not None:
            self._store.restart(installed)
            self._held.clear()
            self._writes_synced = self._writes  # what no sync has covered went with the old log
            self.synced_index = installed.id.last_index
            self.installed = installed
        self._raft.staged(kept=kept, installed=installed)

    def needs_sync(self) -> bool:
        """Tell whether something waits for a sync: SYNC_FLUSH, with unsynced entries."""
        return self._is_sync and self._writes_synced < self._writes

    def begin_sync(self) -> Sync | None:
        """Return what `LogStore.sync` must cover now, None for nothing."""
        dirty = self._store.take_dirty()
        if dirty is None:
            return None
        last_index, cut_behind = dirty.last_index, self._cut_behind
        if cut_behind is not None:  # what is dirty may be what is about to go
            last_index = min(last_index, cut_behind)
        sync = Sync(dirty, self._writes, last_index)
        self._under_way.append(sync)
        return sync

    def end_sync(self, sync: Sync) -> None:
        """Report a sync that has returned: count own entries, let the held replies leave."""
        self._under_way.remove(sync)
        self._writes_synced = max(self._writes_synced, sync.writes)
        # 1. Entry 5 of term 2 is written, and a sync begins. 2. A leader of term 3 cuts it.
        # 3. A leader of term 4 sends the same entry 5 of term 2 again; it is written.
        # 4. The sync returns: it covered the entry of step 1, not that of step 3. Entries before
        # the cut are synced: they are not dirty any more, and nothing else would tell.
        self.synced_index = max(self.synced_index, sync.last_index)
        self._store.on_synced(self.synced_index)
        if self._is_sync:
            self._raft.persisted(sync.last_index)
        held = self._held
        while held and held[0].writes <= self._writes_synced:
            _, term, replies = held.popleft()
            if term == self._raft.state.term:
                for reply in replies:
                    self._send(reply)

    def checkpoint(self) -> Checkpoint:
        """Return what may be noted as synced and committed."""
        committed = min(self._raft.state.delivered_index, self.synced_index)
        return Checkpoint(self.synced_index, committed)


def _last_kept(ready: Ready) -> LogIndex | None:
    """Return the last entry that stays when the log is cut or replaced, None if it is not."""
    if ready.truncate_from is not None:
        return ready.truncate_from - 1
    if ready.snapshot is not None and ready.snapshot.install:
        return ready.snapshot.id.last_index
    return None

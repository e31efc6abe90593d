"""The entries of one replica, to be read: by their numbers, and by where they lie.

Nothing here changes anything, and nothing knows what is committed. `DLedgerNode.reader` is one.
"""

from collections.abc import Iterator

from dledger.config import ENTRY_HEADER_BYTES
from dledger.core.model import LogIndex, Term
from dledger.core.snapshot import SnapshotMeta
from dledger.storage.log_store import LogStore
from dledger.storage.recent import HintedSpan
from dledger.storage.walk import Body, walk_bodies


class EntryReader:
    """Reads what a replica holds, and the snapshot that stands for what it holds no more."""

    def __init__(self, store: LogStore) -> None:
        self._store = store

    def entry(self, index: LogIndex) -> tuple[int, int, Term]:
        """Return position (of the header), size (with header) and term of an entry."""
        return self._store.entry(index)

    def position_after(self, index: LogIndex) -> int:
        """Return where an entry ends; before the first one, where that starts."""
        return self._store.position_after(index)

    def term_at(self, index: LogIndex) -> Term:
        """Return the term of an entry."""
        return self._store.entry(index)[2]

    def bodies(self, first: LogIndex, last: LogIndex) -> Iterator[Body]:
        """Walk the bodies of entries ``first..last``.

        Errors: `DamagedEntry` for a damaged one, when it is its turn.
        """
        return walk_bodies(self._store, first, last)

    def maybe_hinted(self, index: LogIndex) -> HintedSpan | None:
        """Return the first hint kept about ``index`` or what follows it."""
        return self._store.recent.maybe_hinted(index)

    def release(self, index: LogIndex) -> None:
        """Let go of what is kept in memory of entries before ``index``: nobody will ask again."""
        self._store.recent.forget_below(index)

    def body_view(self, index: LogIndex) -> memoryview:
        """Return the body of an entry, checked and not copied. Errors: `DamagedEntry`."""
        return self._store.body_view(index)

    def last_body(self) -> memoryview | None:
        """Return the body of the last entry, None for an empty log. Errors: `DamagedEntry`."""
        end = self._store.last_index
        return self._store.body_view(end) if end >= self._store.first_index else None

    def body_at(self, physical_offset: int, size: int) -> memoryview:
        """Return the body that lies there, checked and not copied.

        Errors: `DamagedEntry`; `LookupError` when no entry has its body there.
        """
        return self._store.body_at(physical_offset, size)

    def read_ahead(self, physical_offset: int, size: int) -> None:
        """Ask for bytes that will be read soon, without waiting; those of one segment."""
        self._store.read_ahead(physical_offset, size)

    def find(self, physical_offset: int) -> LogIndex | None:
        """Return the index of the entry whose body begins there, None if there is none."""
        return self._store.find(physical_offset - ENTRY_HEADER_BYTES)

    def describe(self, physical_offset: int) -> str:
        """Return in words the file that holds a place of the log, and where in it that is."""
        return self._store.corruption.describe(physical_offset)

    def view(self, physical_offset: int, size: int) -> memoryview:
        """Return bytes of the log within one segment, neither checked nor copied."""
        return self._store.view(physical_offset, size)

    @property
    def snapshot_meta(self) -> SnapshotMeta | None:
        """What stands for the entries that are in the log no more."""
        return self._store.snapshots.meta

    @property
    def snapshot_path(self) -> str:
        """Where that snapshot is, or would be."""
        return self._store.snapshots.path

    def snapshot_state(self) -> bytes:
        """Return the state in that snapshot. Errors: `FatalError`: it is damaged."""
        return self._store.snapshots.state()

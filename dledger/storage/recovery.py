"""Opening a log: find where it ends, cut what is torn, refuse what was committed and is damaged.

From a point well before the last entry known to be synced, every entry is checked: its header, that
it continues the one before, its body's CRC, its index unit. The log ends where that fails.

- Behind the last entry that the checkpoint knows as synced, a failure is a torn write: the tail is
  cut, with one line that says so.
- At or below it an entry was corrupted, which may have been acknowledged. Where its index unit says
  how long it is, and a sound entry follows, it is noted as damaged and the log goes on: it is
  fetched from a peer, and not read before. Otherwise the node does not start (`FatalError`).

An index unit that is missing or wrong while its entry is sound is written anew, unless the two
differ in the term alone: then nobody can say which is right, and the entry counts as damaged.
Source: DLedgerMmapFileStore.recover (which starts three files before the end).
"""

import logging
from typing import Final

from dledger.codec.entry import (
    END_RECORD_BYTES,
    ENTRY_MAGIC,
    HEADER_BYTES,
    EntryHeader,
    body_matches,
    decode_header,
    header_problem,
    is_end_record,
)
from dledger.codec.index import UNIT, UNIT_MAGIC
from dledger.codec.properties import Checkpoint
from dledger.core.model import NO_TERM, UNIT_BYTES, LogIndex, Term
from dledger.core.snapshot import SnapshotMeta
from dledger.segments.row import Segments
from dledger.segments.walk import NEXT_FILE, NOTHING_WRITTEN, walk
from dledger.storage.corruption import Place
from dledger.storage.log_store import LogExtent, LogStore
from dledger.storage.snapshot_files import SnapshotFiles
from dledger.storage.trim import settle_log_start
from ledgermq.runtime.errors import FatalError

_log: Final = logging.getLogger(__name__)

DAMAGED_MAX: Final = 4096
"""Most damaged entries in a row that a start goes past."""
DAMAGED: Final = NOTHING_WRITTEN - 1


def open_log_store(
    data: Segments,
    index: Segments,
    checkpoint: Checkpoint,
    term: Term,
    recovery_bytes: int,
    snapshots: SnapshotFiles,
) -> LogStore:
    """Recover the log in ``data`` and ``index``; ``term`` is the highest term it may have.

    It begins behind the loaded snapshot, where there is one; what lies before that is removed.
    Errors: `FatalError` naming file, offset and index.
    """
    base = settle_log_start(data, index, snapshots)
    walk = _Walk(data, index, checkpoint, term)
    if base is not None:
        walk.begin_behind(base)
    else:
        walk.begin()
    walk.find_start(recovery_bytes)
    reason = walk.run()
    walk.finish(reason)
    store = LogStore(data, index, walk.extent(), snapshots)
    for damaged, place in walk.damaged.items():
        store.corruption.note(damaged, place)
    return store


class _Walk:
    """One pass over the entries, from the start point to where they end."""

    def __init__(
        self, data: Segments, index: Segments, checkpoint: Checkpoint, term_max: Term
    ) -> None:
        self._data = data
        self._index = index
        self._checkpoint = checkpoint
        self._term_max = term_max
        self._first_position = self._position = self._stopped_at = data.start
        self._first_index: LogIndex = 0
        self._next_index: LogIndex = 0
        self._base_term = self._term = NO_TERM
        self._reason: str | None = None
        """What is wrong where the walk has stopped; None if nothing is there."""
        self._repaired = 0
        self.damaged: dict[LogIndex, Place] = {}
        """Entries that were synced and are not what was written."""
        self._walked_from = 0
        self._walked_from_index: LogIndex = 0

    def begin(self) -> None:
        """Begin with the first entry of the first segment."""
        self._first_index = self._next_index = self._find_first_index()

    def begin_behind(self, base: SnapshotMeta) -> None:
        """Begin with the entry behind a snapshot."""
        self._first_index = self._next_index = base.id.last_index + 1
        self._first_position = self._position = self._stopped_at = base.position
        self._base_term = self._term = base.id.last_term

    def _find_first_index(self) -> LogIndex:
        """Return the index of the first entry; 0 when there is none or it is damaged.

        Where nothing was written, a loss of power took the first entries, or they were cut off.
        """
        position = self._data.start
        view = self._data.segment_view(position)
        if view is None or position == 0:
            return 0
        if _is_blank(view, 0) and self._data.nonzero_end(position) == position:
            return 0
        header = decode_header(view)
        index = header.entry_index
        if header_problem(header, index, position, len(view)) or not self._is_first(header, view):
            path = self._data.path(self._data.start)
            raise FatalError(
                f"{path} offset 0: the first entry is damaged; move the directory away and start"
                " with an empty one, when the others have everything"
            )
        return index

    def _is_first(self, header: EntryHeader, view: memoryview) -> bool:
        """Tell whether somebody else, too, says which index the first entry has; or nobody can.

        No snapshot does: what lay before was removed by DLedger.
        """
        _, position, size, index, _ = self._unit(header.entry_index)
        if (position, size, index) == (header.position, header.size, header.entry_index):
            return True
        if len(view) < header.size + HEADER_BYTES:
            return self._index.is_empty
        behind = decode_header(view, header.size)
        if behind.magic == ENTRY_MAGIC:
            return behind.entry_index == header.entry_index + 1
        return self._index.is_empty

    def find_start(self, recovery_bytes: int) -> None:
        """Go to the first entry to check: ``recovery_bytes`` before the last one known synced.

        Whatever looks odd on the way there makes the check begin with the first entry instead.
        Errors: `FatalError` when the first index file is missing.
        """
        first_unit = self._first_index * UNIT_BYTES
        if not self._index.is_empty and self._index.start > first_unit:
            raise FatalError(
                f"{self._index.path(first_unit)} is missing: the index begins with"
                f" {self._index.path(self._index.start)}, the log with entry {self._first_index}"
                " (with no index file at all, it is made anew from the log)"
            )
        synced = self._checkpoint.end_index
        if synced <= self._first_index or not self._is_sound(synced):
            return
        limit = self._unit(synced)[1] - recovery_bytes
        low, high = self._first_index, synced
        while low < high:
            middle = (low + high) // 2
            if self._unit(middle)[1] >= limit:
                high = middle
            else:
                low = middle + 1
        if low > self._first_index and self._is_sound(low) and self._is_sound(low - 1):
            self._next_index = low
            self._position = self._unit(low)[1]
            self._term = self._unit(low - 1)[4]

    def _unit(self, index: LogIndex) -> tuple[int, int, int, int, int]:
        unit: tuple[int, int, int, int, int] = UNIT.unpack(
            self._index.read(index * UNIT_BYTES, UNIT_BYTES)
        )
        return unit

    def _is_sound(self, index: LogIndex) -> bool:
        """Tell whether the index unit points at a header that says the same."""
        magic, position, size, found, term = self._unit(index)
        view, offset = self._data.locate(position)
        if (magic, found) != (UNIT_MAGIC, index) or view is None:
            return False
        if offset + HEADER_BYTES > len(view):
            return False
        header = decode_header(view, offset)
        return (header.size, header.entry_index, header.term) == (size, index, term)

    def run(self) -> str | None:
        """Check entry after entry; return why the last one is the last, None for an empty rest."""
        self._walked_from, self._walked_from_index = self._position, self._next_index
        while True:
            self._reason = None
            self._stopped_at, code = walk(self._data, self._position, self._inspect)
            if code == NEXT_FILE:
                segment_bytes = self._data.segment_bytes
                self._stopped_at += segment_bytes - self._stopped_at % segment_bytes
            if not self._pass_damaged(self._stopped_at):
                return self._reason

    def _inspect(self, view: memoryview, offset: int, position: int) -> int:
        """Pass the entry at ``offset`` if it is sound; the codec of the walk."""
        if _is_blank(view, offset):
            return NOTHING_WRITTEN
        if is_end_record(view, offset):
            # It counts only with the entry behind it: a segment is ended to open the next.
            return NEXT_FILE
        self._reason = self._check_entry(view, offset, position)
        return DAMAGED if self._reason is not None else self._position - position

    def _check_entry(self, view: memoryview, offset: int, position: int) -> str | None:
        """Check the entry at ``offset``; pass it if it is sound, say what is wrong if not."""
        index = self._next_index
        if offset + HEADER_BYTES > len(view):
            return "no room for a header"
        header = decode_header(view, offset)
        room = len(view) - offset - END_RECORD_BYTES
        problem = header_problem(header, index, position, room)
        if problem is None and not self._term <= header.term <= self._term_max:
            problem = f"term is {header.term}, between {self._term} and {self._term_max} it may be"
        if problem is not None:
            return problem
        body = view[offset + HEADER_BYTES : offset + header.size]
        if not body_matches(header.body_crc, body):
            return "CRC of the body does not match"
        problem = self._check_unit(index, position, header.size, header.term)
        if problem is None:
            self._next_index = index + 1
            self._position = position + header.size
            self._term = header.term
        return problem

    def _pass_damaged(self, position: int) -> bool:
        """Go past damaged entries that were synced, if their units lead to a sound one, or the end.

        ``position`` is where the first of them should lie.
        """
        synced = self._checkpoint.end_index
        places: dict[LogIndex, Place] = {}
        index, term = self._next_index, self._term
        while index <= synced and len(places) < DAMAGED_MAX:
            magic, found_position, size, found, found_term = self._unit(index)
            room = self._data.segment_bytes - position % self._data.segment_bytes
            if room < HEADER_BYTES or found_position == position + room:
                position += room
                room = self._data.segment_bytes
            if (magic, found, found_position) != (UNIT_MAGIC, index, position):
                return False
            if not HEADER_BYTES <= size <= room - END_RECORD_BYTES:
                return False
            if not term <= found_term <= self._term_max:
                return False
            places[index] = Place(position, size, found_term)
            index, position, term = index + 1, position + size, found_term
            if index > synced or self._leads_on(index, position, term):
                self.damaged.update(places)
                self._next_index, self._position, self._term = index, position, term
                return True
        return False

    def _leads_on(self, index: LogIndex, position: int, term: Term) -> bool:
        """Tell whether entry ``index`` begins at ``position``, or in the segment behind it."""
        segment_bytes = self._data.segment_bytes
        for start in (position, position + -position % segment_bytes):
            view, offset = self._data.locate(start)
            if view is not None and offset + HEADER_BYTES <= segment_bytes:
                header = decode_header(view, offset)
                room = segment_bytes - offset - END_RECORD_BYTES
                if header_problem(header, index, start, room) is None and header.term >= term:
                    return body_matches(
                        header.body_crc, view[offset + HEADER_BYTES : offset + header.size]
                    )
        return False

    def _check_unit(
        self, index: LogIndex, position: int, size_bytes: int, term: Term
    ) -> str | None:
        where = index * UNIT_BYTES
        expected = UNIT.pack(UNIT_MAGIC, position, size_bytes, index, term)
        found = self._index.read(where, UNIT_BYTES)
        if found == expected:
            return None
        if found[:24] == expected[:24]:
            return f"term is {term}, but {UNIT.unpack(found)[4]} in the index"
        if self._index.is_empty or where <= self._index.end:
            self._index.write(where, (expected,))
            self._repaired += 1
            return None
        raise FatalError(f"{self._index.path(where)}: index files are missing before it")

    def finish(self, reason: str | None) -> None:
        """Refuse or cut what follows the last sound entry; sync what was repaired."""
        index, position = self._next_index, self._position
        path = self._data.path(self._stopped_at)
        offset = self._stopped_at % self._data.segment_bytes
        synced = self._checkpoint.end_index
        if index <= synced:
            raise FatalError(
                f"{path} offset {offset}: entry {index} is damaged or missing"
                f" ({reason or 'nothing there'}), but the log was synced up to {synced} and"
                f" committed up to {self._checkpoint.committed_index};"
                " move the directory away and start with an empty one only when every other"
                " replica has everything (docs/operations.md, a replica that lost its disk)"
            )
        end = self._data.nonzero_end(position)
        if end > position:
            if reason is None and end > position + END_RECORD_BYTES:
                reason = "nothing there, but bytes behind it"
            if reason is not None:
                _log.warning(
                    "event=cut_tail file=%s offset=%d index=%d dropped_bytes=%d reason=%r",
                    path, offset, index, end - position, reason,
                )  # fmt: skip
            self._data.cut(position)
        if self._index.nonzero_end(index * UNIT_BYTES) > index * UNIT_BYTES:
            self._index.cut(index * UNIT_BYTES)
        if self._repaired:
            _log.warning("event=index_repaired units=%d last_index=%d", self._repaired, index - 1)
        # A process that was killed may have left in the page cache what it never synced, or failed
        # to. From here on it counts as held, in SYNC_FLUSH too: it must survive a loss of power.
        self._write_unsynced_again()
        self._data.sync_from(self._walked_from)
        self._index.sync_from(self._walked_from_index * UNIT_BYTES)

    def _write_unsynced_again(self) -> None:
        """Write again the entries behind the last one that the checkpoint knows as synced."""
        synced, begin = self._checkpoint.end_index, self._walked_from
        if synced >= self._walked_from_index:
            _, position, size, _, _ = self._unit(synced)
            begin = position + size
        first_unit = max(synced + 1, self._walked_from_index) * UNIT_BYTES
        refused = self._data.rewrite(begin, self._position)
        refused |= self._index.rewrite(first_unit, self._next_index * UNIT_BYTES)
        if refused:
            _log.warning("event=tail_only_synced reason=disk_full index=%d", synced + 1)

    def extent(self) -> LogExtent:
        """Return what was found."""
        return LogExtent(
            self._first_index, self._next_index - 1, self._first_position, self._position,
            self._base_term,
        )  # fmt: skip


def _is_blank(view: memoryview, offset: int) -> bool:
    return not view[offset] and not any(view[offset : offset + HEADER_BYTES])

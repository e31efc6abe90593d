"""The index of keys: RocketMQ's ``index/`` of files, filled by dispatch and searched by hash.

Entries are derived from the committed log, in its order, so whatever is lost is made again. They
are kept in memory and written together (`KeyIndex.flush`); a checkpoint (`plan`, `IndexPlan.run`,
`settle`) syncs them, says so in ``index.checkpoint``, and then writes slots where it is due: every
half a table of new entries, when a file is full, and at a clean stop.

Written for E entries of a file with S slots: 20 E, once, and the table 4 S about 1 + 2 E / S times;
with RocketMQ's numbers (S 5,000,000, E 20,000,000) 1.5 times the bytes of the entries. In memory:
4 S bytes of slots for the file that grows, only as far as they are used, and as much again while a
full file waits for its checkpoint or a table is being written; 20 bytes an entry not yet written;
4 bytes of CRC for 8,192 entries, and for 16,384 slots of other files.

It does not know the log. Source: spec/disk.md 5.4; RocketMQ IndexService.
"""

import logging
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from dledger.segments.open_files import may_open_no_more
from ledgermq.runtime.clock import local_stamp
from ledgermq.runtime.disk import NO_SPACE
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.index.codec import ENTRY, ENTRY_BYTES, FIRST_ENTRY, SECONDS_MAX, Header, Layout
from store.index.file import DamagedIndex, IndexFile, SlotWrite, sync
from store.index.handles import Handles
from store.index.keys import KeyHashes
from store.index.marks import INDEX_FILE, IndexMark, encode_mark
from store.layout import Row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dledger.mark import LogMark
    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.disk import Disk
    from store.config import IndexConfig
    from store.layout import Keyed

UNWRITTEN_BYTES_MAX: Final = 16 * 1024 * 1024
"""Entries kept in memory before dispatch waits for the disk."""
ROWS_TOGETHER: Final = 256
"""Rows that come together before they are added, unless the index is asked or written sooner."""

_log = logging.getLogger(__name__)


class IndexPlan(NamedTuple):
    """A checkpoint of the index: what a thread does while the index goes on."""

    disk: "Disk"
    file_bytes: int
    unsynced: list[str]
    mark_path: str
    mark: IndexMark
    slots: list[SlotWrite]

    def run(self) -> bool:
        """Write and sync everything; False if the disk is full. Errors: `FatalError`."""
        path = self.mark_path
        try:
            for path in self.unsynced:
                file = self.disk.open(path, size=self.file_bytes)
                try:
                    sync(file, path)
                finally:
                    file.close()
            path = self.mark_path
            self.disk.replace(path, encode_mark(self.mark))
            for write in self.slots:
                path = write.file.path
                file = self.disk.open(path, size=self.file_bytes)
                try:
                    write.run(file)
                finally:
                    file.close()
        except OSError as error:
            if error.errno in NO_SPACE:
                return False
            raise _failed(path, error) from error
        return True


class KeyIndex:
    """All index files of a store; everything here runs in the loop's thread."""

    def __init__(self, config: "IndexConfig", directory: str, disk: "Disk", clock: "Clock") -> None:
        self.layout = Layout(config.slots, config.entries)
        self.directory = f"{directory}/index"
        self.mark_path = f"{directory}/{INDEX_FILE}"
        self.handles = Handles(disk, self.directory, self.layout.file_bytes)
        self.disk = disk
        self._clock = clock
        self._hashes = KeyHashes()
        self._last_name = ""
        self._outstanding: IndexPlan | None = None
        self._drop_below = 0
        self.files: list[IndexFile] = []
        """Oldest first."""
        self._waiting: list[Row] = []
        """Rows that were taken and are in no file yet."""
        self.last_physical = -1
        """Newest message whose keys are here; what is put at or below it is known already."""
        self.index_timestamp = 0
        """Store timestamp (ms) up to which files and slots on disk are whole, 0 for none."""

    @property
    def has_room(self) -> bool:
        """Whether more may be put before what waits is written."""
        unwritten = ENTRY_BYTES * len(self._waiting)
        for file in self.files[-2:]:
            unwritten += len(file.tail)
        return unwritten < UNWRITTEN_BYTES_MAX

    def rows_of(self, messages: "Iterable[Keyed]") -> list[Row]:
        """Return the rows of messages that follow each other in the log, whatever is in them."""
        return self._hashes.rows(messages, -1)

    def put_all(self, messages: "Iterable[Keyed]") -> None:
        """Index messages that follow each other in the log."""
        self.take_in()
        self.put_rows(self._hashes.rows(messages, self.last_physical))
        self.take_in()

    def put_rows(self, rows: list[Row]) -> None:
        """Take rows in the order of the log; those of messages that are known are left out."""
        self._waiting += rows
        if len(self._waiting) >= ROWS_TOGETHER:
            self.take_in()

    def take_in(self) -> None:
        """Add what was taken: a row costs little beside hundreds of others, and much alone.

        Whoever reads the files here asks for it first.
        """
        rows, self._waiting = self._waiting, []
        last = self.last_physical
        if rows and rows[0][1] <= last:
            rows = [row for row in rows if row[1] > last]
        try:
            while rows:
                file = self.files[-1] if self.files else self._roll()
                if file.is_full:
                    file = self._roll()
                room = self.layout.entries - file.count
                self._add(file, rows if len(rows) <= room else rows[:room])
                rows = rows[room:]
        except FatalError:
            self._waiting = rows  # whoever asked may live on: the next flush ends the process
            raise

    def _add(self, file: IndexFile, rows: list[Row]) -> None:
        """Add entries to a file that has room for them."""
        if file.count == FIRST_ENTRY:
            self._add_first(file, rows[0])
            rows = rows[1:]
        slots, pack = self.layout.slots, ENTRY.pack
        cells, tail = self._cells(file), file.tail
        number, used, begin = file.count, 0, file.begin_timestamp
        physical, time, seconds = file.end_physical, -1, 0
        for value, physical, stored in rows:
            if stored != time:
                time = stored
                seconds = _seconds(stored, begin)
            slot = value % slots
            previous = cells[slot]
            if previous == 0:
                used += 1
            elif not 0 < previous < number:
                previous = 0
            cells[slot] = number
            tail += pack(value, physical, seconds, previous)
            number += 1
        file.count = number
        file.used += used
        self.last_physical = file.end_physical = physical
        if rows:
            file.end_timestamp = time

    def _add_first(self, file: IndexFile, row: Row) -> None:
        """Add the first entry, which counts its time from the end of the file before, as theirs."""
        value, physical, stored = row
        self._cells(file)[value % self.layout.slots] = FIRST_ENTRY
        file.tail += ENTRY.pack(value, physical, _seconds(stored, file.begin_timestamp), 0)
        file.used = 1
        file.count = FIRST_ENTRY + 1
        file.begin_timestamp = file.end_timestamp = stored
        file.begin_physical = file.end_physical = physical

    def _cells(self, file: IndexFile) -> memoryview:
        try:
            return file.ready_table(self.handles).cells
        except OSError as error:
            raise _failed(file.path, error) from error

    def _roll(self) -> IndexFile:
        """Begin a file; like RocketMQ's it takes the end of the one before for its beginning."""
        before = self.files[-1] if self.files else None
        header = Header()
        if before is not None:
            time, physical = before.end_timestamp, before.end_physical
            header = Header(time, time, physical, physical)
        stamp = local_stamp(self._clock, self._clock.wall_ms())
        if stamp <= self._last_name:
            stamp = _next_name(self._last_name)
        self._last_name = stamp
        file = IndexFile(self.layout, self.directory, stamp, header)
        self.files.append(file)
        return file

    def flush(self) -> bool:
        """Write what waits; False if the disk is full. Errors: `FatalError`."""
        if self._waiting:
            self.take_in()
        if self._drop_below and self._outstanding is None:
            self._drop_files()
        for file in self.files[-2:] if not self._has_older_tails() else self.files:
            try:
                file.flush(self.handles)
            except OSError as error:
                if error.errno in NO_SPACE:
                    return False
                raise _failed(file.path, error) from error
        if self.files:
            self._copy_table(self.files[-1])
        return True

    def _copy_table(self, file: IndexFile) -> None:
        """Copy some of the table if half of it or more has changed since it was written."""
        is_due = file.count - file.slots_count > self.layout.slots // 2 and not file.is_full
        if is_due and file.table is not None and not file.is_damaged:
            file.copy_some(self.handles)

    def _has_older_tails(self) -> bool:
        return len(self.files) > 2 and bool(self.files[-3].tail)

    # Checkpoints

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is under way."""
        return self._outstanding is not None

    def plan(self, log: "LogMark | None", *, is_last: bool = False) -> IndexPlan:
        """Return a checkpoint of all that was put, which must be flushed; `settle` ends it.

        ``log``: everything up to that entry was put. ``is_last``: all slots are to be written.
        Errors: `FatalError`.
        """
        assert self._outstanding is None, "one checkpoint at a time"
        slots: list[SlotWrite] = []
        for file in self.files:
            if is_last:
                file.copy = None  # what it lacks is not to be walked at the next start
            due = file.is_full or is_last or (file.copy is not None and file.copy.is_whole)
            if file.slots_wait and due and not file.is_damaged:
                try:
                    slots.append(file.slot_write(self.handles, is_last=is_last))
                except DamagedIndex as error:
                    self.note_damage(file, error)
                except OSError as error:
                    raise _failed(file.path, error) from error
        unsynced = list(self.handles.unsynced)
        self.handles.unsynced.clear()
        plan = IndexPlan(
            self.disk,
            self.layout.file_bytes,
            unsynced,
            self.mark_path,
            self.mark(log),
            slots,
        )
        self._outstanding = plan
        return plan

    def mark(self, log: "LogMark | None") -> IndexMark:
        """Return what ``index.checkpoint`` says of the files as they are."""
        good = list(takewhile(lambda file: not file.is_damaged, self.files))
        return IndexMark(
            self.layout.slots,
            self.layout.entries,
            log if len(good) == len(self.files) else None,
            tuple(file.mark() for file in good if file.count > FIRST_ENTRY),
        )

    def settle(self, plan: IndexPlan, *, is_written: bool) -> None:
        """End a checkpoint."""
        if plan is not self._outstanding:
            return  # everything was dropped meanwhile
        self._outstanding = None
        if not is_written:
            self.handles.unsynced.update(dict.fromkeys(plan.unsynced))
            return
        for write in plan.slots:
            write.file.slots_count = write.count
            write.file.slot_crcs = write.crcs
            write.file.is_rewritten = False
        for file in self.files:
            if file.is_full and not file.slots_wait:
                file.table = None
        self._note_timestamp()

    def _note_timestamp(self) -> None:
        whole = [file for file in self.files if file.is_created and not file.slots_wait]
        self.index_timestamp = whole[-1].end_timestamp if whole else 0

    @property
    def wants_slots(self) -> bool:
        """Whether some slots on disk are behind."""
        return any(file.slots_wait and not file.is_damaged for file in self.files)

    def note_damage(self, file: IndexFile, error: Exception) -> None:
        """Note that a file is not as it was written: the next start makes it anew."""
        if not file.is_damaged:
            _log.error("event=index_damaged file=%s reason=%s", file.path, error)
        file.is_damaged = True

    # Removal

    def drop_before(self, position: int) -> None:
        """Remove, at the next flush, the files that hold nothing at or behind ``position``."""
        self._drop_below = max(self._drop_below, position)

    def _drop_files(self) -> None:
        position, self._drop_below = self._drop_below, 0
        while len(self.files) > 1 and self.files[0].end_physical < position:
            file = self.files[0]
            try:
                self.handles.remove(file.path)
            except FatalError as error:
                if not may_open_no_more(error):
                    raise
                self._drop_below = position  # at a later flush
                return
            del self.files[0]
            _log.info("event=index_file_removed file=%s log_begins=%d", file.path, position)

    def reset(self) -> None:
        """Remove everything: another log took the place of this one."""
        self._outstanding = None
        self._waiting.clear()
        self._drop_below = 0
        self.remove_from(0)
        self.last_physical = -1
        self.index_timestamp = 0

    def remove_from(self, number: int) -> None:
        """Remove the files from ``number`` on."""
        for file in self.files[number:]:
            self.handles.remove(file.path)
        del self.files[number:]

    def take(self, files: list[IndexFile]) -> None:
        """Go on with files that a start found."""
        self.files = files
        self._last_name = max((file.name for file in files), default=self._last_name)
        self.last_physical = files[-1].end_physical if files else -1
        self._note_timestamp()

    def close(self) -> None:
        """Close the files."""
        self.handles.close()


def _seconds(stored: int, begin: int) -> int:
    """Return the time of an entry, as RocketMQ limits it."""
    return min(max(0, (stored - begin) // 1000), SECONDS_MAX) if begin > 0 else 0


def _next_name(name: str) -> str:
    """Return the smallest name behind ``name``: names are compared, nobody reads a time there."""
    return f"{int(name) + 1:017d}"


def _failed(path: str, error: OSError) -> FatalError:
    return FatalError(f"cannot use index file {path}: {error}", EXIT_ENVIRONMENT)

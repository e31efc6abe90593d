"""One index file: what is written, what waits in memory, and the way along its chains.

Entries wait in ``tail`` and are written many at a time, each once. Slots change all over the file,
so they stay in memory (`SlotTable`) and are written seldom, always after the entries that they name
are synced. After a crash they count if they have the CRCs of their last write, and entries behind
it give the rest; if not, they were written since, or corrupted: then all entries, which have CRCs
of their own, give the table anew, since an entry has its hash. The header follows the slots, so
that a file on disk is at any time one that RocketMQ can read. It does not know which messages there
are. Source: spec/disk.md 5.4; RocketMQ IndexFile.
"""

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.index.codec import (
    ENTRY,
    ENTRY_BYTES,
    FIRST_ENTRY,
    HEADER_BYTES,
    Header,
    Layout,
    encode_header,
)
from store.index.crcs import EntryCrcs, SlotCrcs
from store.index.marks import FileMark
from store.index.slots import Pages, SlotTable, TableCopy, pages, part_at, part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ledgermq.runtime.disk import File
    from store.index.handles import Handles

_log: Final = logging.getLogger(__name__)

_PLACES_END: Final = HEADER_BYTES - 8
"""Where times and places of a header end."""
_READ_ENTRIES: Final = 1 << 14
_WRITE_BYTES: Final = 1 << 20
_WHOLE_FACTOR: Final = 4
"""With so many new entries a page, all pages of the table are taken for changed."""

Entry = tuple[int, int, int, int]
"""``(hash, physical offset, seconds, previous)``."""


class DamagedIndex(Exception):  # noqa: N818 - says what is
    """Bytes of an index file that nobody wrote so."""


def sync(file: "File", path: str) -> None:
    """Sync a file, in any thread. Errors: `FatalError`, whatever it is: a full disk, too.

    What a sync has lost it does not tell twice; the next one would call it written.
    """
    try:
        file.fdatasync()
    except OSError as error:
        raise FatalError(f"cannot sync index file {path}: {error}", EXIT_ENVIRONMENT) from error


class SlotWrite:
    """Pages of slots, and the header that goes with them, to be written in any thread."""

    __slots__ = ("_whole", "count", "crcs", "file", "header", "parts")

    def __init__(self, file: "IndexFile", count: int, parts: Pages, *, is_last: bool) -> None:
        self.file = file
        self.parts = parts
        self.count = count
        """They have what the entries below this number left there, or newer."""
        self.header = encode_header(file.header())
        self._whole: Callable[[], Pages] | None = None
        """The whole table as it is written; None where only some pages are, and it will change."""
        table = file.table
        if table is not None and (file.is_full or is_last):
            self._whole = partial(pages, table.cells, with_empty=True)
        self.crcs: SlotCrcs | None = None
        """Of all slots on disk, once they are written; None where that is not known."""

    def run(self, out: "File") -> None:
        """Write and sync the slots, then the header. Errors: `OSError`; `FatalError` of a sync."""
        begin, size = -1, 0
        waiting: list[bytes] = []
        for position, data in self.parts:
            if begin + size != position or size >= _WRITE_BYTES:
                if waiting:
                    out.pwrite(begin, waiting)
                begin, waiting, size = position, [], 0
            waiting.append(data)
            size += len(data)
        if waiting:
            out.pwrite(begin, waiting)
        sync(out, self.file.path)
        out.pwrite(0, (self.header,))
        sync(out, self.file.path)
        if self._whole is not None:
            self.crcs = SlotCrcs.of(self._whole())

    def take_copy(self, copy: TableCopy) -> None:
        """Take that a copy of the whole table is what is written."""
        self._whole = partial(copy.pages, with_empty=True)


class IndexFile:
    """A file of the index; numbers count entries, from 1."""

    __slots__ = (
        "begin_physical", "begin_timestamp", "copy", "count", "crcs", "end_physical",
        "end_timestamp", "first_header", "is_created", "is_damaged", "is_rewritten", "layout",
        "name", "path", "slot_crcs", "slots_count", "table", "tail", "used", "written",
    )  # fmt: skip

    def __init__(self, layout: Layout, directory: str, name: str, header: Header) -> None:
        self.layout = layout
        self.name = name
        self.path = f"{directory}/{name}"
        self.begin_timestamp = header.begin_timestamp
        self.end_timestamp = header.end_timestamp
        self.begin_physical = header.begin_physical
        self.end_physical = header.end_physical
        self.used = header.used_slots
        self.count = max(header.next_number, FIRST_ENTRY)
        """Number of the next entry."""
        self.written = self.count
        """Number of the first entry of the tail."""
        self.slots_count = 0
        """The slots on disk are those of the entries below this number."""
        self.is_rewritten = False
        """The slots on disk are not to be relied on: all of them are written."""
        self.is_created = False
        """Whether it is on disk."""
        self.is_damaged = False
        """Whether it was found not to be as it was written: the next start makes it anew."""
        self.first_header = encode_header(header._replace(next_number=self.count))
        """What it says before its first slots are written: where the one before ends. RocketMQ
        does not index again what lies before that."""
        self.tail = bytearray()
        self.table: SlotTable | None = None
        self.copy: TableCopy | None = None
        """Of the table, for the next slot write."""
        self.crcs: EntryCrcs | None = EntryCrcs()
        """Of the entries; None: what RocketMQ has written has none."""
        self.slot_crcs: SlotCrcs | None = None
        """Of the slots on disk, as they were last written; None: not known."""

    @property
    def is_full(self) -> bool:
        """Whether it takes no further entry."""
        return self.count >= self.layout.entries

    @property
    def slots_wait(self) -> bool:
        """Whether slots in memory are ahead of those on disk."""
        return self.slots_count < self.count and self.count > FIRST_ENTRY

    def header(self) -> Header:
        """Return what its header says."""
        return Header(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_physical,
            self.end_physical,
            self.used,
            self.count,
        )

    def mark(self) -> FileMark:
        """Return what a checkpoint says of it, once its tail is written."""
        assert self.written == self.count, (self.name, self.written, self.count)
        return FileMark(
            self.name,
            *self.header(),
            self.slots_count,
            b"" if self.crcs is None else self.crcs.packed(),
            b"" if self.slot_crcs is None else self.slot_crcs.packed,
        )

    def flush(self, handles: "Handles") -> None:
        """Write the tail. Errors: `OSError`; the tail stays then."""
        if self.tail:
            file = handles.open(self.path)
            if not self.is_created and any(self.first_header[:_PLACES_END]):
                file.pwrite(0, (self.first_header,))
            self.is_created = True
            file.pwrite(self.layout.entry_at(self.written), (self.tail,))
            if self.crcs is not None:
                self.crcs.add(self.tail)
            self.written = self.count
            self.tail = bytearray()
            handles.unsynced[self.path] = None

    def ready_table(self, handles: "Handles") -> SlotTable:
        """Return the table in memory, read or made anew if it is not there.

        Errors: `DamagedIndex`, `OSError`.
        """
        if self.table is None:
            table = SlotTable(self.layout.slots)
            if self._may_read_slots(handles, table.part_count):
                table.read(handles.open(self.path))
            cells, slots = table.cells, self.layout.slots
            number = max(self.slots_count, FIRST_ENTRY)
            for value, _, _, previous in self.entries(handles, number, self.count):
                if value < 0 or not 0 <= previous < number:
                    raise DamagedIndex(f"{self.path}: entry {number} is no entry")
                cells[value % slots] = number
                number += 1
            self.table = table
        return self.table

    def _may_read_slots(self, handles: "Handles", parts: int) -> bool:
        """Tell whether the slots on disk are those of the entries below ``slots_count``.

        If not, none of them counts from now on. Errors: `DamagedIndex`, where the entries have no
        CRC that would let them give the slots; `OSError`.
        """
        if not self.slots_count:
            return False
        if self.crcs is None and self.slot_crcs is None:
            return True  # RocketMQ has written them
        try:
            if self.slot_crcs is not None:
                for part in range(parts):
                    self._check_part(handles, part)
                return True
            reason = f"{self.path}: slots without a CRC"
        except DamagedIndex as error:
            if self.crcs is None:
                raise
            reason = str(error)
        _log.warning("event=index_slots_made_anew entries=%d reason=%r", self.count, reason)
        self._distrust_slots()
        return False

    def _distrust_slots(self) -> None:
        """Take that the slots on disk say nothing."""
        self.slots_count = 0
        self.slot_crcs = None
        self.is_rewritten = True

    def entries(self, handles: "Handles", first: int, end: int) -> "Iterator[Entry]":
        """Walk the entries ``first`` up to ``end``, which are written. Errors: `OSError`."""
        while first < end:
            count = min(_READ_ENTRIES, end - first)
            self._check(handles, first, first + count)
            data = handles.open(self.path).pread(self.layout.entry_at(first), count * ENTRY_BYTES)
            if len(data) != count * ENTRY_BYTES:
                raise DamagedIndex(f"{self.path} ends before entry {end}")
            yield from ENTRY.iter_unpack(data)
            first += count

    def entry(self, handles: "Handles", number: int) -> Entry:
        """Return one entry. Errors: `DamagedIndex`, `OSError`."""
        if number >= self.written:
            found = ENTRY.unpack_from(self.tail, (number - self.written) * ENTRY_BYTES)
        else:
            self._check(handles, number, number + 1)
            data = handles.open(self.path).pread(self.layout.entry_at(number), ENTRY_BYTES)
            if len(data) != ENTRY_BYTES:
                raise DamagedIndex(f"{self.path} ends before entry {number}")
            found = ENTRY.unpack(data)
        return found[0], found[1], found[2], found[3]

    def newest(self, handles: "Handles", value: int) -> int:
        """Return the number of the newest entry of a hash's chain, 0 for none.

        Errors: `DamagedIndex`, `OSError`.
        """
        slot = value % self.layout.slots
        if self.table is not None:
            number = self.table.cells[slot]
        elif self.slots_wait:
            number = self.ready_table(handles).cells[slot]
        elif self.is_created:
            self._check_part(handles, part_of(slot))
            data = handles.open(self.path).pread(self.layout.slot_at(slot), 4)
            number = int.from_bytes(data, "big", signed=True)
        else:
            return 0
        return number if 0 < number < self.count else 0

    def _check(self, handles: "Handles", first: int, end: int) -> None:
        """Compare written entries with their CRCs, once. Errors: `DamagedIndex`, `OSError`."""
        crcs = self.crcs
        if crcs is not None and crcs.unchecked:
            damaged = crcs.maybe_damaged(first, end, lambda a, b: self._read(handles, a, b))
            if damaged is not None:
                raise DamagedIndex(f"{self.path}: entries from {damaged} on have another CRC")

    def _read(self, handles: "Handles", first: int, end: int) -> bytes:
        size = (end - first) * ENTRY_BYTES
        return handles.open(self.path).pread(self.layout.entry_at(first), size)

    def _check_part(self, handles: "Handles", part: int) -> None:
        """Compare slots on disk with their CRC, once. Errors: `DamagedIndex`, `OSError`."""
        crcs, slots = self.slot_crcs, self.layout.slots
        if crcs is not None and crcs.unchecked:
            position, size = part_at(part, slots)
            if crcs.is_damaged(part, lambda: handles.open(self.path).pread(position, size)):
                raise DamagedIndex(f"{self.path} offset {position}: slots have another CRC")

    def slot_write(self, handles: "Handles", *, is_last: bool = False) -> SlotWrite:
        """Return what brings the slots on disk up to date; the tail must be written.

        ``is_last``: nothing is added any more. Errors: `DamagedIndex`, `OSError`.
        """
        assert not self.tail, self.name
        table = self.ready_table(handles)
        first = max(self.slots_count, FIRST_ENTRY)
        with_empty = self.is_rewritten
        if with_empty or self.count - first > _WHOLE_FACTOR * table.page_count:
            copy, self.copy = self.copy, None
            if self.is_full:  # changes no more, so that it need not be copied
                parts = pages(table.cells, with_empty=with_empty)
                return SlotWrite(self, self.count, parts, is_last=is_last)
            if copy is None or not copy.is_whole:
                copy = TableCopy(table, self.count)
            while not copy.is_whole:
                copy.step()
            parts = copy.pages(with_empty=with_empty)
            write = SlotWrite(self, copy.number, parts, is_last=is_last)
            write.take_copy(copy)
            return write
        hashes = (one[0] for one in self.entries(handles, first, self.count))
        return SlotWrite(self, self.count, table.pages_of(hashes), is_last=is_last)

    def copy_some(self, handles: "Handles") -> None:
        """Copy the next part of the table, for a slot write without a pause."""
        if self.copy is None:
            self.copy = TableCopy(self.ready_table(handles), self.count)
        self.copy.step()

    def cut(self, handles: "Handles", physical: int) -> None:
        """Drop the entries of messages at or behind ``physical``; nothing may be unwritten.

        What the slots on disk say does not count from now on. Errors: `DamagedIndex`, `OSError`.
        """
        assert not self.tail, self.name
        if self.count <= FIRST_ENTRY or self.end_physical < physical:
            return
        cells = self.ready_table(handles).cells
        while self.count > FIRST_ENTRY:
            number = self.count - 1
            value, found, seconds, previous = self.entry(handles, number)
            if value < 0 or not 0 <= previous < number:
                raise DamagedIndex(f"{self.path}: entry {number} is no entry")
            if found < physical:
                self.end_physical = found
                self.end_timestamp = min(
                    self.end_timestamp, self.begin_timestamp + seconds * 1000 + 999
                )
                break
            cells[value % self.layout.slots] = previous
            self.used -= previous == 0
            self.count = number
        self.written = self.count
        if self.crcs is not None:
            self.crcs.cut(self.count, lambda first, end: self._read(handles, first, end))
        self._distrust_slots()

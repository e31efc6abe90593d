"""Walks a log from its first entry to where it ends, past what is damaged.

Where no sound entry begins, the next one is searched for: a record states where it lies, so that
nothing in a body is taken for one. If there is one, what lies between is damage; if there is none,
the log ends here, and what follows is its tail: zeros (files are made at their full size), what a
torn write or an earlier, longer log has left. Source: spec/disk.md 5.2, 5.7, 6.1.
"""

from __future__ import annotations

import contextlib
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from dledger.codec.entry import (
    CHANNEL_CONFIGURATION,
    END_MAGIC,
    END_RECORD,
    END_RECORD_BYTES,
    HEADER_BYTES,
    EntryHeader,
    body_matches,
    decode_header,
    header_problem,
)
from dledger.codec.index import UNIT, UNIT_MAGIC
from dledger.core.model import UNIT_BYTES
from ledgermq.remoting.protocol.message import MAGIC_BLANK
from store.layout import FLAG_NOT_INDEXED, KIND_RAFT_CONFIG, CorruptRecord, state_kind
from store.offline.bytes_row import BlockCache, ByteRow
from store.offline.files import FileInfo, OpenFiles, ReadError, StoreFile
from store.offline.folder import LogFolder, LogKind
from store.offline.records import (
    MAGICS,
    RECORD_BYTES_MAX,
    RECORD_HEAD_BYTES,
    Damage,
    Record,
    head_problem,
    name_problem,
    read_fields,
)
from store.plain.record import inspect

Progress = Callable[[int], None]
"""Told how many bytes were passed."""

SEARCH_BYTES: Final = 1 << 20
_BLANK: Final = struct.Struct(">iI")
_OPEN_MAX: Final = 2
_UNIT_BLOCK_BYTES: Final = 4096


@dataclass(slots=True)
class LogEnd:
    """Where a log ends, and what lies behind."""

    position: int
    path: str
    offset: int
    first_index: int = -1
    last_index: int = -1
    last_term: int = 0
    last_stored: int = 0
    """Store timestamp of the last message (ms), 0 without one."""
    tail_bytes: int = 0
    """From the end to the last byte that is not zero."""
    reason: str = ""
    """Why what begins there is no entry; empty if nothing does."""
    unread: str = ""
    """Why the disk did not give what lies there or behind: there may be more of the log."""


class _NoEntry(Exception):  # noqa: N818  # an outcome, no error
    """What lies here is no sound entry."""


class _Blank(Exception):  # noqa: N818  # an outcome, no error
    """Nothing was written here."""


class LogWalk:
    """One pass over a log. ``end`` is right once all of it was taken."""

    def __init__(
        self,
        log: LogFolder,
        *,
        begin: tuple[int, int] | None = None,
        check: bool = True,
        progress: Progress | None = None,
    ) -> None:
        """Prepare to walk.

        Args:
            log: the log.
            begin: position of the first entry and its index, if something else says so (a
                snapshot, a consume queue; the index may be -1 for unknown).
            check: look at CRCs, too.
            progress: told what was passed.
        """
        self._log = log
        self._is_dledger = log.kind is LogKind.DLEDGER
        self._header_bytes = HEADER_BYTES if self._is_dledger else 0
        self._files = OpenFiles(_OPEN_MAX)
        self._cache = BlockCache(_UNIT_BLOCK_BYTES, open_max=_OPEN_MAX)
        self._units = ByteRow(log.units, self._cache)
        self._bases = [file.base for file in log.segments.files]
        self._segment_bytes = log.segments.file_bytes
        self._check = check
        self._progress = progress
        start = log.segments.start
        position, index = begin or (start, 0 if self._is_dledger and start == 0 else -1)
        self._index = index
        self._term = 0
        self._stored = 0
        self._begin = position
        self._unread = ""
        self.end = LogEnd(position, log.segments.directory, 0)

    def run(self) -> Iterator[Record | Damage]:
        """Yield sound records and the gaps between them, in order."""
        position = passed = self._begin
        first_index = -1
        try:
            while True:
                if self._progress is not None and position - passed >= SEARCH_BYTES:
                    self._progress(position - passed)
                    passed = position
                item = self._next(position)
                if item is None:
                    break
                if isinstance(item, int):
                    position = item
                    continue
                position = item.end
                if isinstance(item, Record):
                    self._index, self._term = item.entry_index + 1, item.term
                    self._stored = item.stored or self._stored
                    first_index = item.entry_index if first_index < 0 else first_index
                yield item
            self.end.first_index = first_index
            self.end.last_index = self._index - 1 if self._is_dledger and first_index >= 0 else -1
            self.end.last_term = self._term
            self.end.last_stored = self._stored
        finally:
            self._files.close()
            self._cache.close()

    def _next(self, position: int) -> Record | Damage | int | None:
        """Return what begins at ``position``; a number where to go on; None at the end."""
        info = self._file_at(position)
        index, self._unread = self._index, ""
        if info is None:
            following = bisect_right(self._bases, position)
            if following == len(self._bases):
                self._set_end(position, "")
                return None
            return self._search(position, position, "no file holds this part of the log")
        try:
            return self._read(info, position)
        except _Blank:
            reason = ""
        except (_NoEntry, CorruptRecord) as error:
            reason = str(error)
        except ReadError as error:
            reason, self._unread = f"cannot be read: {error.reason}", error.reason
        damage = self._search(position, position + 1, reason)
        return damage and (self._maybe_written(info, position, index) or damage)

    def _maybe_written(self, info: FileInfo, position: int, index: int) -> Record | int | None:
        """Return what lies at ``position`` by now: a broker may be at work on this log.

        It writes in order, so what lies behind is there only once this is. ``index``: of the entry.
        """
        found, self._index = self._index, index
        with contextlib.suppress(_Blank, _NoEntry, CorruptRecord, ReadError):
            self._files.open(info.path).forget()
            return self._read(info, position)
        self._index = found
        return None

    def _file_at(self, position: int) -> FileInfo | None:
        number = bisect_right(self._bases, position) - 1
        if number < 0:
            return None
        info = self._log.segments.files[number]
        return info if position < info.base + max(info.size, self._segment_bytes) else None

    def _read(self, info: FileInfo, position: int) -> Record | int:
        """Return the entry at ``position``, or where its segment's end record leads.

        Errors: `_Blank`, `_NoEntry`, `CorruptRecord`, `ReadError`.
        """
        file = self._files.open(info.path)
        offset = position - info.base
        if self._is_dledger:
            return self._read_entry(file, info, offset)
        head = file.read(offset, RECORD_HEAD_BYTES)
        if len(head) >= _BLANK.size:
            size, magic = _BLANK.unpack_from(head)
            # At the end of a segment or behind it, in a file that is too long, it would lead back.
            if magic == MAGIC_BLANK and 0 < size == self._segment_bytes - offset:
                return info.base + self._segment_bytes
        if not any(head[:8]):
            if len(head) == 0:
                message = f"the file has only {info.size} bytes"
                raise _NoEntry(message)
            raise _Blank
        problem = head_problem(head, position, info.size - offset)
        if problem:
            raise _NoEntry(problem)
        view = file.read(offset, int.from_bytes(head[:4], "big"))
        try:
            return self._record(view, (position, -1, 0), info, offset)
        except CorruptRecord as error:
            if inspect(view, 0, position) != len(view):
                raise
            return self._odd(view, (position, -1, 0), (info, offset), str(error))

    def _read_entry(self, file: StoreFile, info: FileInfo, offset: int) -> Record | int:
        position = info.base + offset
        head = file.read(offset, HEADER_BYTES)
        left = self._segment_bytes - offset
        is_end = len(head) >= END_RECORD_BYTES and END_RECORD.unpack_from(head) == (END_MAGIC, left)
        if is_end and left > 0:  # see `_read`
            return info.base + self._segment_bytes
        if len(head) == 0:
            message = f"the file has only {info.size} bytes"
            raise _NoEntry(message)
        if not any(head):
            raise _Blank
        header = self._header(head, position, info.size - offset)
        body = file.read(offset + HEADER_BYTES, header.body_bytes)
        if len(body) < header.body_bytes:
            message = "the body is cut short"
            raise _NoEntry(message)
        if self._check and not body_matches(header.body_crc, body):
            message = "CRC of the body does not match"
            raise _NoEntry(message)
        place = (position, header.entry_index, header.term)
        return self._read_body(header, body, place, (info, offset + HEADER_BYTES))

    def _read_body(
        self,
        header: EntryHeader,
        body: memoryview,
        place: tuple[int, int, int],
        at: tuple[FileInfo, int],
    ) -> Record:
        """Return what an entry holds. Errors: `_NoEntry`, `CorruptRecord`."""
        try:
            record = self._record(body, place, *at)
        except CorruptRecord as error:
            if header.body_crc == 0 and header.channel != CHANNEL_CONFIGURATION and len(body):
                raise
            return self._odd(body, place, at, str(error) if len(body) else "")
        is_configuration = record.is_state and state_kind(record.properties) == KIND_RAFT_CONFIG
        if self._check and is_configuration != (header.channel == CHANNEL_CONFIGURATION):
            message = f"channel is {header.channel}, which its record is not of"
            raise _NoEntry(message)
        problem = name_problem(record)
        return self._odd(body, place, at, problem) if problem else record

    def _odd(
        self, view: memoryview, place: tuple[int, int, int], at: tuple[FileInfo, int], problem: str
    ) -> Record:
        """Return what is as it was written, and has a problem; a message only if it is whole."""
        info, offset = at
        try:
            record = self._record(view, place, info, offset, check=False)
        except CorruptRecord:
            record = None
        if record is not None and not name_problem(record):
            return record._replace(problem=problem)
        position, index, term = place
        physical = position + self._header_bytes
        return Record(
            index, term, position, physical + len(view), physical, len(view), -1, 0,
            FLAG_NOT_INDEXED, 0, b"", b"", view, info.path, offset, problem,
        )  # fmt: skip

    def _header(self, head: memoryview, position: int, room: int) -> EntryHeader:
        """Return the header of the next entry. Errors: `_NoEntry`."""
        if len(head) < HEADER_BYTES:
            message = "no room for a header"
            raise _NoEntry(message)
        header = decode_header(head)
        index = self._index if self._index >= 0 else header.entry_index
        problem = header_problem(header, index, position, min(room, RECORD_BYTES_MAX))
        if problem is None and (header.term < self._term or index < 0):
            problem = f"index is {index}, term {header.term} behind term {self._term}"
        if problem is None and (header.term > self._term or self._index < 0):
            problem = self._unit_problem(header, position)
        if problem:
            raise _NoEntry(problem)
        return header

    def _unit_problem(self, header: EntryHeader, position: int) -> str | None:
        """Say if the index has another place or term for this very entry: no CRC covers them."""
        try:
            data = self._units.read(header.entry_index * UNIT_BYTES, UNIT_BYTES)
        except ReadError:
            return None  # it has nothing to say, which is no fault of the entry
        if len(data) < UNIT_BYTES or not any(data):
            return None
        magic, where, _, index, term = UNIT.unpack(data)
        if (magic, index) != (UNIT_MAGIC, header.entry_index):
            return None
        if self._index < 0 and where != position:
            return f"it says that it is entry {index}, which lies at {where}"
        if where == position and term != header.term:
            return f"term is {header.term}, but {term} in the index"
        return None

    def _record(
        self,
        view: memoryview,
        place: tuple[int, int, int],
        info: FileInfo,
        offset: int,
        *,
        check: bool | None = None,
    ) -> Record:
        """Return the record that fills ``view``; ``place``: position, index, term of its entry."""
        position, index, term = place
        physical = position + self._header_bytes
        size, queue_id, queue_offset, sys_flag, stored, topic, properties = read_fields(
            view, physical, check=self._check if check is None else check
        )
        return Record(
            index, term, position, physical + size, physical, size, queue_id, queue_offset,
            sys_flag, stored, topic, properties, view, info.path, offset,
        )  # fmt: skip

    # What follows something that is no entry

    def _search(self, position: int, start: int, reason: str) -> Damage | None:
        """Return the damage between ``position`` and the next sound entry; None: there is none."""
        for number, info in enumerate(self._log.segments.files):
            end = info.base + info.size
            if end <= start:
                continue
            found = self._find_in(info, max(start, info.base))
            if found is not None:
                path, offset = self._place(position)
                what = reason or "nothing there, but entries behind it"
                self._index = -1 if self._is_dledger else self._index
                return Damage(position, found, path, offset, what)
            if number == len(self._bases) - 1:
                break
        self._set_end(position, reason)
        return None

    def _find_in(self, info: FileInfo, start: int) -> int | None:
        """Return the position of the first sound entry of a file at or behind ``start``."""
        try:
            file = self._files.open(info.path)
            offset = start - info.base
            while (offset := file.data_from(offset)) < file.size:
                chunk = bytes(file.read(offset, SEARCH_BYTES))
                for at in _places(chunk):
                    physical = info.base + offset + at - 4
                    if physical >= start + self._header_bytes and self._is_sound(info, physical):
                        return physical - self._header_bytes
                if len(chunk) < SEARCH_BYTES:
                    break
                offset += len(chunk) - 3
        except ReadError as error:
            self._unread = error.reason
            return None  # what follows in this file is as good as gone
        return None

    def _is_sound(self, info: FileInfo, physical: int) -> bool:
        """Tell whether an entry that goes on from the last one has its record there."""
        index = self._index
        self._index = -1
        try:
            found = self._read(info, physical - self._header_bytes)
        except (_Blank, _NoEntry, CorruptRecord, ReadError):
            return False
        finally:
            self._index = index
        if isinstance(found, int) or found.stored < self._stored:
            return False  # older than what lies before it: left over from a log that was cut
        return found.entry_index >= index or not self._is_dledger

    def _place(self, position: int) -> tuple[str, int]:
        """Return the file and the offset that a position means."""
        info = self._file_at(position)
        if info is not None:
            return info.path, position - info.base
        return self._log.segments.directory, position

    def _set_end(self, position: int, reason: str) -> None:
        path, offset = self._place(position)
        self.end = LogEnd(position, path, offset, reason=reason, unread=self._unread)
        last = position
        for info in self._log.segments.files:
            if info.base + info.size > position:
                try:
                    file = self._files.open(info.path)
                    if file.nonzero_from(max(0, position - info.base)) is not None:
                        last = max(last, info.base + file.nonzero_end())
                except ReadError as error:
                    self.end.unread = error.reason
        self.end.tail_bytes = last - position


def _places(chunk: bytes) -> list[int]:
    """Return where the magic of a record lies in ``chunk``, in order."""
    found = []
    for magic in MAGICS:
        at = chunk.find(magic)
        while at >= 0:
            found.append(at)
            at = chunk.find(magic, at + 1)
    return sorted(found)

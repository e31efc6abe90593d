"""The logs of a master and its slaves, read from the bytes on their disks. Knows no process.

A log is a row of records by position. What a master has had is kept by `Book` as *lines*: one goes
on until the master loses an end of its log, or another broker is made the master; from there on it
is another line. The log of a slave is the beginning of a line, always; of which ones it may be is
kept with it. Source: docs/replication.md; spec/disk.md 5.3, 7.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32, decompress

from chaos.history.payload import decode_body
from sim.oracles.base import Violation
from sim.oracles.records import COMPRESSED, ENTRY_HEADER_BYTES, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.disk import SimDisk

DIRECTORY: Final = "/store/commitlog"
BLANK_MAGIC: Final = 0xCBD43194
MAGICS: Final = frozenset({0xDAA320A7, 0xDAA320AB})
RECORD_BYTES_MIN: Final = 91
CRC_MASK: Final = 0x7FFFFFFF
_head: Final = Struct(">II").unpack_from
_place: Final = Struct(">i4xqq").unpack_from
_length: Final = Struct(">i").unpack_from
_FLAGS_AT: Final = 36

Queue = tuple[str, int]


class Row(NamedTuple):
    """One record of a log."""

    data: bytes
    queue: Queue
    offset: int
    key: int | None
    """Of a message of our clients."""


class Files:
    """The log of one broker as its disk has it.

    Args:
        segment_bytes: size of its files.
    """

    def __init__(self, disk: SimDisk, segment_bytes: int) -> None:
        self.disk = disk
        self._segment_bytes = segment_bytes

    def begin(self) -> int:
        """Return where the first file begins, 0 where there is none."""
        names = [path for path in self.disk.paths() if path.startswith(f"{DIRECTORY}/")]
        return min((int(path.rpartition("/")[2]) for path in names), default=0)

    def is_there(self) -> bool:
        """Tell whether there is any file."""
        return any(path.startswith(f"{DIRECTORY}/") for path in self.disk.paths())

    def read(self, position: int, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield position and bytes of the records up to ``end``; up to what is none without one.

        Errors: `Violation` where there is to be a record and is none.
        """
        size = self._segment_bytes
        while end is None or position < end:
            at = position % size
            held = self.disk.look(f"{DIRECTORY}/{position - at:020d}")
            total, magic = _head(held, at) if at + 8 <= len(held) else (0, 0)
            if magic == BLANK_MAGIC and total == size - at:
                position += total
                continue
            data = bytes(held[at : at + total])
            if not _is_record(data, total, magic, position):
                if end is None:
                    return
                raise Violation("A34 log", f"there is no record at {position}, the end is {end}")
            yield position, data
            position += total

    def is_durable(self, position: int, size_bytes: int) -> bool:
        """Tell whether a record would survive a loss of power now."""
        at = position % self._segment_bytes
        return self.disk.is_durable(f"{DIRECTORY}/{position - at:020d}", at, size_bytes)


def _is_record(data: bytes, total: int, magic: int, position: int) -> bool:
    if magic not in MAGICS or not RECORD_BYTES_MIN <= total == len(data):
        return False
    if _place(data, 12)[2] != position:
        return False
    found = crc32(parts_of(bytes(ENTRY_HEADER_BYTES) + data).body) & CRC_MASK
    return bool(found == _length(data, 8)[0])


def row_of(data: bytes) -> Row:
    """Return what a record says of its place, and whose message it is."""
    parts = parts_of(bytes(ENTRY_HEADER_BYTES) + data)
    queue_id, offset, _ = _place(data, 12)
    body = parts.body
    if parts.sys_flag & COMPRESSED:
        body = decompress(body)
    payload = decode_body(body)
    return Row(data, (_topic(data), queue_id), offset, None if payload is None else payload.msg_key)


def _topic(data: bytes) -> str:
    flags = _length(data, _FLAGS_AT)[0]
    at = 84 + 12 * (bool(flags & 0x10) + bool(flags & 0x20))
    at += 4 + _length(data, at)[0]
    if _head(data)[1] == 0xDAA320A7:
        return data[at + 1 : at + 1 + data[at]].decode("utf-8", "replace")
    size = int.from_bytes(data[at : at + 2], "big")
    return data[at + 2 : at + 2 + size].decode("utf-8", "replace")


class Line:
    """What a master has had, from the beginning to where it went on otherwise, or to now."""

    def __init__(self, number: int, rows: dict[int, Row] | None = None) -> None:
        self.number = number
        self.rows: dict[int, Row] = rows or {}
        self.positions = list(self.rows)
        self.end = max((at + len(row.data) for at, row in self.rows.items()), default=0)
        self.copied = 0
        """Up to where some slave has ever had it as it promises."""
        self.written_ns: dict[int, int] = {}
        self.acknowledged: dict[int, int] = {}
        """When a send was told SEND_OK, by position."""

    def add(self, position: int, data: bytes, now_ns: int) -> None:
        """Take the next record."""
        self.rows[position] = row_of(data)
        self.positions.append(position)
        self.written_ns[position] = now_ns
        self.end = position + len(data)

    def between(self, begin: int, end: int) -> list[int]:
        """Return the positions of the records in a range."""
        return self.positions[bisect_left(self.positions, begin) : bisect_left(self.positions, end)]

    def fork(self, number: int, end: int) -> Line:
        """Return the line that goes on otherwise from ``end`` on."""
        line = Line(number, {at: row for at, row in self.rows.items() if at < end})
        line.copied = min(self.copied, line.end)
        line.acknowledged = {at: ns for at, ns in self.acknowledged.items() if at < end}
        return line


class Copy:
    """The log of one broker, as far as it has been read."""

    def __init__(self, name: str, files: Files) -> None:
        self.name = name
        self.files = files
        self.lines: set[int] = set()
        """Of which lines it may be the beginning; any while it is empty."""
        self.base = self.end = 0
        self.is_damaged = False
        """Whether it may lack what it once promised to have."""
        self.queue_ends: dict[Queue, int] = defaultdict(int)
        """How many messages of each queue it has, those before its beginning counted."""

    def forget(self, base: int) -> None:
        """Begin to read anew."""
        self.base = self.end = base
        self.queue_ends.clear()

    def add(self, position: int, row: Row) -> None:
        """Take the next record."""
        self.end = position + len(row.data)
        self.queue_ends[row.queue] = max(self.queue_ends[row.queue], row.offset + 1)


class Book:
    """The lines of a master's log, and the copies of it. The last line is the one that counts."""

    name = "A34 slave's log"

    def __init__(self, copies: dict[str, Copy]) -> None:
        self.copies = copies
        self.lines = [Line(0)]
        for copy in copies.values():
            copy.lines = {0}

    @property
    def line(self) -> Line:
        """Return the line that goes on now."""
        return self.lines[-1]

    def is_of_line(self, copy: Copy) -> bool:
        """Tell whether a log is the beginning of the line that counts."""
        return self.line.number in copy.lines

    def is_on_line(self, copy: Copy, position: int, data: bytes) -> bool:
        """Tell whether a line of which a log is the beginning has a record there."""
        rows = (self.lines[number].rows.get(position) for number in copy.lines)
        return any(row is not None and row.data == data for row in rows)

    def fork(self, end: int) -> Line:
        """Have the line go on otherwise from ``end`` on; return the one that was left."""
        left = self.line
        line = left.fork(len(self.lines), end)
        self.lines.append(line)
        for copy in self.copies.values():
            if left.number in copy.lines and copy.end <= end:
                copy.lines.add(line.number)
        return left

    def take_up(self, copy: Copy) -> Line:
        """Have the log of a broker that is made the master count; return what was left."""
        left = self.line
        number = max(copy.lines)
        line = self.lines[number].fork(len(self.lines), copy.end)
        self.lines.append(line)
        for other in self.copies.values():
            if number in other.lines and other.end <= copy.end:
                other.lines.add(line.number)
        return left

    def reread(self, copy: Copy, base: int, end: int) -> None:
        """Read the whole log of a slave that has just started. Errors: `Violation`."""
        copy.forget(base)
        copy.lines = {line.number for line in self.lines}
        self.follow(copy, end)

    def follow(self, copy: Copy, end: int) -> None:
        """Read what a slave has taken since. Errors: `Violation`: no master has had it so."""
        for position, data in copy.files.read(copy.end, end):
            rows = [(one, self.lines[one].rows.get(position)) for one in sorted(copy.lines)]
            same = {number: row for number, row in rows if row is not None and row.data == data}
            if not same:
                raise Violation(
                    self.name,
                    f"{copy.name} has a record of {len(data)} bytes at {position} that no master "
                    f"whose log begins like its own has had there",
                    node=copy.name,
                )
            copy.lines = set(same)
            copy.add(position, next(iter(same.values())))
        copy.end = max(copy.end, end)

    def note_copied(self, copy: Copy, end: int) -> None:
        """Note up to where a slave has the line as it promises."""
        for number in copy.lines:
            line = self.lines[number]
            line.copied = max(line.copied, min(end, line.end))

    def is_copied(
        self, position: int, size_bytes: int, *, master: str, is_synced: dict[str, bool]
    ) -> bool:
        """Tell whether a slave has a record, or had, as it promises; see `note_copied`."""
        if position + size_bytes <= self.line.copied:
            return True
        return any(
            copy.name != master
            and self.is_of_line(copy)
            and copy.end >= position + size_bytes
            and (not is_synced[copy.name] or copy.files.is_durable(position, size_bytes))
            for copy in self.copies.values()
        )

"""The key index as it lies on the disk: headers, entries and chains of its files.

A file is a header of 40 bytes, slots of 4, entries of 20. How many slots it has is not written in
it, so it follows from its size and from what the header says of the first and the last entry.
Source: spec/disk.md 5.4; RocketMQ IndexFile, IndexHeader.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from sys import byteorder
from typing import Final

from ledgermq.remoting.protocol.properties import find_property, java_string_hash
from store.offline.files import FileInfo, ReadError, StoreFile, maybe_info, names_in

HEADER: Final = Struct(">qqqqii")
HEADER_BYTES: Final = HEADER.size
SLOT_BYTES: Final = 4
ENTRY: Final = Struct(">iqii")
ENTRY_BYTES: Final = ENTRY.size
SLOTS_DEFAULT: Final = 5_000_000
NAME_DIGITS: Final = 17
"""``yyyyMMddHHmmssSSS``."""
_CHUNK_ENTRIES: Final = 32_768
_INT_MAX: Final = 2**31 - 1

assert (HEADER_BYTES, ENTRY_BYTES) == (40, 20)

Entry = tuple[int, int, int, int]
"""Hash of the key, physical offset, seconds since the file's first message, previous in chain."""


class NoIndexError(Exception):
    """A file that is no index file; the message says why."""


@dataclass(frozen=True, slots=True)
class IndexHead:
    """What a file says of itself, and the sizes that follow."""

    begin_ms: int
    end_ms: int
    begin_physical: int
    end_physical: int
    used_slots: int
    count: int
    """Number that the next entry gets; the first one is 1."""
    slots: int
    """0 in a file without entries, where it is unknown."""
    capacity: int
    """Entries that the file has room for, number 0 included."""

    def slot_at(self, slot: int) -> int:
        """Return the byte at which a slot lies."""
        return HEADER_BYTES + slot * SLOT_BYTES

    def entry_at(self, number: int) -> int:
        """Return the byte at which an entry lies."""
        return HEADER_BYTES + self.slots * SLOT_BYTES + number * ENTRY_BYTES


class IndexReader:
    """One index file, open."""

    def __init__(self, info: FileInfo) -> None:
        """Open it. Errors: `ReadError`, `NoIndexError`."""
        self.info = info
        self._file = StoreFile(info.path)
        try:
            self.head = self._read_head()
        except BaseException:
            self._file.close()
            raise

    def _read_head(self) -> IndexHead:
        data = self._file.read(0, HEADER_BYTES)
        if len(data) < HEADER_BYTES:
            message = f"the file has only {len(data)} bytes"
            raise NoIndexError(message)
        begin_ms, end_ms, begin, end, used, count = HEADER.unpack(data)
        if min(begin_ms, end_ms, begin, end, used, count) < 0:
            message = "a negative number in the header"
            raise NoIndexError(message)
        rest = self.info.size - HEADER_BYTES
        if count <= 1:  # nothing in it that could tell; nobody asks
            return IndexHead(begin_ms, end_ms, begin, end, used, 1, 0, 0)
        likely: IndexHead | None = None
        for slots in self._candidates(rest, begin, end, count):
            capacity = (rest - slots * SLOT_BYTES) // ENTRY_BYTES
            head = IndexHead(begin_ms, end_ms, begin, end, used, count, slots, capacity)
            fitting = self._fitting(head) if slots and count <= capacity else 0
            if fitting == 2:
                return head
            if fitting == 1 and likely is None:
                likely = head
        if likely is not None:
            return likely
        message = f"{self.info.size} bytes and {count} entries do not go together"
        raise NoIndexError(message)

    def _candidates(self, rest: int, begin: int, end: int, count: int) -> Iterator[int]:
        """Yield numbers of slots that a file of this size may have, the likely ones first."""
        if rest >= SLOTS_DEFAULT * SLOT_BYTES and not (rest - SLOTS_DEFAULT * 4) % ENTRY_BYTES:
            yield SLOTS_DEFAULT
        if rest and not rest % 84:
            yield rest // 84  # four entries a slot, as RocketMQ has it by default
        for physical, number in ((end, count - 1), (begin, 1)):
            if physical > 0 and number > 0:
                for place in self._places(physical.to_bytes(8, "big")):
                    slots, odd = divmod(place - 4 - number * ENTRY_BYTES - HEADER_BYTES, SLOT_BYTES)
                    if slots > 0 and not odd and not (rest - slots * 4) % ENTRY_BYTES:
                        yield slots

    def _places(self, pattern: bytes) -> Iterator[int]:
        offset = HEADER_BYTES
        while (offset := self._file.data_from(offset)) < self._file.size:
            chunk = bytes(self._file.read(offset, 1 << 20))
            at = chunk.find(pattern)
            while at >= 0:
                yield offset + at
                at = chunk.find(pattern, at + 1)
            if len(chunk) < 1 << 20:
                return
            offset += len(chunk) - len(pattern) + 1

    def _fitting(self, head: IndexHead) -> int:
        """Return how many of first and last entry are where this many slots put them."""
        first, last = self._entry(head, 1), self._entry(head, head.count - 1)
        if first is None or last is None or not (any(first) and any(last)):
            return 0
        return (first[1] == head.begin_physical) + (last[1] == head.end_physical)

    def _entry(self, head: IndexHead, number: int) -> Entry | None:
        data = self._file.read(head.entry_at(number), ENTRY_BYTES)
        if len(data) < ENTRY_BYTES:
            return None
        key_hash, physical, seconds, previous = ENTRY.unpack(data)
        return key_hash, physical, seconds, previous

    def entries(self) -> Iterator[Entry]:
        """Yield the entries, the first of them number 1. Errors: `ReadError`."""
        number = 1
        while number < self.head.count:
            some = min(_CHUNK_ENTRIES, self.head.count - number)
            data = self._file.read_exact(self.head.entry_at(number), some * ENTRY_BYTES)
            whole = len(data) // ENTRY_BYTES
            if not whole:
                raise ReadError(self.info.path, self.head.entry_at(number), OSError(0, "cut short"))
            yield from ENTRY.iter_unpack(data[: whole * ENTRY_BYTES])
            number += whole

    def slot_table(self) -> "array[int]":
        """Return the slots: number of the newest entry of each chain. Errors: `ReadError`."""
        table = array("i", self._file.read_exact(HEADER_BYTES, self.head.slots * SLOT_BYTES))
        if byteorder == "little":
            table.byteswap()
        return table

    def close(self) -> None:
        """Close it."""
        self._file.close()


def index_files(directory: str) -> tuple[list[FileInfo], list[str]]:
    """Return the index files of a store, oldest first, and the other names in their directory."""
    files: list[FileInfo] = []
    strangers: list[str] = []
    for name in names_in(directory):
        is_named = len(name) == NAME_DIGITS and name.isascii() and name.isdigit()
        info = maybe_info(f"{directory}/{name}", int(name)) if is_named else None
        if info is None:
            strangers.append(name)
        else:
            files.append(info)
    return files, strangers


def key_hash(topic: str, key: str) -> int:
    """Return the hash under which a key of a topic is found; Java's, made positive."""
    value = abs(java_string_hash(f"{topic}#{key}"))
    return value if value <= _INT_MAX else 0


def keys_of(properties: bytes) -> list[str]:
    """Return the keys under which a message is found: its unique one, then those in KEYS."""
    unique = find_property(properties, b"UNIQ_KEY")
    keys = find_property(properties, b"KEYS")
    found = [] if unique is None else [unique.decode("utf-8", "replace")]
    if keys is not None:
        found += [key for key in keys.decode("utf-8", "replace").split(" ") if key]
    return found


def seconds_since(begin_ms: int, stored_ms: int) -> int:
    """Return the time that an entry states."""
    if begin_ms <= 0:
        return 0
    return max(0, min((stored_ms - begin_ms) // 1000, _INT_MAX))

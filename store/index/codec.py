"""Byte layout of RocketMQ's IndexFile, and the hash of a key. Pure.

One file, big-endian; with the default numbers 420,000,040 bytes, all but what is used a hole::

    0  beginTimestamp i64    8 endTimestamp i64    of the first and last message, ms
    16 beginPhyOffset i64   24 endPhyOffset i64    of the same two
    32 hashSlotCount  i32   36 indexCount   i32    slots in use; number of the next entry, from 1
    40 slots: S x i32        number of the newest entry of the chain, 0 for none
    40 + 4 S + 20 i  entry i (0 is never used), E of them:
       0 keyHash i32   4 physical offset i64   12 seconds since beginTimestamp i32   16 previous i32

An entry's chain goes to the entry before it in the same slot, so to a smaller number. A key is
``topic#key``, its slot ``hash mod S``. Nothing tells apart two keys with the same hash: who reads
a message looks at its text. Source: spec/disk.md 5.4; RocketMQ IndexFile, IndexHeader.
"""

import struct
from typing import Final, NamedTuple

from ledgermq.remoting.protocol.properties import java_string_hash, units_hash

HEADER_BYTES: Final = 40
SLOT_BYTES: Final = 4
ENTRY_BYTES: Final = 20
ENTRY: Final = struct.Struct(">iqii")
FIRST_ENTRY: Final = 1
SECONDS_MAX: Final = 0x7FFFFFFF

_HEADER: Final = struct.Struct(">qqqqii")
_MASK: Final = 0xFFFFFFFF


class Layout(NamedTuple):
    """How many slots and entries a file has."""

    slots: int
    entries: int

    @property
    def file_bytes(self) -> int:
        """Size of a file."""
        return self.entry_at(self.entries)

    def slot_at(self, slot: int) -> int:
        """Return where a slot lies."""
        return HEADER_BYTES + SLOT_BYTES * slot

    def entry_at(self, number: int) -> int:
        """Return where an entry lies."""
        return HEADER_BYTES + SLOT_BYTES * self.slots + ENTRY_BYTES * number


class Header(NamedTuple):
    """The first 40 bytes of a file; times are ms."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical: int = 0
    end_physical: int = 0
    used_slots: int = 0
    next_number: int = 0
    """Number of the next entry."""


def encode_header(header: Header) -> bytes:
    """Return the bytes of a header."""
    return _HEADER.pack(*header)


def decode_header(data: bytes) -> Header | None:
    """Return a header, None if it is cut short. Its values are as they are."""
    return Header(*_HEADER.unpack_from(data)) if len(data) >= HEADER_BYTES else None


def text_hash(text: bytes, start: int = 0) -> int:
    """Return Java's String.hashCode of UTF-8 ``text`` in 0..2^32-1, going on from ``start``."""
    if not text.isascii():
        units = text.decode("utf-8", "replace")
        width = len(units.encode("utf-16-be", "surrogatepass")) // 2
        value: int = (start * pow(31, width, 1 << 32) + java_string_hash(units)) & _MASK
        return value
    return units_hash(text, start)


def folded(value: int) -> int:
    """Return the key hash of a hash in 0..2^32-1: Java's abs, and 0 for its smallest number."""
    return value if value < 0x80000000 else (0x100000000 - value) & 0x7FFFFFFF


def key_hash(topic: bytes, key: bytes) -> int:
    """Return the hash of a key as an entry has it."""
    return folded(text_hash(b"%b#%b" % (topic, key)))

"""``index.checkpoint``: what the index files hold for sure, and up to where in the log.

Ours; it lies beside ``index/``, in which RocketMQ takes every file for one of its own. One line
with the CRC32 of the rest, then JSON. Written after the entries it counts were synced.
Source: spec/disk.md 5.4, 5.5; the way of `store.recovery.checkpoint`.
"""

import zlib
from typing import Final

import msgspec

from dledger.mark import LogMark
from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED

INDEX_FILE: Final = "index.checkpoint"


class FileMark(msgspec.Struct, frozen=True, array_like=True):
    """What one file holds, as its header would say it now."""

    name: str
    begin_timestamp: int
    end_timestamp: int
    begin_physical: int
    end_physical: int
    used_slots: int
    count: int
    """Entries below this number are synced."""
    slots_count: int
    """Slots in the file are those of the entries below this number, or newer; 0: no slot counts."""
    entry_crcs: bytes = b""
    """Of its blocks of entries (`store.index.crcs`); none of a file that RocketMQ has written."""
    slot_crcs: bytes = b""
    """Of the slots, as they were last written; none where only some pages of them were."""


class IndexMark(msgspec.Struct, frozen=True):
    """Everything that the index says of the log up to ``log``."""

    slots: int
    entries: int
    log: LogMark | None
    """None: complete only up to the last message of the last file."""
    files: tuple[FileMark, ...]
    """Oldest first."""


def encode_mark(mark: IndexMark) -> bytes:
    """Return the content of ``index.checkpoint``."""
    payload = msgspec.json.encode(mark)
    return b"%08x\n%b\n" % (zlib.crc32(payload), payload)


def maybe_decode_mark(data: bytes) -> IndexMark | None:
    """Return the mark, None if these bytes are none that was written whole."""
    crc_text, _, rest = data.partition(b"\n")
    payload = rest.removesuffix(b"\n")
    if crc_text != b"%08x" % zlib.crc32(payload):
        return None
    try:
        return msgspec.json.decode(payload, type=IndexMark)
    except NOT_DECODED:
        return None

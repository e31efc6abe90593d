"""Bytes of the event files ``raft_event/*``: what a replica did, kept for whoever investigates.

A file has a fixed size. It starts with a header:

| offset | size | field | note |
|---|---|---|---|
| 0 | 4 | magic | ``LMQE`` |
| 4 | 4 | version | uint32, 1 |
| 8 | 8 | generation | uint64: rises each time this or its twin is begun anew |

Blocks follow, one a write, until one does not fit the rules: then whatever follows is older.

| offset | size | field | note |
|---|---|---|---|
| 0 | 4 | CRC | CRC-32 of everything behind it |
| 4 | 4 | length | uint32, of the records |
| 8 | 4 | generation | uint32, that of the file |
| 12 | 4 | boot | uint32, never lower than that of the block before |
| 16 | n | records | |

| offset | size | field | note |
|---|---|---|---|
| 0 | 2 | size | uint16, of the record |
| 2 | 1 | kind | see `KIND_CODES` |
| 3 | 1 | peer size | uint8 |
| 4 | 8 | seq | int64, dense over all files and boots of a directory |
| 12 | 8 | time | int64, monotonic nanoseconds of the node |
| 20 | 8 | term | int64 |
| 28 | 8 | index | int64 |
| 36 | 8 | prev_index | int64 |
| 44 | 4 | hash | uint32 |
| 48 | p | peer | text |
| 48+p | rest | extra | text |

All big-endian. The first block of a file has a ``boot`` record, and so has the first of a process.
"""

import struct
from typing import Final
from zlib import crc32

MAGIC: Final = b"LMQE"
VERSION: Final = 1
FILE_HEAD: Final = struct.Struct(">4sIQ")
BLOCK_HEAD: Final = struct.Struct(">IIII")
_BLOCK_REST: Final = struct.Struct(">III")
RECORD: Final = struct.Struct(">HBBqqqqqI")
EXTRA_BYTES_MAX: Final = 1024
"""What is longer is cut: an event is a note, not a document."""

KIND_CODES: Final[dict[str, int]] = {
    "boot": 1,
    "become_follower": 2,
    "become_pre_candidate": 3,
    "become_candidate": 4,
    "become_leader": 5,
    "vote_granted": 6,
    "vote_refused": 7,
    "append": 8,
    "truncate": 9,
    "commit": 10,
    "snapshot": 11,
    "config": 12,
    "transfer": 13,
    "probe": 14,
    "lost_quorum": 15,
    "rival": 16,
    "abort": 17,
    "other": 18,
}
"""What the column ``kind`` of a history says, and its code here; codes never change meaning."""


def encode_file_head(generation: int) -> bytes:
    """Return the header of a file."""
    return FILE_HEAD.pack(MAGIC, VERSION, generation)


def decode_file_head(data: bytes) -> int | None:
    """Return the generation of a file; None where there is no header that we can read."""
    if len(data) < FILE_HEAD.size:
        return None
    magic, version, generation = FILE_HEAD.unpack_from(data)
    return generation if (magic, version) == (MAGIC, VERSION) else None


def encode_block(generation: int, boot: int, records: bytes | bytearray) -> bytes:
    """Return one block."""
    rest = _BLOCK_REST.pack(len(records), generation & 0xFFFFFFFF, boot & 0xFFFFFFFF) + records
    return crc32(rest).to_bytes(4, "big") + rest


def find_end(data: memoryview, generation: int) -> tuple[int, int, int]:
    """Return where the blocks of a file end, the highest boot in it, and the last seq (0: none)."""
    at, boot, seq = FILE_HEAD.size, 0, 0
    while at + BLOCK_HEAD.size <= len(data):
        crc, length, block_generation, block_boot = BLOCK_HEAD.unpack_from(data, at)
        end = at + BLOCK_HEAD.size + length
        fits = end <= len(data) and block_generation == generation & 0xFFFFFFFF
        if not fits or length == 0 or block_boot < boot or crc32(data[at + 4 : end]) != crc:
            break
        seq = max(seq, _last_seq(data[at + BLOCK_HEAD.size : end]))
        at, boot = end, block_boot
    return at, boot, seq


def _last_seq(records: memoryview) -> int:
    at, seq = 0, 0
    while at + RECORD.size <= len(records):
        fields = RECORD.unpack_from(records, at)
        seq = max(seq, fields[3])
        at += max(fields[0], RECORD.size)
    return seq

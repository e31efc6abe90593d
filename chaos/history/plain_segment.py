"""Decoder of the files of RocketMQ's plain commit log: bytes to rows, for masters and slaves.

Records lie side by side, each beginning with its size and a magic number (`chaos.history.segment`
has the fields); a file ends with a blank record: its size, which is what is left of the file, and
BLANK_MAGIC. What lies behind those eight bytes means nothing. Unwritten bytes are zero.

An entry is named by the position of its last byte, as brokers name what they have committed; the
numbers between two names are the bytes of an entry, so a log without gaps covers all of them. This
module shares nothing with the code under test, nor with the Spark job. It knows no files.

Source: spec/wire.md 4.1; spec/disk.md 7.2.
"""

import struct
from collections.abc import Iterator
from typing import Final
from zlib import crc32

from chaos.history.payload import Buffer
from chaos.history.segment import (
    RECORD_BYTES_MIN,
    RECORD_MAGIC_V1,
    RECORD_MAGIC_V2,
    EntryRow,
    Names,
    decode_record,
)

HEAD: Final = struct.Struct(">iI")
BLANK_MAGIC: Final = 0xCBD43194
MAGICS: Final = frozenset({RECORD_MAGIC_V1, RECORD_MAGIC_V2})
TERM: Final = 1
"""Of every entry: nobody is elected."""


def decode_plain(buffer: Buffer, start: int, end_index: int | None = None) -> Iterator[EntryRow]:
    """Yield one row per record of a file that begins at position ``start``.

    ``end_index``: the last byte of the log if known: what follows is left over. The blank at the
    end is a ``noop``. Stops at unwritten zeros, at the end, or with one ``unreadable`` row. Errors:
    none, whatever the bytes.
    """
    view = memoryview(buffer)
    names = Names()
    at = 0
    while at + HEAD.size <= len(view):
        if end_index is not None and start + at > end_index:
            return
        size, magic = HEAD.unpack_from(view, at)
        if not size and not magic:
            return
        if magic == BLANK_MAGIC and size >= HEAD.size:
            crc = crc32(view[at : at + HEAD.size])
            yield EntryRow(
                start + at + size - 1, TERM, start + at, crc, size, crc_ok=True, type="noop"
            )
            return
        if magic not in MAGICS or not RECORD_BYTES_MIN <= size <= len(view) - at:
            yield EntryRow(-1, -1, start + at, 0, len(view) - at, crc_ok=False, type="unreadable")
            return
        body = view[at : at + size]
        record = decode_record(body, start + at, names)
        index = start + at + size - 1
        yield EntryRow(index, TERM, start + at, crc32(body), size, *record)
        at += size

"""The entry: a 48-byte header and a body, at its position in the log. DLedger's bytes.

| offset | size | field | note |
|---|---|---|---|
| 0 | 4 | magic | int32: 1 an entry, -1 the end record of a segment |
| 4 | 4 | size | int32: 48 + body |
| 8 | 8 | index | int64: 0, 1, 2... |
| 16 | 8 | term | int64 |
| 24 | 8 | position | int64: of this header in the log |
| 32 | 4 | channel | int32: 0; 1 marks a configuration of the group |
| 36 | 4 | chain CRC | uint32: 0; of a configuration `mark_crc` |
| 40 | 4 | body CRC | int32: CRC-32 of the body; 0 is "not computed" (what DLedger 0.3 writes) |
| 44 | 4 | body length | int32 |
| 48 | n | body | |

Channel and chain CRC, of which DLedger makes no use, say the same twice: a configuration has both,
an ordinary entry neither, and whatever else is corruption. So no bit of the two goes unseen.

An entry never crosses a segment, and eight bytes always stay for the *end record*: magic -1 and an
int32 with the bytes that remain, itself included; the next entry opens the next segment.

All big-endian. Source: DLedgerEntryCoder, MmapFileList (spec/disk.md 6.1).
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from dledger.codec.index import UNIT, UNIT_MAGIC
from dledger.core.model import LogIndex, Span, Term
from dledger.errors import CorruptEntry

HEADER: Final = struct.Struct(">iiqqqiIII")
"""Lengths and CRCs unsigned: a negative length is then simply too large."""
HEADER_BYTES: Final = 48
PLACE: Final = struct.Struct(">iiqqq")
"""How a header begins: magic, size, index, term, position."""
_MARKED: Final = struct.Struct(">iiqqqi")
"""The same and the channel."""
ENTRY_MAGIC: Final = 1
CHANNEL_CONFIGURATION: Final = 1
END_MAGIC: Final = -1
END_RECORD: Final = struct.Struct(">ii")
END_RECORD_BYTES: Final = 8

assert HEADER.size == HEADER_BYTES

_unpack_header: Final = HEADER.unpack_from
_pack_unit: Final = UNIT.pack


class EntryHeader(NamedTuple):
    """A decoded header."""

    magic: int
    size: int
    entry_index: LogIndex
    term: Term
    position: int
    channel: int
    chain_crc: int
    body_crc: int
    body_bytes: int


def mark_crc(size: int, index: LogIndex, term: Term, position: int) -> int:
    """Return what the field "chain CRC" of a configuration holds: a CRC of the header, never 0.

    It is of the 36 bytes before the field, and 1 where that is 0.
    """
    marked = (ENTRY_MAGIC, size, index, term, position, CHANNEL_CONFIGURATION)
    return crc32(_MARKED.pack(*marked)) or 1


def is_configuration(header: tuple[int, ...]) -> bool:
    """Tell whether a header, as `HEADER` unpacks it, says so twice; see `mark_crc`."""
    _, size, index, term, position, channel, chain_crc, _, _ = header
    return channel == CHANNEL_CONFIGURATION and chain_crc == mark_crc(size, index, term, position)


def encode_entry(index: LogIndex, term: Term, position: int, body: bytes) -> bytes:
    """Return header and body of one entry."""
    size = HEADER_BYTES + len(body)
    header = HEADER.pack(ENTRY_MAGIC, size, index, term, position, 0, 0, crc32(body), len(body))
    return header + body


def encode_span(first_index: LogIndex, term: Term, position: int, bodies: Sequence[bytes]) -> Span:
    """Return the span of entries with these bodies, the first at ``position``."""
    parts: list[bytes] = []
    units: list[bytes] = []
    here = position
    for index, body in enumerate(bodies, first_index):
        size = HEADER_BYTES + len(body)
        parts.append(encode_entry(index, term, here, body))
        units.append(_pack_unit(UNIT_MAGIC, here, size, index, term))
        here += size
    last_index = first_index + len(bodies) - 1
    return Span(first_index, last_index, term, position, b"".join(parts), b"".join(units))


def index_units(
    data: bytes | memoryview,
    first_index: LogIndex,
    last_index: LogIndex,
    term: Term,
    configurations: list[LogIndex] | None = None,
) -> bytes:
    """Walk the headers of a span; return the index units of its entries.

    Bodies are not looked at: whoever sent the span vouches for them with a CRC over all of it.
    The indexes of entries that are configurations are added to ``configurations``.
    Errors: `CorruptEntry` unless the data is exactly these entries, of this term, side by side.
    """
    units: list[bytes] = []
    offset, end = 0, len(data)
    if end < HEADER_BYTES:
        raise CorruptEntry(f"{end} bytes are no entry")
    position = int.from_bytes(data[24:32], "big")
    index = first_index
    while end - offset >= HEADER_BYTES:
        magic, size, found, found_term, where, channel, chain_crc, _, body_bytes = _unpack_header(
            data, offset
        )
        if (
            found != index
            or found_term != term
            or where != position + offset
            or size != body_bytes + HEADER_BYTES
            or magic != ENTRY_MAGIC
            or channel
            or chain_crc
        ):
            expected = (index, term, position + offset, body_bytes + HEADER_BYTES, ENTRY_MAGIC)
            is_marked = is_configuration(_unpack_header(data, offset))
            if not is_marked or (found, found_term, where, size, magic) != expected:
                raise CorruptEntry(f"entry {index} at byte {offset} of a span has a bad header")
            if configurations is not None:
                configurations.append(index)
        units.append(_pack_unit(ENTRY_MAGIC, where, size, index, term))
        offset += size
        index += 1
    if offset != end or index != last_index + 1:
        raise CorruptEntry(f"a span of {first_index}..{last_index} ends at {index - 1}")
    return b"".join(units)


def count_sound(span: Span, is_sound_body: Callable[[memoryview], bool] | None = None) -> int:
    """Return how many entries from the first on are whole: as their units say, CRC and all.

    Args:
        span: what a disk gave back, or a peer sent.
        is_sound_body: asked about bodies whose header has no CRC; None takes them as they are.
    """
    data = memoryview(span.data)
    for number, unit in enumerate(UNIT.iter_unpack(span.units)):
        _, position, size, index, term = unit
        start = position - span.position
        if not 0 <= start <= len(data) - max(size, HEADER_BYTES):
            return number
        header = _unpack_header(data, start)
        magic, found_size, found, found_term, where, channel, chain_crc, body_crc, body_bytes = (
            header
        )
        if (
            (found_size, found, found_term, where) != (size, index, term, position)
            or index != span.first_index + number
            or magic != ENTRY_MAGIC
            or body_bytes != size - HEADER_BYTES
            or ((channel or chain_crc) and not is_configuration(header))
        ):
            return number
        body = data[start + HEADER_BYTES : start + size]
        if body_crc != crc32(body) and (body_crc or (is_sound_body and not is_sound_body(body))):
            return number
    return span.last_index - span.first_index + 1


def sound_size(data: memoryview, offset: int, index: LogIndex, position: int) -> int:
    """Return the size of entry ``index`` at ``offset``, 0 unless it is there, whole.

    Its term is not looked at. A body whose header has no CRC is not sound here; `CorruptionGuard`
    can tell more.
    """
    if offset + HEADER_BYTES > len(data):
        return 0
    header = _unpack_header(data, offset)
    magic, size, found, _, where, channel, chain_crc, body_crc, body_bytes = header
    if (
        found != index
        or where != position
        or magic != ENTRY_MAGIC
        or body_bytes != size - HEADER_BYTES
        or ((channel or chain_crc) and not is_configuration(header))
    ):
        return 0
    end = offset + size
    if end > len(data) or crc32(data[offset + HEADER_BYTES : end]) != body_crc:
        return 0
    return int(size)


def header_problem(header: EntryHeader, index: LogIndex, position: int, room: int) -> str | None:
    """Say what is wrong with a header found where entry ``index`` should be, None if nothing is.

    ``room`` is how many bytes the segment has left for the entry, its end record not counted.
    """
    if header.magic != ENTRY_MAGIC:
        return f"magic is {header.magic}"
    if header.size != HEADER_BYTES + header.body_bytes or header.size > room:
        return f"size is {header.size} with a body of {header.body_bytes}"
    if header.entry_index != index or header.position != position:
        return f"index is {header.entry_index}, position {header.position}"
    if (header.channel or header.chain_crc) and not is_configuration(header):
        return f"channel is {header.channel}, chain CRC {header.chain_crc}"
    return None


def decode_header(data: bytes | memoryview, offset: int = 0) -> EntryHeader:
    """Return the header at ``offset``; it may be anything."""
    return EntryHeader._make(_unpack_header(data, offset))


def body_matches(body_crc: int, body: bytes | memoryview) -> bool:
    """Tell whether a body is what its header says; a CRC of 0 says nothing."""
    return body_crc in (0, crc32(body))


def is_end_record(view: memoryview, offset: int) -> bool:
    """Tell whether the end record of a segment lies at ``offset`` of it."""
    rest = len(view) - offset
    if rest < END_RECORD_BYTES:
        return False
    magic, remaining = END_RECORD.unpack_from(view, offset)
    return bool(magic == END_MAGIC and remaining == rest)

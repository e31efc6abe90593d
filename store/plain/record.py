"""What stands at a place in a segment: a sound record, the blank at the end, nothing, or damage.

Pure but for the CRC of zlib. A record is sound when magic, lengths, the physical offset that it
states and the CRC of its body agree; a CRC of 0 says nothing, since there are brokers that compute
none. The blank that ends a segment is 8 bytes, whatever lies behind them::

    0 bytes to the end of the segment i32      4 magic 0xCBD43194

Source: spec/wire.md 4.1; spec/disk.md 5.2; RocketMQ CommitLog.checkMessageAndReturnSize, which does
not look at the physical offset.
"""

from struct import Struct
from struct import error as StructError  # noqa: N812  # a class, named by struct as a function
from typing import Final
from zlib import crc32

from dledger.segments.walk import NEXT_FILE, NOTHING_WRITTEN
from ledgermq.remoting.protocol.message import (
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_BYTES_MAX,
    RECORD_HEADS,
)

BLANK: Final = Struct(">iI")
BLANK_BYTES: Final = BLANK.size
"""At least so much of a segment is behind its last record."""
HEAD_BYTES_MAX: Final = max(layout.size for layout in RECORD_HEADS)
MAGIC_START: Final = MAGIC_V1.to_bytes(4, "big")[:3]
"""What all magics of records begin with."""
assert MAGIC_V2.to_bytes(4, "big").startswith(MAGIC_START)

SECTOR_BYTES: Final = 512
"""What a disk writes whole or not at all."""
IS_BLANK: Final = NEXT_FILE
IS_EMPTY: Final = NOTHING_WRITTEN
BAD_MAGIC: Final = -2
BAD_LENGTHS: Final = -3
BAD_OFFSET: Final = -4
BAD_CRC: Final = -5
TORN: Final = -6
PROBLEMS: Final = {
    IS_EMPTY: "nothing was written",
    BAD_MAGIC: "no magic of a message",
    BAD_LENGTHS: "lengths do not add up",
    BAD_OFFSET: "the message states another physical offset",
    BAD_CRC: "the body does not have its CRC",
    TORN: "a part behind the body was never written",
}

_FLAGS_V6: Final = FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6
_HEAD: Final = Struct(">iIi16xqi44xi")
_unpack_all: Final = Struct(">iIii4xqqi44xi").unpack_from
"""Size, magic, CRC, queue id, queue offset, place, sysFlag, bytes of the body."""
assert _HEAD.size == RECORD_HEADS[0].size
_HEAD_BYTES: Final = _HEAD.size
_unpack: Final = _HEAD.unpack_from
_unpack_begin: Final = Struct(">iIi").unpack_from
_unpack_stored: Final = Struct(">Q").unpack_from


def inspect(view: memoryview, at: int, position: int) -> int:
    """Return the size of the sound record at ``at``, or `IS_BLANK`, or one of `PROBLEMS`.

    One that is all there but for the host bits of its sysFlag counts as sound here (`misread`): it
    is what was written, and what lies behind it must not be lost. Whoever reads it finds that it is
    no message. ``view`` is a whole segment, ``position`` where in the log ``at`` is. Errors: none.
    """
    size = _inspect(view, at, position)
    if size in (BAD_LENGTHS, BAD_CRC) and view[at + 39] & _FLAGS_V6:
        return _true_layout(view, at)[0] or size
    return size


def measure(view: memoryview, at: int, end: int, position: int, limit: int) -> list[int]:
    """Return the sizes of the sound records that lie side by side from ``at`` on, before ``end``.

    At most ``limit``. Of the usual kind alone: the first that is another, or no sound one, or not
    whole before ``end``, is for `inspect` to judge. Errors: none.
    """
    sizes: list[int] = []
    end = min(end, len(view))
    add, shift, last_head = sizes.append, position - at, end - _HEAD_BYTES
    while at <= last_head and limit > 0:
        size, magic, crc, queue_id, offset, stated, flags, body_bytes = _unpack_all(view, at)
        body_at, stop = at + _HEAD_BYTES, at + size
        topic_at = body_at + body_bytes
        if (
            magic != MAGIC_V1
            or stated != at + shift
            or flags & _FLAGS_V6
            or body_bytes < 0
            or not topic_at + 3 <= stop <= end
            or queue_id < 0
            or offset < 0
        ):
            break
        properties_at = topic_at + view[topic_at] + 3
        properties_bytes = stop - properties_at
        if (
            not 0 <= properties_bytes <= PROPERTIES_BYTES_MAX
            or properties_bytes != view[properties_at - 2] << 8 | view[properties_at - 1]
            or (crc and crc != crc32(view[body_at:topic_at]) & 0x7FFFFFFF)
        ):
            break
        add(size)
        at = stop
        limit -= 1
    return sizes


def misread(view: memoryview, at: int) -> bool:
    """Tell whether the sound record at ``at`` has hosts of another width than its sysFlag says."""
    flags = view[at + 39] & _FLAGS_V6
    return bool(flags) and _fit(view, at, flags >> 4) == 0


def _true_layout(view: memoryview, at: int) -> tuple[int, int]:
    """Return the size of a record that other widths of its hosts explain, with these; else 0.

    All of it must be there, and a CRC that says so: a torn or corrupt record is none of these.
    """
    stated = view[at + 39] >> 4 & 3
    has_crc = any(view[at + 8 : at + 12])
    for widths in range(len(RECORD_HEADS)):
        size = _fit(view, at, widths) if has_crc and widths != stated else 0
        if size:
            return size, widths
    return 0, stated


def _fit(view: memoryview, at: int, widths: int) -> int:
    """Return the size of the record at ``at`` if hosts of these widths explain all of it, or 0."""
    size, magic, crc = _unpack_begin(view, at)
    body_at = at + RECORD_HEADS[widths].size
    topic_bytes = 1 if magic == MAGIC_V1 else 2
    end = at + size
    if not body_at + topic_bytes + 2 <= end <= len(view):
        return 0
    topic_at = body_at + int.from_bytes(view[body_at - 4 : body_at], "big", signed=True)
    if not body_at <= topic_at <= end - topic_bytes - 2:
        return 0
    name_at = topic_at + topic_bytes
    properties_at = name_at + int.from_bytes(view[topic_at:name_at], "big") + 2
    stated = int.from_bytes(view[properties_at - 2 : properties_at], "big")
    if stated > PROPERTIES_BYTES_MAX or properties_at + stated != end:
        return 0
    return size if crc in (0, crc32(view[body_at:topic_at]) & 0x7FFFFFFF) else 0


def _inspect(view: memoryview, at: int, position: int) -> int:
    """Judge a record by its sysFlag."""
    try:
        size, magic, crc, stated, flags, body_bytes = _unpack(view, at)
    except StructError:
        return _inspect_end(view, at)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return _inspect_other(size, magic)
    if stated != position:
        return BAD_OFFSET
    body_at = at + _HEAD_BYTES
    if flags & _FLAGS_V6:
        body_at, body_bytes = _body_place_v6(view, at, flags)
    end = at + size
    topic_at = body_at + body_bytes
    if body_bytes < 0 or not topic_at + 3 <= end <= len(view):
        return BAD_LENGTHS
    if magic == MAGIC_V1:
        properties_at = topic_at + view[topic_at] + 3
    else:
        properties_at = topic_at + (view[topic_at] << 8 | view[topic_at + 1]) + 4
    properties_bytes = end - properties_at
    if (
        not 0 <= properties_bytes <= PROPERTIES_BYTES_MAX
        or properties_bytes != view[properties_at - 2] << 8 | view[properties_at - 1]
    ):
        return BAD_LENGTHS
    if crc and crc != crc32(view[body_at:topic_at]) & 0x7FFFFFFF:
        return BAD_CRC
    return int(size)


def stored_ms(view: memoryview, at: int) -> int:
    """Return the store timestamp (ms) of the sound record at ``at``."""
    flags = view[at + 39] & _FLAGS_V6
    if flags:
        if misread(view, at):
            flags = _true_layout(view, at)[1] << 4
        at += 12 if flags & FLAG_BORN_HOST_V6 else 0
    stored: int = _unpack_stored(view, at + 56)[0]
    return stored


def is_torn(view: memoryview, at: int, size: int) -> bool:
    """Tell whether the sound record at ``at`` of ``size`` bytes was not written to its end.

    What lies behind the body has no CRC. Where it was never written it is zero:

    - In a sector that a loss of power took. A sector in which anything is was written, and with it
      what is zero there: what comes behind it in the log is written later.
    - Behind the place at which a write was broken off, if nothing was written behind the record.
      Then a text that ends with a zero looks the same. Our own door takes none; RocketMQ's does,
      and its masters send it: where something lies behind, the zero is the text's own.
    """
    end = at + size
    _, magic, _, _, flags, body_bytes = _unpack(view, at)
    body_at = at + _HEAD_BYTES
    if flags & _FLAGS_V6:
        if misread(view, at):
            return False
        body_at, body_bytes = _body_place_v6(view, at, flags)
    topic_at = body_at + body_bytes
    if magic == MAGIC_V1:
        name_at = topic_at + 1
        topic_end = name_at + view[topic_at]
    else:
        name_at = topic_at + 2
        topic_end = name_at + (view[topic_at] << 8 | view[topic_at + 1])
    has_properties = end > topic_end + 2
    ends_zero = (topic_end > name_at and not view[topic_end - 1]) or (
        has_properties and not view[end - 1]
    )
    if ends_zero and not any(view[end : end + SECTOR_BYTES]):
        return True
    sector = topic_at + -topic_at % SECTOR_BYTES
    while sector < end and (has_properties or sector < topic_end):
        if not any(view[sector : sector + SECTOR_BYTES]):
            return True
        sector += SECTOR_BYTES
    return False


def is_blank(view: memoryview, at: int) -> bool:
    """Tell whether the blank that ends a segment is at ``at``, or no room for one is left."""
    if at + BLANK_BYTES > len(view):
        return True
    return bool(BLANK.unpack_from(view, at)[1] == MAGIC_BLANK)


def blank(remaining_bytes: int) -> bytes:
    """Return the blank to write where so many bytes of a segment are left."""
    return BLANK.pack(remaining_bytes, MAGIC_BLANK)


def _body_place_v6(view: memoryview, at: int, flags: int) -> tuple[int, int]:
    """Return where the body begins when a host is an IPv6 one, and its length; -1 for no room."""
    body_at = at + RECORD_HEADS[flags >> 4 & 3].size
    if body_at > len(view):
        return body_at, -1
    return body_at, int.from_bytes(view[body_at - 4 : body_at], "big", signed=True)


def _inspect_end(view: memoryview, at: int) -> int:
    """Say what is in the last bytes of a segment, which cannot hold a record."""
    if at + BLANK_BYTES > len(view):
        return IS_BLANK
    return _inspect_other(*BLANK.unpack_from(view, at))


def _inspect_other(size: int, magic: int) -> int:
    if magic == MAGIC_BLANK:
        return IS_BLANK
    return BAD_MAGIC if size or magic else IS_EMPTY

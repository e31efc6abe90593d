"""Which scheduled message a delivered one stands for: its own record says so.

A delayed message waits in the schedule topic; when it is due, a copy is put into the topic that it
was sent to. That copy is at the same time the record of its delivery: who applies the log learns
from it how far a level is delivered, and there is no moment at which only one of the two is true.

It is said in the field for the offset of half a transaction, which RocketMQ leaves 0 in a message
that is part of none; consumers look at it only in one that is. Big-endian::

    0 mark u16 (0x4C51)    2 queue of the schedule topic u8    3 queue offset there u40

Pure. Source: spec/wire.md 4.1; docs/delays.md.
"""

from __future__ import annotations

from typing import Final

from ledgermq.remoting.protocol.message import RECORD_HEADS, TRANSACTION_MASK

DELIVERED: Final = "delivered"
"""The kind of state that such a copy stands for."""
MARK_BYTE: Final = 0x4C
PREPARED_AT: Final = 76
"""Where the field lies in a record with IPv4 hosts."""
QUEUES_MAX: Final = 256

_MARK: Final = 0x4C51
_QUEUE_AT: Final = 40
_OFFSET_MASK: Final = (1 << _QUEUE_AT) - 1
_PREPARED: Final = 13
_SYS_FLAG: Final = 7


def origin_of(queue_id: int, offset: int) -> int:
    """Return the value of the field for the copy of a scheduled message."""
    assert 0 <= queue_id < QUEUES_MAX, queue_id
    assert 0 <= offset <= _OFFSET_MASK, offset
    return _MARK << 48 | queue_id << _QUEUE_AT | offset


def maybe_delivered(prepared_offset: int, sys_flag: int) -> bytes | None:
    """Return the payload of the state that a message stands for, None if it is no copy."""
    if prepared_offset >> 48 != _MARK or sys_flag & TRANSACTION_MASK:
        return None
    queue_id = prepared_offset >> _QUEUE_AT & 0xFF
    return delivered(queue_id, prepared_offset & _OFFSET_MASK)


def maybe_delivered_by(record: bytes | memoryview, start: int) -> bytes | None:
    """As `maybe_delivered`, of the whole record that begins at ``start``."""
    fields = RECORD_HEADS[record[start + 39] >> 4 & 3].unpack_from(record, start)
    return maybe_delivered(fields[_PREPARED], fields[_SYS_FLAG])


def delivered(queue_id: int, offset: int) -> bytes:
    """Return the payload of a state record: a level is delivered up to this offset, and with it."""
    return b"[%d,%d]" % (queue_id, offset)

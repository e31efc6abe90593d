"""Which message another one stands for, and so what state a message is: its own record says so.

A delayed message waits in the schedule topic; when it is due, a copy is put into the topic that it
was sent to. Half a transaction waits in the half topic; when it is committed, a copy goes into its
topic, and when nobody knows its end, one is parked. Such a copy is at the same time the record of
what became of its original: who applies the log learns it from the copy, and there is no moment at
which only one of the two is true. Halves and op messages stand for state as they lie in their
queues: a half opens a row, an op message closes it.

A committed copy names its half as RocketMQ does: it has the commit bit in sysFlag, and the half's
place in the log in ``preparedTransactionOffset``. RocketMQ leaves that field 0 in a message that is
part of no transaction, and consumers look at it only in one that is: what a delivered and a parked
copy stand for is said there. Big-endian::

    0 mark u16 (0x4C51)    2 queue of the schedule topic u8    3 queue offset there u40
    0 mark u16 (0x4C52)    2 where the parked half lies in the log u48

Pure. Source: spec/wire.md 4.1, 7.4, 7.8; docs/delays.md; docs/transactions.md.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

from ledgermq.remoting.protocol.message import (
    RECORD_HEADS,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
)
from ledgermq.remoting.protocol.properties import find_property
from store.layout import HALF_TOPIC_BYTES, OP_TOPIC_BYTES, record_body

Said = tuple[str, bytes]
"""``(kind, payload)`` of the state that a message stands for."""

DELIVERED: Final = "delivered"
"""The kind of state that the copy of a delayed message stands for."""
HALF: Final = "tx-half"
"""Of half a transaction: ``[queue offset, place in the log, stored (ms), immunity (s), group,
source]``."""
COPIED: Final = "tx-copied"
"""Of the copy of a half, committed or parked: where the half lies in the log."""
OP: Final = "tx-op"
"""Of an op message: its body, the queue offsets of halves that are finished."""
MARK_BYTE: Final = 0x4C
"""With this byte the field begins in copies that are part of no transaction."""
PREPARED_AT: Final = 76
"""Where the field lies in a record with IPv4 hosts."""
QUEUES_MAX: Final = 256
NO_IMMUNITY: Final = -1

_MARK: Final = 0x4C51
_PARKED: Final = 0x4C52
_QUEUE_AT: Final = 40
_OFFSET_MASK: Final = (1 << _QUEUE_AT) - 1
_PLACE_MASK: Final = (1 << 48) - 1
_PREPARED: Final = 13
_SYS_FLAG: Final = 7
_BORN_HOST: Final = 9
_IPV4_HOST_BYTES: Final = 8
_IMMUNITY_DIGITS: Final = 7
_KINDS: Final = {HALF_TOPIC_BYTES: HALF, OP_TOPIC_BYTES: OP}


def origin_of(queue_id: int, offset: int) -> int:
    """Return the value of the field for the copy of a scheduled message."""
    assert 0 <= queue_id < QUEUES_MAX, queue_id
    assert 0 <= offset <= _OFFSET_MASK, offset
    return _MARK << 48 | queue_id << _QUEUE_AT | offset


def parked_origin(physical: int) -> int:
    """Return the value of the field for a parked copy of the half that lies there."""
    assert 0 <= physical <= _PLACE_MASK, physical
    return _PARKED << 48 | physical


def maybe_said(prepared_offset: int, sys_flag: int) -> Said | None:
    """Return the state that a message stands for by its field, None if it is no copy."""
    if transaction := sys_flag & TRANSACTION_MASK:
        is_copy = transaction == TRANSACTION_COMMIT and prepared_offset >= 0
        return (COPIED, b"%d" % prepared_offset) if is_copy else None
    mark = prepared_offset >> 48
    if mark == _MARK:
        queue_id = prepared_offset >> _QUEUE_AT & 0xFF
        return DELIVERED, delivered(queue_id, prepared_offset & _OFFSET_MASK)
    return (COPIED, b"%d" % (prepared_offset & _PLACE_MASK)) if mark == _PARKED else None


def maybe_said_by(record: bytes | memoryview, start: int) -> Said | None:
    """As `maybe_said`, of the whole record that begins at ``start``."""
    fields = RECORD_HEADS[record[start + 39] >> 4 & 3].unpack_from(record, start)
    return maybe_said(fields[_PREPARED], fields[_SYS_FLAG])


def delivered(queue_id: int, offset: int) -> bytes:
    """Return the payload of a state record: a level is delivered up to this offset, and with it."""
    return b"[%d,%d]" % (queue_id, offset)


def kind_in(topic: bytes, queue_id: int) -> str:
    """Return the kind of state that each message of a queue stands for, empty for none."""
    return _KINDS.get(topic, "") if queue_id == 0 else ""


def said_in(
    kind: str, place: tuple[int, int, int], properties: bytes, body: bytes, born_host: bytes
) -> Said:
    """Return the state that a message stands for by its queue, see `kind_in`.

    ``place``: its queue offset, where it lies in the log, and when it was stored.
    """
    if kind == HALF:
        group = group_number(find_property(properties, b"PGROUP") or b"")
        numbers = *place, immunity_of(properties), group, source_number(born_host)
        return HALF, b"[%d,%d,%d,%d,%d,%d]" % numbers
    return OP, body


def said_in_by(kind: str, record: bytes | memoryview, place: tuple[int, int, int],
               properties: bytes) -> Said:  # fmt: skip
    """As `said_in`, of a whole record."""
    body = b"" if kind == HALF else bytes(record_body(record))
    born_host = RECORD_HEADS[record[39] >> 4 & 3].unpack_from(record)[_BORN_HOST]
    return said_in(kind, place, properties, body, born_host)


@lru_cache(maxsize=1_024)
def group_number(group: bytes) -> int:
    """Return the number by which rows of halves name a producer group, 0 for none.

    Nobody finds a second name with the number of another one. What is no UTF-8 counts as the text
    that a client of the group sends for it.
    """
    name = group.decode("utf-8", "replace").encode()
    return int.from_bytes(blake2b(name, digest_size=8).digest()) >> 1 if name else 0


def source_number(born_host: bytes) -> int:
    """Return the number by which rows of halves name where one was sent from, by its packed host.

    Of IPv6 it is the network of 64 bits, which one sender may have all of.
    """
    if len(born_host) == _IPV4_HOST_BYTES:
        return int.from_bytes(born_host[:4])
    return int.from_bytes(born_host[:8]) >> 1


def immunity_of(properties: bytes) -> int:
    """Return for how many seconds nobody asks how a half ends, `NO_IMMUNITY` if it does not say."""
    digits = find_property(properties, b"CHECK_IMMUNITY_TIME_IN_SECONDS")
    if not digits or not digits.isdigit() or len(digits) > _IMMUNITY_DIGITS:
        return NO_IMMUNITY
    return int(digits)

"""What a send may not contain: bits of sysFlag, delivery times, keys that take too long to index.

What is let in is a record that a follower, a restart, a tool and RocketMQ's own readers read back
equal. Codes: 13 for a message that is malformed, 16 for one that this broker never takes. Pure.
Source: spec/wire.md 3.3, 4.2, 4.3, 4.7; RocketMQ HookUtils, MessageSysFlag, MessageDecoder.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from broker.answers import ILLEGAL
from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.compression import TYPE_LZ4, TYPE_ZLIB, TYPE_ZSTD
from ledgermq.remoting.protocol.limits import (
    BATCH_MESSAGES_MAX,
    BATCH_PROPERTIES_BYTES_MAX,
    BATCH_PROPERTIES_MAX,
    KEY_BYTES_MAX,
    KEY_WORDS_MAX,
    PROPERTIES_BYTES_MAX,
    TOPIC_LENGTH_MAX,
)
from ledgermq.remoting.protocol.message import (
    FLAG_BORN_HOST_V6,
    FLAG_COMPRESSED,
    FLAG_MULTI_TAGS,
    FLAG_STORE_HOST_V6,
    TRANSACTION_MASK,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

MESSAGE_LIMITS: Final = (TOPIC_LENGTH_MAX, PROPERTIES_BYTES_MAX, KEY_WORDS_MAX, KEY_BYTES_MAX)
BATCH_LIMITS: Final = (
    *MESSAGE_LIMITS,
    BATCH_MESSAGES_MAX,
    BATCH_PROPERTIES_BYTES_MAX,
    BATCH_PROPERTIES_MAX,
)
PLAIN_FLAGS: Final = FLAG_COMPRESSED | FLAG_MULTI_TAGS
"""Bits of sysFlag that need no look."""
UNCHECKED_KEYS_BYTES: Final = 2_048
"""Property texts of so many bytes together hold no keys worth counting."""

_HOST_FLAGS: Final = FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6
KEPT_FLAGS: Final = PLAIN_FLAGS | TYPE_LZ4 | TYPE_ZSTD | TYPE_ZLIB | _HOST_FLAGS
"""Bits that the copy of a stored message has: none of a transaction, none without a meaning."""
_COMPRESSIONS: Final = frozenset({0, TYPE_LZ4, TYPE_ZSTD, TYPE_ZLIB})
TIMERS: Final = (b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS")
"""RocketMQ 5's delivery at any time, in the order in which its broker looks for them."""
_INT64: Final = re.compile(rb"[+-]?[0-9]{1,19}")
_SHORT_KEY_BYTES: Final = 96
_NUMBER: Final = re.compile(rb"[+-]?[0-9]+")
_HASHED: Final = (b"KEYS\x01", b"TAGS\x01", b"UNIQ_KEY\x01")


class Refused(Exception):  # noqa: N818 - an answer, not an error of ours
    """A send that is not let in, with its answer."""

    def __init__(self, remark: str = ILLEGAL, code: int = ResponseCode.MESSAGE_ILLEGAL) -> None:
        super().__init__(remark)
        self.answer: tuple[int, str] = (code, remark)


def check_timer(items: Iterable[bytes], now_ms: int) -> None:
    """Look whether a message with properties of `TIMERS` is to wait.

    RocketMQ 4.9 delivers it at once, 5 when it is due: it is let in where they do the same. A level
    counts for more, and a time that has come is none. Errors: `Refused`.
    """
    held = dict(item.partition(b"\x01")[::2] for item in items)
    if level_of(held.get(b"DELAY", b"")):
        return
    name = next(one for one in TIMERS if one in held)
    if not _INT64.fullmatch(held[name]):
        raise Refused(f"the message is illegal: {name.decode()} is not a number")
    if int(held[name]) > (now_ms if name == b"TIMER_DELIVER_MS" else 0):
        raise Refused(
            f"the message is illegal: {name.decode()} is RocketMQ 5's, this broker has delay levels"
        )


def client_flags(sys_flag: int) -> int:
    """Return the bits of a client's sysFlag that are stored.

    The two bits that give the hosts their width are the broker's to set, by the addresses that it
    stores: RocketMQ 5 sets them so, and a client's would make the record unreadable. Those of
    transactions are refused: a half says by its properties that it is one, and a message that only
    says it here would be in no queue. So is every bit that some reader may understand otherwise
    than its sender: those of inner batches, unknown kinds of compression, bits without a meaning.
    Errors: `Refused`.
    """
    if sys_flag & TRANSACTION_MASK:
        remark = "sending transaction messages is forbidden without the property TRAN_MSG"
        raise Refused(remark, ResponseCode.NO_PERMISSION)
    flags = sys_flag & ~_HOST_FLAGS
    if flags & ~PLAIN_FLAGS not in _COMPRESSIONS:
        raise Refused(f"the message is illegal: sysFlag {sys_flag:#x} has bits without a meaning")
    return flags


def level_of(digits: bytes) -> int:
    """Return what Java's Integer.parseInt makes of a DELAY above zero, else 0.

    Whatever is beyond int32 is as good as its largest number: who sends it wants a delay.
    """
    digits = digits.removeprefix(b"+").lstrip(b"0")
    return min(int(digits[:10]), 0x7FFFFFFF) if digits.isdigit() else 0


def sent_level(digits: bytes) -> int:
    """Return `level_of` a DELAY that a client sends. Errors: `Refused` for what is no number.

    It would be delivered at once, and its sender meant something else. Java fails on it, too.
    """
    level = level_of(digits)
    if not level and _NUMBER.fullmatch(digits) is None:
        raise Refused("the message is illegal: its property DELAY is not a number")
    return level


def check_keys(joined: bytes) -> None:
    """Look whether indexing messages with these regular properties takes too long.

    ``joined`` are the texts of all messages of a request. Errors: `Refused`.
    """
    hashed = words = 0
    for item in joined.split(b"\x02"):
        if len(item) > _SHORT_KEY_BYTES and item.startswith(_HASHED):
            hashed += len(item)
    if joined.count(b"KEYS\x01") + joined.count(b" ") > KEY_WORDS_MAX:
        for item in joined.split(b"\x02"):
            if item.startswith(b"KEYS\x01"):
                words += item.count(b" ") + 1
    if words > KEY_WORDS_MAX or hashed > KEY_BYTES_MAX:
        raise Refused(
            f"the message is illegal: {words} words of KEYS, the limit is {KEY_WORDS_MAX}; or "
            f"{hashed} bytes of long KEYS, TAGS and UNIQ_KEY, the limit is {KEY_BYTES_MAX}"
        )

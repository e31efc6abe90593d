"""Message properties: ``name 0x01 value 0x02 name 0x01 value 0x02``, and what is derived.

Source: MessageDecoder.string2messageProperties, MessageConst, MessageExtBrokerInner (spec/wire.md
4.3, 4.4).
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
UNIQ_KEY: Final = "UNIQ_KEY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
CHECK_IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
CLUSTER: Final = "CLUSTER"
INSTANCE_ID: Final = "INSTANCE_ID"
MSG_TYPE: Final = "MSG_TYPE"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
SHARDING_KEY: Final = "__SHARDINGKEY"

_REMEMBERED_CHARACTERS_MAX: Final = 64
"""The longest text whose hash is remembered, so that clients cannot fill the memory."""
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstu"
_HIGH: Final = bytes(_DIGITS[byte // 31] for byte in range(256))
_LOW: Final = bytes(_DIGITS[byte % 31] for byte in range(256))
_PIECE: Final = 128
_SHIFTS: Final = [pow(31, count, 1 << 32) for count in range(_PIECE + 1)]
_MASK: Final = 0xFFFFFFFF
NAME_END: Final = "\x01"
PROPERTY_END: Final = "\x02"


def parse_properties(data: bytes) -> dict[str, str]:
    """Return the properties by name; on duplicate names the later one wins, as in Java.

    Entries without a name or a value are dropped. Bytes that are no UTF-8 become U+FFFD.
    """
    properties: dict[str, str] = {}
    for entry in data.decode("utf-8", "replace").split(PROPERTY_END):
        name, separator, value = entry.partition(NAME_END)
        if separator and name and value:
            properties[name] = value.partition(NAME_END)[0]
    return properties


def format_properties(properties: Mapping[str, str]) -> bytes:
    """Return the text of the properties, without a separator at the end (as 4.9 writes it)."""
    return PROPERTY_END.join(
        f"{name}{NAME_END}{value}" for name, value in properties.items()
    ).encode("utf-8", "replace")


def find_property(data: bytes, name: bytes) -> bytes | None:
    """Return the last value stored under ``name`` without parsing the others; None if absent."""
    key = name + b"\x01"
    start = data.rfind(b"\x02" + key)
    if start >= 0:
        start += 1
    elif data.startswith(key):
        start = 0
    else:
        return None
    start += len(key)
    end = data.find(b"\x02", start)
    return data[start : end if end >= 0 else len(data)] or None


def java_string_hash(text: str) -> int:
    """Return Java's String.hashCode: 31*h + unit over UTF-16 units, wrapped to int32."""
    return _short_hash(text) if len(text) <= _REMEMBERED_CHARACTERS_MAX else _hash(text)


def tags_code(tags: str | None) -> int:
    """Return the tags code that a consume queue unit holds: the hash of TAGS, 0 without tags."""
    return java_string_hash(tags) if tags else 0


def units_hash(text: bytes, start: int = 0) -> int:
    """Return Java's String.hashCode of a text, a byte a unit, in 0..2^32-1, on from ``start``.

    It is the number whose digits to the base of 31 are the units. As they go beyond 30, they are
    written as two numbers of proper digits, which ``int`` reads at once.
    """
    high, low = text.translate(_HIGH), text.translate(_LOW)
    for first in range(0, len(text), _PIECE):
        end = first + _PIECE
        piece = low[first:end]
        value = 31 * int(high[first:end], 31) + int(piece, 31)
        start = start * _SHIFTS[len(piece)] + value & _MASK
    return start


def _hash(text: str) -> int:
    if text.isascii():
        value = units_hash(text.encode())
    else:
        # The high and the low bytes of the UTF-16 units are numbers of their own.
        units = text.encode("utf-16-be", "surrogatepass")
        value = 256 * units_hash(units[::2]) + units_hash(units[1::2]) & _MASK
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


_short_hash: Final = lru_cache(maxsize=8192)(_hash)

"""Message properties: ``name 0x01 value 0x02 name 0x01 value 0x02``, and what is derived.

Source: MessageDecoder.string2messageProperties, MessageConst, MessageExtBrokerInner (protocol.md
4.3, 4.4).
"""

import struct
from collections.abc import Mapping
from functools import lru_cache
from operator import mul
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
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
CLUSTER: Final = "CLUSTER"
INSTANCE_ID: Final = "INSTANCE_ID"

_REMEMBERED_CHARACTERS_MAX: Final = 64
"""Of a text whose hash is remembered, so that what clients send cannot fill the memory."""
_WEIGHED_MAX: Final = 256
_WEIGHTS: Final = [pow(31, n, 1 << 32) for n in range(_WEIGHED_MAX, -1, -1)]
"""Powers of 31; the last one is the weight of the last unit."""
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


def _hash(text: str) -> int:
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for first in range(0, len(data), 2 * _WEIGHED_MAX):
        piece = data[first : first + 2 * _WEIGHED_MAX]
        count = len(piece) // 2
        units = struct.unpack(f">{count}H", piece)
        shift = _WEIGHTS[_WEIGHED_MAX - count]
        value = value * shift + sum(map(mul, units, _WEIGHTS[-count:])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


_short_hash: Final = lru_cache(maxsize=8192)(_hash)

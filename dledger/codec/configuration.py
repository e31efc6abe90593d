"""A configuration as bytes: the payload of its entry, the entry, and the file of those in force.

The entry is marked by ``channel`` 1 and a chain CRC in its header, fields that DLedger writes as 0
and never reads. Its body is whatever record the user of the log makes around the payload (for a
broker a message of the system topic, so that foreign readers skip it), or the payload alone:

    {"voters":{"n0":"host:port",...},"learners":{...},"version":3,"removed":["n2"]}

`removed` is there only if somebody was; versions that do not know it pass over it.
The file ``membership`` lists those that the log holds, ``{"entries":[{"index":..,"term":..,
"configuration":..},...]}``.
"""

from typing import Final
from zlib import crc32

import msgspec

from dledger.codec.entry import (
    CHANNEL_CONFIGURATION,
    ENTRY_MAGIC,
    HEADER,
    HEADER_BYTES,
    mark_crc,
)
from dledger.codec.index import UNIT, UNIT_MAGIC
from dledger.core.configuration import ConfigEntry, Configuration
from dledger.core.model import LogIndex, Span, Term
from dledger.errors import CorruptEntry
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.message import decode_record
from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED

_JSON_BEGIN: Final = ord("{")


class _File(msgspec.Struct):
    entries: list[ConfigEntry]


_payload: Final = msgspec.json.Decoder(Configuration)
_file: Final = msgspec.json.Decoder(_File)


def encode_configuration(configuration: Configuration) -> bytes:
    """Return the payload."""
    return msgspec.json.encode(configuration)


def decode_configuration(payload: bytes) -> Configuration:
    """Read a payload. Errors: `CorruptEntry`."""
    try:
        configuration = _payload.decode(payload)
    except NOT_DECODED as error:
        raise CorruptEntry(f"no configuration: {error}") from error
    if not configuration.voters:
        raise CorruptEntry("a configuration without voters")
    return configuration


def read_configuration(body: bytes | memoryview) -> Configuration:
    """Read the body of an entry that is marked as a configuration. Errors: `CorruptEntry`."""
    if len(body) and body[0] == _JSON_BEGIN:  # no record has so large a size
        return decode_configuration(bytes(body))
    try:
        return decode_configuration(decode_record(body).body)
    except RemotingError as error:
        raise CorruptEntry(f"no configuration: {error}") from error


def read_configurations(
    data: bytes | memoryview, units: bytes, indexes: list[LogIndex]
) -> tuple[tuple[LogIndex, Configuration], ...]:
    """Read the entries ``indexes`` of a span, whose index units are ``units``.

    Errors: `CorruptEntry`.
    """
    view = memoryview(data)
    _, position, _, first_index, _ = UNIT.unpack_from(units)
    found = []
    for index in indexes:
        _, where, size, _, _ = UNIT.unpack_from(units, (index - first_index) * UNIT.size)
        start = where - position
        found.append((index, read_configuration(view[start + HEADER_BYTES : start + size])))
    return tuple(found)


def encode_configuration_span(
    index: LogIndex, term: Term, position: int, body: bytes, configuration: Configuration
) -> Span:
    """Return the span of one entry that is a configuration."""
    size = HEADER_BYTES + len(body)
    marks = (CHANNEL_CONFIGURATION, mark_crc(size, index, term, position))
    header = HEADER.pack(ENTRY_MAGIC, size, index, term, position, *marks, crc32(body), len(body))
    unit = UNIT.pack(UNIT_MAGIC, position, size, index, term)
    return Span(index, index, term, position, header + body, unit, ((index, configuration),))


def encode_membership(entries: tuple[ConfigEntry, ...]) -> bytes:
    """Return the content of ``membership``."""
    return msgspec.json.encode(_File(list(entries))) + b"\n"


def decode_membership(data: bytes) -> tuple[ConfigEntry, ...]:
    """Read ``membership``. Errors: `ValueError`."""
    try:
        return tuple(_file.decode(data).entries)
    except NOT_DECODED as error:
        raise ValueError(str(error)) from error

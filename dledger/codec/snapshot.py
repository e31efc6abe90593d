"""The file ``snapshot``: what stands for the entries that are in the log no more.

| offset | size | field | note |
|---|---|---|---|
| 0 | 4 | magic | ``LMQS`` |
| 4 | 4 | version | 1 |
| 8 | 4 | CRC | CRC-32 of everything from 12 on |
| 12 | 8 | last index | the log begins behind it |
| 20 | 8 | last term | |
| 28 | 8 | position | where entry ``last index + 1`` lies |
| 36 | 8 | state index | last entry whose effect is in the state |
| 44 | 4 | c | bytes of the configuration |
| 48 | 8 | s | bytes of the state |
| 56 | c | configuration | JSON: in force at ``last index`` |
| 56+c | s | state | of whoever uses the log; bytes to the log itself |

All big-endian. A leader ships the file as it is, and the receiver keeps it as it came.
"""

import struct
from typing import Final
from zlib import crc32

import msgspec

from dledger.core.configuration import ConfigEntry, Configuration
from dledger.core.model import LogIndex, SnapshotId, Term
from dledger.core.snapshot import SnapshotMeta
from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED

MAGIC: Final = b"LMQS"
VERSION: Final = 1
HEAD: Final = struct.Struct(">4sII")
FIELDS: Final = struct.Struct(">qqqqIq")
HEADER_BYTES: Final = HEAD.size + FIELDS.size
SLICE_BYTES: Final = 1024 * 1024
"""What is copied while no other thread runs."""

assert HEADER_BYTES == 56


def encode_snapshot(
    last: tuple[LogIndex, Term, int],
    state_index: LogIndex,
    configuration: ConfigEntry,
    state: bytes | bytearray,
) -> bytearray:
    """Return the content of the file. Not in the loop: it copies the state, a slice at a time.

    Args:
        last: index and term of the last entry it stands for, and the position behind it.
        state_index: last entry whose effect is in ``state``; not below the last entry.
        configuration: in force at the last entry.
        state: of whoever uses the log.
    """
    assert last[0] <= state_index, f"the state of {state_index} does not cover entry {last[0]}"
    packed = _encode_configuration(configuration)
    fields = FIELDS.pack(*last, state_index, len(packed), len(state))
    crc = crc32(state, crc32(packed, crc32(fields)))
    data = bytearray().join((HEAD.pack(MAGIC, VERSION, crc), fields, packed))
    with memoryview(state) as whole:
        for at in range(0, len(state), SLICE_BYTES):
            data += whole[at : at + SLICE_BYTES]
    return data


def decode_snapshot(data: bytes) -> tuple[SnapshotMeta, bytes]:
    """Return what the head says, and the state. Errors: `ValueError` says what is wrong."""
    meta, state_at = decode_head(data)
    return meta, data[state_at:]


def decode_head(data: bytes | bytearray) -> tuple[SnapshotMeta, int]:
    """Return what the head says, and where the state begins. Errors: as `decode_snapshot`."""
    if len(data) < HEADER_BYTES:
        raise ValueError(f"only {len(data)} bytes")
    magic, version, crc = HEAD.unpack_from(data)
    if (magic, version) != (MAGIC, VERSION):
        raise ValueError(f"magic {magic!r}, version {version}")
    if crc32(memoryview(data)[HEAD.size :]) != crc:
        raise ValueError("CRC does not match")
    last_index, last_term, position, state_index, configuration_bytes, state_bytes = (
        FIELDS.unpack_from(data, HEAD.size)
    )
    state_at = HEADER_BYTES + configuration_bytes
    if state_bytes < 0 or len(data) != state_at + state_bytes:
        raise ValueError(f"{len(data)} bytes where {state_at + state_bytes} should be")
    if not 0 <= last_index <= state_index or last_term <= 0 or position < 0:
        raise ValueError(f"entry {last_index} of term {last_term} at {position}, {state_index}")
    meta = SnapshotMeta(
        SnapshotId(last_index, last_term, len(data), crc),
        position,
        state_index,
        _decode_configuration(bytes(data[HEADER_BYTES:state_at])),
    )
    return meta, state_at


class _Place(msgspec.Struct):
    """The JSON of a configuration: members by id, and the entry that it is (-1: the first)."""

    index: int
    term: int
    version: int
    voters: dict[str, str]
    learners: dict[str, str]
    removed: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


def _encode_configuration(entry: ConfigEntry) -> bytes:
    found = entry.configuration
    return msgspec.json.encode(
        _Place(entry.index, entry.term, found.version, found.voters, found.learners, found.removed)
    )


def _decode_configuration(data: bytes) -> ConfigEntry:
    try:
        found = msgspec.json.decode(data, type=_Place)
    except NOT_DECODED as error:
        raise ValueError(f"no configuration: {error}") from error
    configuration = Configuration(found.voters, found.learners, found.version, found.removed)
    return ConfigEntry(found.index, found.term, configuration)

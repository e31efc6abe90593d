"""The file that stands for the beginning of a controller's log.

```
magic "LMQC" (4)  version (4)  crc32 of the rest (4)  MessagePack [before, last, state]
```

``before`` and ``last`` are the last two entries that the state has applied, which PySyncObj wants
to know; the state is that of `namesrv.controller.state`. A snapshot that comes from a leader is
checked before it replaces anything.
"""

import struct
import zlib
from typing import Final

import msgspec

from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED
from ledgermq.runtime.disk import Disk
from ledgermq.runtime.errors import FatalError
from namesrv.controller.state import BadState, Groups, decode_state, encode_state
from namesrv.controller.wire import SNAPSHOT_BYTES_MAX, Entry

_MAGIC: Final = b"LMQC"
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">4sII")


class BadSnapshot(ValueError):  # noqa: N818  # says what is
    """Bytes that are no snapshot; the message says why."""


class Snapshot(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A state and where in the log it is."""

    before: Entry
    last: Entry
    state: bytes

    @property
    def groups(self) -> Groups:
        """The state. Errors: `BadState`."""
        return decode_state(self.state)


def encode_snapshot(before: Entry, last: Entry, groups: Groups) -> bytes:
    """Return the bytes of a snapshot."""
    body = msgspec.msgpack.encode(Snapshot(before, last, encode_state(groups)))
    return _HEAD.pack(_MAGIC, _VERSION, zlib.crc32(body)) + body


def decode_snapshot(data: bytes) -> Snapshot:
    """Return what a snapshot holds, all of it checked. Errors: `BadSnapshot`."""
    if not _HEAD.size < len(data) <= SNAPSHOT_BYTES_MAX:
        raise BadSnapshot(f"{len(data)} bytes")
    magic, version, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if magic != _MAGIC or version != _VERSION:
        raise BadSnapshot(f"it begins with {data[:8]!r}")
    if crc != zlib.crc32(body):
        raise BadSnapshot("its checksum is wrong")
    try:
        found = msgspec.msgpack.decode(body, type=Snapshot)
        found.groups  # noqa: B018 - checks it
    except (*NOT_DECODED, BadState) as error:
        raise BadSnapshot(str(error)) from error
    if found.last.index != found.before.index + 1 or found.last.term < found.before.term:
        raise BadSnapshot("its two entries do not follow each other")
    return found


def read_snapshot(disk: Disk, path: str) -> Snapshot | None:
    """Return the snapshot in a file, None if there is none. Errors: `FatalError`."""
    data = disk.read(path)
    if data is None:
        return None
    try:
        return decode_snapshot(data)
    except BadSnapshot as error:
        raise FatalError(f"{path}: no snapshot of a controller: {error}") from error

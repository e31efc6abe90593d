"""Checkpoints: how far dispatch has come, and what the queue files on disk hold for sure.

Two files in the store's directory. ``checkpoint`` is RocketMQ's, 4096 bytes with the store
timestamps of the last message that log and queues have. ``consumequeue.checkpoint`` is ours: one
line with the CRC32 of the rest, then JSON. It is written after the queue files were synced, so that
at a start everything it says is on disk or the disk is damaged, which its CRCs tell.
It knows neither the queues nor the log.
Source: protocol.md 5.5; RocketMQ StoreCheckpoint.
"""

import struct
import zlib
from typing import Final

import msgspec

CHECKPOINT_FILE: Final = "consumequeue.checkpoint"
ROCKETMQ_FILE: Final = "checkpoint"
ROCKETMQ_BYTES: Final = 4096
MARKS_MAX: Final = 8
"""Positions of earlier checkpoints that are kept, for a log that has lost its end."""


class LogMark(msgspec.Struct, frozen=True, array_like=True):
    """An entry up to which everything was dispatched."""

    index: int
    term: int
    position: int


class QueueMark(msgspec.Struct, frozen=True, array_like=True):
    """What the files of one queue hold; offsets count units, ``first_file`` bytes."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    first_file: int
    crcs: tuple[int, ...]
    """CRC32 of the filled part of each file, oldest first."""


class Checkpoint(msgspec.Struct, frozen=True):
    """A consistent picture of the queues; they may hold more than ``marks[0]`` says, never less."""

    file_bytes: int
    """Size of the queue files."""
    store_timestamp: int
    """Of the message at ``marks[0]`` (ms)."""
    marks: tuple[LogMark, ...]
    """Newest first."""
    queues: tuple[QueueMark, ...]


class StoreTimes(msgspec.Struct, frozen=True):
    """Store timestamps (ms) up to which something is on disk for sure; 0: nothing is."""

    physic: int
    """Records of the log."""
    logics: int
    """Units of the queues."""
    index: int
    """Entries of the index files."""


NO_TIMES: Final = StoreTimes(0, 0, 0)
_TIMES: Final = struct.Struct(">qqq")


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the content of ``consumequeue.checkpoint``."""
    payload = msgspec.json.encode(checkpoint)
    return b"%08x\n%b\n" % (zlib.crc32(payload), payload)


def maybe_decode_checkpoint(data: bytes) -> Checkpoint | None:
    """Return the checkpoint, None if these bytes are none that was written whole."""
    crc_text, _, rest = data.partition(b"\n")
    payload = rest.removesuffix(b"\n")
    if crc_text != b"%08x" % zlib.crc32(payload):
        return None
    try:
        return msgspec.json.decode(payload, type=Checkpoint)
    except msgspec.DecodeError:
        return None


def encode_rocketmq(store_timestamp: int) -> bytes:
    """Return RocketMQ's ``checkpoint`` of a log without an index, all synced up to one time."""
    return encode_times(StoreTimes(store_timestamp, store_timestamp, 0))


def encode_times(times: StoreTimes) -> bytes:
    """Return RocketMQ's ``checkpoint``."""
    return _TIMES.pack(times.physic, times.logics, times.index).ljust(ROCKETMQ_BYTES, b"\0")


def decode_times(data: bytes) -> StoreTimes:
    """Return what a ``checkpoint`` promises; nothing if it is too short, or is none."""
    if len(data) < _TIMES.size:
        return NO_TIMES
    return StoreTimes(*(max(0, time) for time in _TIMES.unpack_from(data)))

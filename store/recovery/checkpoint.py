"""Checkpoints: how far dispatch has come, and what the queue files on disk hold for sure.

Files in the store's directory. ``checkpoint`` is RocketMQ's, 4096 bytes with the store timestamps
of the last message that log and queues have. ``consumequeue.checkpoint`` is ours, written after
the queue files were synced, so that at a start everything it says is on disk, or the disk is
damaged, which its CRCs tell. ``consumequeue.clean`` names the checkpoint behind which nothing was
written, and goes at the next start. It knows neither the queues nor the log.

``consumequeue.checkpoint``, big-endian; parts are msgpack::

    0 "LMQC"   4 version, 2   8 CRC32 of the rest   12 size, head   then size, queues; any number
    head:   file bytes, block bytes, store timestamp, marks [index, term, position] newest first
    queues: [topic, queue id, min offset, max offset, first file, CRCs of full blocks, CRC so far]

Version 1 was JSON; it reads as no checkpoint, and the queues are made anew.
Source: spec/disk.md 5.5; RocketMQ StoreCheckpoint.
"""

import struct
import zlib
from collections.abc import Iterable
from typing import Final

import msgspec

from dledger.mark import LogMark
from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED

CHECKPOINT_FILE: Final = "consumequeue.checkpoint"
CLEAN_FILE: Final = "consumequeue.clean"
ROCKETMQ_FILE: Final = "checkpoint"
ROCKETMQ_BYTES: Final = 4096
MARKS_MAX: Final = 8
"""Positions of earlier checkpoints that are kept, for a log that has lost its end."""
_MAGIC: Final = b"LMQC"
_VERSION: Final = 2
_HEAD: Final = struct.Struct(">4sII")


class QueueMark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the files of one queue hold; offsets count units, ``first_file`` bytes."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    first_file: int
    crcs: bytes
    """CRC32 of each full block, 4 bytes each, oldest first."""
    crc: int
    """CRC32 of the last block so far."""


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


class CheckpointHead(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint says of all queues together."""

    file_bytes: int
    """Size of the queue files."""
    block_bytes: int
    """What has a CRC of its own."""
    store_timestamp: int
    """Of the message at ``marks[0]`` (ms)."""
    marks: tuple[LogMark, ...]
    """Newest first."""


class Checkpoint(msgspec.Struct, frozen=True):
    """A consistent picture of the queues; they may hold more than ``marks[0]`` says, never less."""

    head: CheckpointHead
    queues: tuple[QueueMark, ...]
    crc: int = 0
    """Tells one checkpoint from another."""


_decode_queues = msgspec.msgpack.Decoder(list[QueueMark]).decode


def encode_queues(marks: list[QueueMark]) -> bytes:
    """Return a part of a checkpoint: some of the queues."""
    return msgspec.msgpack.encode(marks)


def join_checkpoint(head: CheckpointHead, parts: Iterable[bytes]) -> bytes:
    """Return the content of ``consumequeue.checkpoint``."""
    pieces = [b""]
    for part in (msgspec.msgpack.encode(head), *parts):
        pieces += (len(part).to_bytes(4, "big"), part)
    crc = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
    pieces[0] = _HEAD.pack(_MAGIC, _VERSION, crc)
    return b"".join(pieces)


def checkpoint_id(data: bytes) -> bytes:
    """Return the content of ``consumequeue.clean`` for a checkpoint that is the last word."""
    return b"%08x\n" % zlib.crc32(data)


def maybe_decode_head(data: bytes) -> CheckpointHead | None:
    """Return what a checkpoint says of all queues together, None as below."""
    parts = _maybe_parts(data)
    try:
        return msgspec.msgpack.decode(parts[0], type=CheckpointHead) if parts else None
    except NOT_DECODED:
        return None


def maybe_decode_checkpoint(data: bytes) -> Checkpoint | None:
    """Return the checkpoint, None if these bytes are none that was written whole."""
    parts = _maybe_parts(data)
    if parts is None:
        return None
    try:
        head = msgspec.msgpack.decode(parts[0], type=CheckpointHead)
        queues: list[QueueMark] = []
        for part in parts[1:]:
            queues += _decode_queues(part)
    except (*NOT_DECODED, IndexError):
        return None
    return Checkpoint(head, tuple(queues), _HEAD.unpack_from(data)[2])


def _maybe_parts(data: bytes) -> list[memoryview] | None:
    if len(data) < _HEAD.size:
        return None
    magic, version, crc = _HEAD.unpack_from(data)
    view = memoryview(data)[_HEAD.size :]
    if (magic, version, crc) != (_MAGIC, _VERSION, zlib.crc32(view)):
        return None
    parts = []
    while view:
        size = int.from_bytes(view[:4], "big")
        parts.append(view[4 : 4 + size])
        view = view[4 + size :]
    return parts


def encode_times(times: StoreTimes) -> bytes:
    """Return RocketMQ's ``checkpoint``."""
    return _TIMES.pack(times.physic, times.logics, times.index).ljust(ROCKETMQ_BYTES, b"\0")


def decode_times(data: bytes) -> StoreTimes:
    """Return what a ``checkpoint`` promises; nothing if it is too short, or is none."""
    if len(data) < _TIMES.size:
        return NO_TIMES
    return StoreTimes(*(max(0, time) for time in _TIMES.unpack_from(data)))

"""The body of a test message: who wrote it, which message it is, and bytes that can be verified.

======  ====  =====================================================================
offset  size  field (big endian)
======  ====  =====================================================================
0       4     magic ``LMQ1``
4       16    run tag, `run_tag` of the run id
20      8     msg_key, signed: ``pid << 40 | seq``
28      n     padding: an 8-byte pattern made from the key, repeated and cut to size
======  ====  =====================================================================

Pure; knows no broker and no table. Source: spec/proof.md 3.0 (msg_key, body hash).
"""

import hashlib
import string
import struct
from dataclasses import dataclass
from typing import Final

MAGIC: Final = b"LMQ1"
HEAD: Final = struct.Struct(">4s16sq")
HEAD_BYTES: Final = HEAD.size
SEQUENCE_BITS: Final = 40
_MIX: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1
_TAG_HEX_DIGITS: Final = 32

assert HEAD_BYTES == 28

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Payload:
    """What a test body says: the run's tag as 32 hex digits, and the message's key."""

    run_tag: str
    msg_key: int


def run_tag(run_id: str) -> str:
    """Return the 32 hex digits that stand for ``run_id`` in bodies and in ``payload_run_id``.

    A run id that is itself 32 hex digits (a UUID without dashes) stands for itself.
    """
    if len(run_id) == _TAG_HEX_DIGITS and all(c in string.hexdigits for c in run_id):
        return run_id.lower()
    return hashlib.blake2b(run_id.encode(), digest_size=16).hexdigest()


def make_key(pid: int, seq: int) -> int:
    """Return the key of message ``seq`` of producer ``pid``; unique in a run."""
    assert 0 <= pid < 1 << 23, pid
    assert 0 <= seq < 1 << SEQUENCE_BITS, seq
    return pid << SEQUENCE_BITS | seq


def split_key(msg_key: int) -> tuple[int, int]:
    """Return (pid, seq) of a key."""
    return msg_key >> SEQUENCE_BITS, msg_key & ((1 << SEQUENCE_BITS) - 1)


def encode_body(tag: bytes, msg_key: int, size_bytes: int) -> bytes:
    """Return the body of ``size_bytes`` (at least 28) for a key; ``tag`` is 16 bytes."""
    head = HEAD.pack(MAGIC, tag, msg_key)
    return head + _padding(msg_key, max(0, size_bytes - HEAD_BYTES))


def decode_body(body: Buffer) -> Payload | None:
    """Return what the body says, or None if it is not one of ours."""
    if len(body) < HEAD_BYTES:
        return None
    magic, tag, msg_key = HEAD.unpack_from(body)
    return Payload(tag.hex(), msg_key) if magic == MAGIC else None


def verify_body(body: Buffer) -> bool:
    """Return whether the padding is what the key in the body demands."""
    payload = decode_body(body)
    if payload is None:
        return False
    return bytes(body[HEAD_BYTES:]) == _padding(payload.msg_key, len(body) - HEAD_BYTES)


def body_hash(body: Buffer) -> int:
    """Return a signed 64-bit fingerprint of a body (blake2b, 8 bytes)."""
    return int.from_bytes(hashlib.blake2b(body, digest_size=8).digest(), "big", signed=True)


def _padding(msg_key: int, size_bytes: int) -> bytes:
    unit = (((msg_key + 1) * _MIX) & _MASK).to_bytes(8, "big")
    return (unit * (size_bytes // 8 + 1))[:size_bytes]

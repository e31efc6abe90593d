"""What the body of a test message says: its key, its run, its fingerprint.

Code of this job's own: the in-process checker reads bodies with `chaos.history.payload`, and
neither would notice a mistake that both made by the same code. Layout: ``LMQ1``, the run's tag of
16 bytes, the key as a big-endian long, padding.

Source: spec/proof.md 3.0.
"""

import hashlib
import re
import zlib
from typing import Final

MARK: Final = b"LMQ1"
TAG_END: Final = 20
KEY_END: Final = 28
INFLATED_BYTES_MAX: Final = 64 << 20
Bytes = bytes | memoryview


def tag_of_run(run_id: str) -> str:
    """Return the hexadecimal tag by which bodies name a run; a UUID without dashes is its own."""
    if re.fullmatch("[0-9a-fA-F]{32}", run_id):
        return run_id.lower()
    return hashlib.blake2b(run_id.encode("utf-8"), digest_size=16).hexdigest()


def digest(body: Bytes) -> int:
    """Return the signed fingerprint by which bodies are compared."""
    return int.from_bytes(hashlib.blake2b(body, digest_size=8).digest(), "big", signed=True)


def key_and_tag(body: Bytes) -> tuple[int | None, str | None]:
    """Return the key and the run's tag that a body names; nothing if it is none of ours."""
    if len(body) < KEY_END or body[: len(MARK)] != MARK:
        return None, None
    key = int.from_bytes(body[TAG_END:KEY_END], "big", signed=True)
    return key, body[len(MARK) : TAG_END].hex()


def inflate(body: Bytes) -> bytes | None:
    """Return a compressed body as its sender had it; None if it is no whole zlib stream."""
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, INFLATED_BYTES_MAX)
    except zlib.error:
        return None
    return plain if inflater.eof else None

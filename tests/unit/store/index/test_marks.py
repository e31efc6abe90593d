"""A checkpoint of the index, or of the queues, that is nested without end is none."""

import zlib

from store.index.marks import maybe_decode_mark
from store.recovery import checkpoint

DEEP = b"[" * 100_000 + b"]" * 100_000


def test_a_deep_mark_of_the_index_is_none():
    payload = b'{"x":' + DEEP + b"}"
    assert maybe_decode_mark(b"%08x\n%b\n" % (zlib.crc32(payload), payload)) is None


def test_a_deep_checkpoint_of_the_queues_is_none():
    part = b"\x91" * 100_000
    data = len(part).to_bytes(4, "big") + part
    head = checkpoint._HEAD.pack(checkpoint._MAGIC, checkpoint._VERSION, zlib.crc32(data))
    assert checkpoint.maybe_decode_checkpoint(head + data) is None

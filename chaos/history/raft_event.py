"""What replicas noted about themselves: event files, decoded to rows of the table ``raft_event``.

Reads the bytes by their description (docs/raft.md, Events), with none of the code that wrote them.
A node has four files, two by two written in turn; blocks hold records; a block that does not fit
(checksum, generation, an earlier boot) ends a file, since what follows it is older.

A kind that has no code of its own is written as ``other``, its name in ``extra``.

A row has the columns of the table except ``run_id``, ``node`` and ``group``, which the caller
knows. ``index`` and ``prev_index`` depend on the kind: for ``append`` the last entry and the one
before the first, for ``truncate`` the first entry cut and the last one before, for ``commit`` the
new and the old index, for a vote the candidate's last index and its term.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final
from zlib import crc32

Row = dict[str, Any]

_FILE: Final = struct.Struct(">4sIQ")
_BLOCK: Final = struct.Struct(">IIII")
_RECORD: Final = struct.Struct(">HBBqqqqqI")
KINDS: Final = (
    "?", "boot", "become_follower", "become_pre_candidate", "become_candidate", "become_leader",
    "vote_granted", "vote_refused", "append", "truncate", "commit", "snapshot", "config",
    "transfer", "probe", "lost_quorum", "rival", "abort", "other",
)  # fmt: skip


def decode_events(files: Iterable[bytes]) -> list[Row]:
    """Return the events of one node in the order in which they happened.

    Bytes that are no event file, and torn ends, are left out.
    """
    rows: dict[int, Row] = {row["seq"]: row for data in files for row in _decode_file(data)}
    boot_id: str | None = None
    # Files are written in turn, so that only the numbers say which life an event belongs to.
    for _, row in sorted(rows.items()):
        if row["kind"] == "boot":
            boot_id = words(row["extra"]).get("boot")
        row["boot_id"] = boot_id
    return [rows[seq] for seq in sorted(rows)]


def words(extra: str | None) -> dict[str, str]:
    """Return the ``key=value`` words of ``extra``."""
    pairs = (word.partition("=") for word in (extra or "").split())
    return {key: value for key, separator, value in pairs if separator}


def _decode_file(data: bytes) -> Iterator[Row]:
    if len(data) < _FILE.size:
        return
    magic, version, generation = _FILE.unpack_from(data)
    if (magic, version) != (b"LMQE", 1):
        return
    at, boot = _FILE.size, 0
    while at + _BLOCK.size <= len(data):
        crc, length, block_generation, block_boot = _BLOCK.unpack_from(data, at)
        start, end = at + _BLOCK.size, at + _BLOCK.size + length
        fits = block_generation == generation & 0xFFFFFFFF and block_boot >= boot
        if not (fits and length > 0 and end <= len(data) and crc32(data[at + 4 : end]) == crc):
            return
        yield from _decode_records(data, start, end)
        at, boot = end, block_boot


def _decode_records(data: bytes, at: int, end: int) -> Iterator[Row]:
    while at + _RECORD.size <= end:
        size, kind, peer, seq, mono_ns, term, index, prev_index, digest = _RECORD.unpack_from(
            data, at
        )
        if not _RECORD.size + peer <= size <= end - at:
            return
        text = at + _RECORD.size
        extra = data[text + peer : at + size].decode(errors="replace")
        name = KINDS[kind] if kind < len(KINDS) else f"kind_{kind}"
        if name == "other":
            first, _, extra = extra.partition(" ")
            name = words(first).get("event", name)
        yield {
            "seq": seq,
            "node_mono_ns": mono_ns,
            "kind": name,
            "term": term,
            "index": index,
            "prev_index": prev_index,
            "hash": digest,
            "peer": data[text : text + peer].decode(errors="replace") or None,
            "extra": extra.strip() or None,
        }
        at += size

"""The small files of a store: checkpoints, snapshot, term and vote, tables; each read and judged.

What they promise about the log is returned as `Promises`. Source: spec/disk.md 5.5, 5.6, 6.1.
"""

from __future__ import annotations

import struct
from codecs import BOM_UTF8
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dledger.codec import properties as replica
from dledger.codec.configuration import decode_membership
from dledger.codec.snapshot import decode_head
from dledger.limits import SNAPSHOT_BYTES_MAX
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.tolerant_json import FILE, loads
from store.index.marks import INDEX_FILE, FileMark, maybe_decode_mark
from store.offline.files import ReadError, maybe_info, names_in, read_small
from store.offline.findings import Findings, Part
from store.recovery.checkpoint import (
    CHECKPOINT_FILE,
    CLEAN_FILE,
    ROCKETMQ_FILE,
    Checkpoint,
    checkpoint_id,
    maybe_decode_checkpoint,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.offline.folder import LogFolder, StoreFolder

_TIMES: Final = struct.Struct(">qqq")
SMALL_BYTES_MAX: Final = 256 << 20
"""Of each of these files, but for a snapshot."""
REBUILD_HINT: Final = "the next start makes it anew from the log; now: ledgermq store rebuild"
OLD_DLEDGER_FILES: Final = ("currterm.bak", "checkpoint.bak")


@dataclass(slots=True)
class Promises:
    """What the small files say about log and queues."""

    synced_index: int | None = None
    """Last entry that was synced, by the log's own checkpoint."""
    committed_index: int | None = None
    begin: tuple[int, int] | None = None
    """Position and index of the first entry, by the snapshot."""
    flushed_ms: int = 0
    """Messages stored until then were flushed, by RocketMQ's checkpoint."""
    queued_ms: int = 0
    """The same of the queues."""
    indexed_ms: int = 0
    """The same of the key index."""
    dispatched: Checkpoint | None = None
    """Our checkpoint of the queues."""
    was_clean: bool = False
    """Whether nothing was written behind it."""
    index_marks: dict[str, FileMark] | None = None
    """What our checkpoint of the key index says of its files, by name."""


def read_promises(folder: StoreFolder, findings: Findings) -> Promises:
    """Read all small files but the tables, and note what is wrong with them."""
    promises = Promises()
    if folder.dledger is not None:
        _read_replica(folder.dledger, promises, findings)
    if folder.is_lone:
        return promises
    path = folder.path(ROCKETMQ_FILE)
    data = _maybe_read(path, Part.CHECKPOINT, findings)
    if data is not None:
        if len(data) < _TIMES.size:
            findings.damage(
                Part.CHECKPOINT, "cut short", path, len(data),
                f"{len(data)} bytes where 4096 should be", "it is written anew by the next broker",
            )  # fmt: skip
        else:
            _read_times(data, path, promises, findings)
    path = folder.path(INDEX_FILE)
    data = _maybe_read(path, Part.CHECKPOINT, findings)
    if data is not None:
        mark = maybe_decode_mark(data)
        promises.index_marks = {file.name: file for file in mark.files} if mark else {}
        if mark is None:
            findings.damage(
                Part.CHECKPOINT, "unreadable", path, 0, "its CRC does not match", REBUILD_HINT
            )
    path = folder.path(CHECKPOINT_FILE)
    data = _maybe_read(path, Part.CHECKPOINT, findings)
    if data is not None:
        promises.dispatched = maybe_decode_checkpoint(data)
        last = _maybe_read(folder.path(CLEAN_FILE), Part.CHECKPOINT, findings)
        promises.was_clean = last == checkpoint_id(data)
        if promises.dispatched is None:
            findings.damage(
                Part.CHECKPOINT, "unreadable", path, 0, "its CRC does not match", REBUILD_HINT
            )
    return promises


def check_tables(folder: StoreFolder, findings: Findings) -> dict[str, Any]:
    """Judge ``config/*.json``; return what was read, by file name."""
    tables: dict[str, Any] = {}
    directory = folder.path("config")
    for name in names_in(directory):
        if not name.endswith((".json", ".json.bak")):
            continue
        path = f"{directory}/{name}"
        value = _maybe_json(path, findings)
        if value is not None:
            tables[name] = value
        elif name.endswith(".json") and maybe_info(path) is not None:
            has_backup = _maybe_json(f"{path}.bak", Findings()) is not None
            findings.damage(
                Part.CONFIG, "unreadable", path, 0, "no JSON object",
                "a start takes the .bak beside it" if has_backup else "there is no sound .bak",
            )  # fmt: skip
        elif maybe_info(path) is not None:
            findings.harmless(
                Part.CONFIG, "unreadable backup", path, 0, "no JSON object",
                "only looked at when the file itself cannot be read",
            )  # fmt: skip
    return tables


def configured_queues(tables: dict[str, Any]) -> dict[str, int]:
    """Return the number of queues of each topic in ``topics.json``; empty if there is none."""
    table = tables.get("topics.json", tables.get("topics.json.bak", {})).get("topicConfigTable")
    found: dict[str, int] = {}
    for topic, entry in table.items() if isinstance(table, dict) else ():
        if isinstance(entry, dict):
            counts = [entry.get("readQueueNums", 0), entry.get("writeQueueNums", 0)]
            found[str(topic)] = max((n for n in counts if isinstance(n, int)), default=0)
    return found


def _read_replica(log: LogFolder, promises: Promises, findings: Findings) -> None:
    """Read what lies beside the log of a Raft group."""
    there = log.directory
    has_log = bool(log.segments.files)
    checkpoint = _decoded(f"{there}/checkpoint", replica.decode_checkpoint, findings)
    if checkpoint is not None:
        promises.synced_index, promises.committed_index = checkpoint
        mark = _maybe_read(f"{there}/synced", Part.CHECKPOINT, findings) or b""
        promises.synced_index = max(checkpoint.end_index, replica.decode_mark(mark, checkpoint))
    term = _decoded(f"{there}/currterm", replica.decode_hard_state, findings)
    if term is None and has_log and maybe_info(f"{there}/currterm") is None:
        findings.damage(
            Part.CHECKPOINT, "missing", f"{there}/currterm", None,
            "term and vote are missing beside a log", "a broker refuses to start",
        )  # fmt: skip
    _decoded(f"{there}/identity", replica.decode_identity, findings)
    _decoded(f"{there}/membership", decode_membership, findings)
    snapshot = _decoded(f"{there}/snapshot", decode_head, findings, Part.SNAPSHOT)
    if snapshot is not None:
        meta = snapshot[0]
        promises.begin = (meta.position, meta.id.last_index + 1)
    for name, what in (
        ("snapshot.part", "a snapshot was being received"),
        ("snapshot.install", "a snapshot was being installed"),
    ):
        if maybe_info(f"{there}/{name}") is not None:
            findings.harmless(
                Part.SNAPSHOT, "interrupted", f"{there}/{name}", None, what,
                "the next start finishes or drops it",
            )  # fmt: skip


def _read_times(data: bytes, path: str, promises: Promises, findings: Findings) -> None:
    times = _TIMES.unpack_from(data)
    for at, value in enumerate(times):
        if value < 0:
            findings.damage(
                Part.CHECKPOINT, "implausible", path, at * 8, f"a time of {value}",
                "it is written anew by the next broker",
            )  # fmt: skip
            return
    promises.flushed_ms, promises.queued_ms, promises.indexed_ms = times


def _decoded(
    path: str,
    decode: Callable[[bytes], Any],
    findings: Findings,
    part: Part = Part.CHECKPOINT,
) -> Any:  # noqa: ANN401  # whatever ``decode`` gives
    """Return what ``decode`` makes of a file, None if it is missing or damaged, which is noted."""
    data = _maybe_read(path, part, findings)
    if data is None:
        return None
    try:
        return decode(data)
    except ValueError as error:
        findings.damage(
            part, "unreadable", path, 0, str(error), "a broker refuses to start with it"
        )
        return None


def _maybe_read(path: str, part: Part, findings: Findings) -> bytes | None:
    try:
        return read_small(path, SNAPSHOT_BYTES_MAX if part is Part.SNAPSHOT else SMALL_BYTES_MAX)
    except ReadError as error:
        findings.damage(part, "unreadable", error.path, error.offset, error.reason)
        return None


def _maybe_json(path: str, findings: Findings) -> dict[str, Any] | None:
    data = _maybe_read(path, Part.CONFIG, findings)
    if data is None:
        return None
    try:
        value = loads(data.removeprefix(BOM_UTF8), FILE)
    except RemoteProtocolError:
        return None
    return value if isinstance(value, dict) else None

"""What ``ledgermq store`` prints: findings, messages and numbers, for people and as Parquet."""

from __future__ import annotations

import base64
import contextlib
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from cli.admin import print_table
from cli.say import say
from ledgermq.runtime.printable import shown
from store.offline.findings import Health, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.offline.folder import StoreFolder
    from store.offline.messages import Dump
    from store.offline.statistics import Statistics
    from store.offline.verify import Report

    Row = dict[str, Any]

BODY_SHOWN_MAX: Final = 60
BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 16 << 20
MEANING: Final = {
    Health.HEALTHY: "nothing is wrong",
    Health.HARMLESS: "nothing is lost; the next start puts this right",
    Health.DAMAGED: "bytes are not what was written, or are missing",
}
_ORDER: Final = {Severity.DAMAGE: 0, Severity.HARMLESS: 1, Severity.NOTE: 2}
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def print_report(report: Report) -> None:
    """Print what a check found, the worst first, and the verdict last."""
    totals = report.totals
    say(
        f"{shown(report.folder.root)}: {report.folder.kind} log from {totals['logBegin']} to"
        f" {totals['logEnd']}, {totals['records']} records, {totals['messages']} messages in"
        f" {totals['queues']} queues; {totals['indexEntries']} keys in {totals['indexFiles']} files"
    )
    for finding in sorted(report.findings.listed, key=lambda each: _ORDER[each.severity]):
        where = _relative(report.folder, finding.path)
        if finding.offset is not None:
            where += f" offset {finding.offset}"
        say(f"{finding.severity:<9} {finding.part}: {where}")
        remedy = f" ({finding.remedy})" if finding.remedy else ""
        say(f"{'':<9} {shown(finding.what)}{remedy}")
    for (severity, part, kind), count in report.findings.omitted.items():
        say(f"{severity:<9} {part}: {count} more of the kind {kind!r}")
    health = report.findings.health
    say(f"{health}: {MEANING[health]}")


def print_statistics(found: Statistics) -> None:
    """Print numbers as tables: log, key index, topics, queues."""
    say(
        f"{shown(found.folder.root)}: {found.folder.kind}"
        + (", not stopped cleanly" if found.folder.was_aborted else "")
        + (f", in use by process {found.in_use_by}" if found.in_use_by is not None else "")
    )
    for log in found.logs:
        _print_log(log, found.folder)
    if found.index:
        say("")
        rows = [_index_row(row) for row in found.index]
        print_table(rows, ("index", "entries", "slots", "begin", "end", "size", "disk", "error"))
    queues = [_queue_row(row) for row in (count.as_row() for _, count in _sorted(found))]
    if queues:
        say("")
        print_table(
            queues,
            ("topic", "queue", "messages", "min", "max", "behind", "bytes", "first", "last",
             "files", "disk"),
        )  # fmt: skip
    if found.damaged:
        say(f"{found.damaged} places could not be read; see: ledgermq store verify")


def message_line(row: Row) -> str:
    """Return a message as one line for people."""
    properties = row["properties"]
    body = base64.b64decode(row["bodyBase64"])
    text = body[: BODY_SHOWN_MAX * 4].decode("utf-8", "backslashreplace")
    text = shown(text[:BODY_SHOWN_MAX]) + ("..." if len(text) > BODY_SHOWN_MAX else "")
    named = [
        f"{name.lower()}={shown(properties[name])}" for name in ("TAGS", "KEYS")
        if name in properties
    ]  # fmt: skip
    return " ".join(
        [
            _moment(row["storeTimestamp"]),
            f"{shown(row['topic'])}/{row['queueId']}",
            f"{row['queueOffset']}",
            row["msgId"],
            *named,
            f"{len(body)} bytes: {text}",
        ]
    )


def write_parquet(messages: Dump, path: Path) -> None:
    """Write the messages to a new file. Errors: `FatalError`: it exists, or pyarrow is missing."""
    from ledgermq.runtime.errors import EXIT_BAD_INPUT, FatalError

    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        message = "--parquet needs pyarrow: pip install 'ledgermq[chaos]'"
        raise FatalError(message, EXIT_BAD_INPUT) from error
    if path.exists():
        raise FatalError(f"{path} exists; name a new file", EXIT_BAD_INPUT)
    numbers = {
        "queueId": pa.int32(), "queueOffset": pa.int64(), "commitLogOffset": pa.int64(),
        "storeSize": pa.int32(), "sysFlag": pa.int32(), "flag": pa.int32(), "bodyCRC": pa.int64(),
        "bornTimestamp": pa.int64(), "storeTimestamp": pa.int64(), "reconsumeTimes": pa.int32(),
        "preparedTransactionOffset": pa.int64(),
        "properties": pa.map_(pa.string(), pa.string()), "body": pa.binary(),
    }  # fmt: skip
    names = (
        "topic", "queueId", "queueOffset", "commitLogOffset", "storeSize", "sysFlag", "flag",
        "bodyCRC", "bornTimestamp", "bornHost", "storeTimestamp", "storeHost", "reconsumeTimes",
        "preparedTransactionOffset", "msgId", "offsetMsgId", "properties", "body",
    )  # fmt: skip
    schema = pa.schema([(name, numbers.get(name, pa.string())) for name in names])
    part = path.with_name(path.name + ".part")
    try:
        with parquet.ParquetWriter(part, schema) as writer:
            for rows in _batches(messages.message_rows()):
                writer.write_table(pa.Table.from_pylist(rows, schema))
        part.rename(path)
    except OSError as error:
        raise FatalError(f"{path} cannot be written: {error}", EXIT_BAD_INPUT) from error
    finally:
        with contextlib.suppress(OSError):  # renamed, or never made
            part.unlink()


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    size = 0
    for row in rows:
        body = base64.b64decode(row.pop("bodyBase64"))
        batch.append(row | {"properties": list(row["properties"].items()), "body": body})
        size += len(body)
        if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _print_log(log: Row, folder: StoreFolder) -> None:
    say(
        f"log {_relative(folder, log['directory'])}: {log['records']} records from {log['begin']}"
        f" to {log['end']}, {_moment(log['firstStored'])} to {_moment(log['lastStored'])}"
    )
    if log["kind"] == "dledger":
        say(
            f"  entries {log['firstIndex']} to {log['lastIndex']}, term {log['lastTerm']}, synced"
            f" {log['syncedIndex']}, committed {log['committedIndex']}, snapshot up to"
            f" {'none' if log['snapshotIndex'] is None else log['snapshotIndex']}"
        )
    say(
        f"  {log['segments']} segments of {_size(log['segmentBytes'])}:"
        f" {_size(log['apparentBytes'])}, {_size(log['allocatedBytes'])} on the disk"
    )


def _index_row(row: Row) -> Row:
    shown_row = {
        "index": os.path.basename(row["file"]), "size": _size(row["bytes"]),
        "disk": _size(row["allocated"]), "error": row.get("error"),
    }  # fmt: skip
    if "entries" not in row:
        return shown_row
    return shown_row | {
        "entries": f"{row['entries']} of {row['capacity'] - 1}",
        "slots": f"{row['usedSlots']} of {row['slots']}",
        "begin": _moment(row["firstStored"]),
        "end": _moment(row["lastStored"]),
    }


def _queue_row(row: Row) -> Row:
    return {
        "topic": shown(row["topic"]), "queue": row["queueId"], "messages": row["messages"],
        "min": row["minOffset"], "max": row["maxOffset"],
        "behind": max(0, row["maxOffset"] - row["queueEnd"]) or None,
        "bytes": _size(row["bytes"]), "first": _moment(row["firstStored"]),
        "last": _moment(row["lastStored"]), "files": _size(row["queueBytes"]),
        "disk": _size(row["queueAllocated"]),
    }  # fmt: skip


def _sorted(found: Statistics) -> list[Any]:
    return sorted(found.queues.items())


def _relative(folder: StoreFolder, path: str) -> str:
    return shown(path.removeprefix(f"{folder.root}/"))


def _moment(time_ms: int) -> str:
    """Return a time as text; as a number if no calendar has it."""
    if time_ms <= 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03d}Z"


def _size(count: int) -> str:
    value = float(count)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"

"""From the raw recordings of a run to the Parquet tables of ``chaos.history.tables``.

Sends are made by joining each invocation with its completion; an invocation without one (the
worker was killed) is ``info``. The rows of all workers are merged by time and numbered, and the
phase of each comes from the harness's phase marks. Knows no cluster; reads only RUN/raw.

Source: spec/proof.md 4.3.
"""

import bisect
import contextlib
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from chaos.history.arrow import arrow_schema
from chaos.history.payload import split_key
from chaos.history.tables import TABLES
from chaos.record import read_recording
from chaos.terms import Reigns

LAST_TABLE = "runs"
"""Once it is there, so are the others; some come before, when logs are collected."""
Row = dict[str, Any]
Tables = dict[str, list[Row]]


def convert(run: Path, run_row: Row) -> Tables:
    """Read RUN/raw, write RUN/tables, and return the tables' rows.

    ``run_row`` is the one row of ``runs``, which is written last. Errors: `DamagedRecording`.
    """
    tables = collect(run, str(run_row["run_id"]))
    tables[LAST_TABLE] = [run_row]
    for name, rows in tables.items():
        write_table(run, name, rows)
    return tables


def collect(run: Path, run_id: str) -> Tables:
    """Return the rows of all recordings of a run, by table."""
    tables: Tables = {name: [] for name in ("events", "deliveries", "acks", "raft_probe")}
    tables |= {"faults": [], "drain": [], "answers": [], "txn": [], "masters": []}
    for path in sorted((run / "raw").glob("*.jsonl")):
        for _, table, row in read_recording(path):
            row["run_id"] = run_id
            tables[table].append(row)
    # A fault is written at each change of its state; the last row says how it ended.
    tables["faults"] = list({row["fault_id"]: row for row in tables["faults"]}.values())
    events = sorted(tables["events"], key=lambda row: int(row["t_mono_ns"]))
    phase_of = Phases(events)
    for idx, row in enumerate(events):
        row["idx"] = idx
        row["phase"] = phase_of(int(row["t_mono_ns"]))
    tables["events"] = events
    tables["sends"] = make_sends(events, run_id)
    _tell_terms(tables)
    return tables


def _tell_terms(tables: Tables) -> None:
    """Write down in which term each send was acknowledged, where that is proved."""
    reigns = Reigns(tables["raft_probe"])
    for send in tables["sends"]:
        if send["outcome"] == "ok":
            term = reigns.term_at(send.get("node"), send["t_inv"], send["t_cmp"])
            send["raft_term"] = term
            send["raft_group"] = None if term is None else 0


class Phases:
    """The phase at a time, from the harness's ``phase`` events in time order."""

    def __init__(self, events: Iterable[Mapping[str, Any]]) -> None:
        marks = [e for e in events if e["f"] == "phase"]
        self._starts = [int(mark["t_mono_ns"]) for mark in marks]
        self._names = [str(mark["value"]["name"]) for mark in marks]

    def __call__(self, t_ns: int) -> str | None:
        """Return the phase in force at ``t_ns``; None before the first."""
        at = bisect.bisect_right(self._starts, t_ns) - 1
        return self._names[at] if at >= 0 else None


def make_sends(events: Iterable[Row], run_id: str) -> list[Row]:
    """Return one row per message sent, from its invocation and its completion if any."""
    sends: dict[int, list[Row]] = {}
    for event in events:
        if event["f"] != "send":
            continue
        if event["type"] == "invoke":
            sends[event["op_id"]] = _invoked(event, run_id)
        else:
            _complete(sends[event["op_id"]], event)
    return [row for rows in sends.values() for row in rows]


def _invoked(event: Row, run_id: str) -> list[Row]:
    """Return the rows of an invocation: several if it sent a batch."""
    value = event["value"]
    members = value.get("members")
    return [
        {
            "run_id": run_id,
            "op_id": event["op_id"],
            "msg_key": member["msg_key"],
            "pid": split_key(member["msg_key"])[0],
            "seq": split_key(member["msg_key"])[1],
            "process": event["process"],
            "topic": value["topic"],
            "kind": value.get("kind") or ("plain" if members is None else "batch"),
            "shard_key": value.get("shard_key"),
            "delay_ms": value.get("delay_ms"),
            "body_hash": member["body_hash"],
            "body_len": member["body_len"],
            "t_inv": event["t_mono_ns"],
            "t_cmp": None,
            "outcome": "info",
            "attempts": 1,
            "asked_queue": value.get("asked_queue"),
            "tag": member.get("tag"),
            "phase": event["phase"],
        }
        for member in members or (value,)
    ]


def _complete(rows: list[Row], event: Row) -> None:
    value = event["value"]
    # What was certainly refused before the append leaves no copy: A8 counts the others.
    attempts = [a for a in value.get("attempts", ()) if a.get("stored", True)]
    for number, send in enumerate(rows):
        send["t_cmp"] = event["t_mono_ns"]
        send["outcome"] = event["type"]
        send["err_code"] = event.get("err_code")
        send["attempts"] = max(1, len(attempts))
        send["tries"] = value.get("tries")
        for column in ("queue_id", "queue_offset", "node", "msg_id"):
            send[column] = value.get(column)
        if send["queue_offset"] is not None:
            send["queue_offset"] += number  # a batch lies side by side


def write_table(run: Path, name: str, rows: list[Row]) -> Path:
    """Write rows as the table's Parquet file; columns that a row lacks are null."""
    columns = TABLES[name]
    data = {c.name: [_cell(row.get(c.name), c.type) for row in rows] for c in columns}
    path = run / "tables" / name / "part-0000.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pydict(data, schema=arrow_schema(name))
    part = path.with_name(f".{path.stem}")
    pq.write_table(table, part, compression="zstd", write_page_checksum=True)
    return part.replace(path)


def read_table(run: Path, name: str) -> list[Row]:
    """Return a table's rows, [] if the run has none."""
    parts = sorted((run / "tables" / name).glob("*.parquet"))
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


def recorded_rows(run: Path, names: Iterable[str]) -> int:
    """Return how many rows these tables of a run have together; one that is damaged counts 0."""
    rows = 0
    for path in (path for name in names for path in (run / "tables" / name).glob("**/*.parquet")):
        with contextlib.suppress(OSError, pa.ArrowException):
            rows += pq.read_metadata(path).num_rows if path.is_file() else 0
    return rows


def _cell(value: object, ddl: str) -> object:
    if value is None:
        return None
    if ddl == "string" and isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True)
    if ddl == "timestamp" and isinstance(value, int):
        return datetime.fromtimestamp(value / 1e6, UTC)
    if ddl.startswith("map<") and isinstance(value, dict):
        return [(str(key), str(item)) for key, item in value.items()]
    return value

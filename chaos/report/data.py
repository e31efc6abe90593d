"""Reads what a report shows from a run directory: verdicts, faults, series for the plots.

Every table is optional; what is missing or broken is left out and named in ``notes``. Times are
seconds since the zero of ``run.json``, the one that the terminal showed; a fault is in force, and
a gap in service is measured, as `chaos.checker.effects` defines it. Source: spec/proof.md 4.3,
4.5.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from chaos.checker.clocks import tolerance_of
from chaos.checker.effects import service_gap

NS: Final = 1e9
ROWS_MAX: Final = 30_000_000  # above this a table's plot is left out, not the page
QUEUES_SHOWN: Final = 16
STEPS_MAX: Final = 20_000
"""Points of a line: a history of months has no point for each second."""

Series = dict[str, Any]
Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.int64]
Words = npt.NDArray[np.object_]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRow:
    """A fault of the plan; in force from ``start`` to ``end``, its injection began at ``began``."""

    fault_id: str
    kind: str
    targets: str
    method: str
    status: str
    began: float | None
    start: float | None
    end: float | None
    witness: dict[str, Any]
    in_flight: int

    @property
    def effective(self) -> bool:
        """Whether the witness saw the fault take effect."""
        return bool(self.witness.get("effective"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """A change of leader: who, when, and how long no send was acknowledged around it."""

    group: int
    old: str
    new: str
    term: int
    at: float
    leaderless_ms: float
    stall_ms: float | None
    cause: str


@dataclass(slots=True, kw_only=True)
class RunData:
    """Everything on the page."""

    run: dict[str, Any] = field(default_factory=dict)
    spark: dict[str, Any] = field(default_factory=dict)
    inprocess: dict[str, Any] = field(default_factory=dict)
    combined: dict[str, Any] = field(default_factory=dict)
    """What follows from both checkers; empty if only one looked."""
    notes: list[str] = field(default_factory=list)
    faults: list[FaultRow] = field(default_factory=list)
    failovers: list[Failover] = field(default_factory=list)
    phases: list[tuple[str, float, float]] = field(default_factory=list)
    sends: Series = field(default_factory=dict)
    unseen: Series = field(default_factory=dict)
    probes: dict[str, Series] = field(default_factory=dict)
    duration: float = 0.0


def load_run(path: Path) -> RunData:
    """Read a run directory. Errors: none for missing or broken files; they become notes."""
    data = RunData()
    data.run = _json(path / "run.json", data.notes)
    data.spark = _json(path / "verdict" / "results.json", data.notes)
    data.inprocess = _json(path / "verdict" / "inprocess.json", [])
    data.combined = _json(path / "verdict" / "judgement.json", [])
    sends = _timed(path, "sends", data, "t_inv t_cmp outcome topic queue_id msg_key")
    probes = _timed(path, "raft_probe", data, "t0 t1 node ok role term commit group")
    zero = _zero(data.run, sends, probes)
    if sends is not None and sends.num_rows:
        data.sends = _send_series(sends, zero)
        data.duration = max(data.duration, float(data.sends["end"].max()))
        data.unseen = _unseen(path, data, sends, zero)
    if probes is not None and probes.num_rows:
        data.probes = _probe_series(probes, zero)
        data.duration = max(data.duration, *(float(p["t"].max()) for p in data.probes.values()))
    data.faults = _faults(path, data, zero)
    data.failovers = _failovers(data)
    data.phases = [
        (str(p["name"]), (p["t0"] - zero) / NS, (p["t1"] - zero) / NS)
        for p in data.run.get("phases", [])
        if isinstance(p, dict) and p.get("t0") is not None and p.get("t1") is not None
    ]
    return data


def _json(path: Path, notes: list[str]) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except FileNotFoundError:
        notes.append(f"{path.name} is missing")
    except (OSError, ValueError, TypeError) as error:
        notes.append(f"{path.name} cannot be read: {error}")
    return {}


def _table(path: Path, name: str, data: RunData, columns: str) -> pa.Table | None:
    files = sorted((path / "tables" / name).glob("**/*.parquet"))
    parts = []
    rows = 0
    for file in files:
        if not file.is_file():  # nobody may ever write into a pipe
            data.notes.append(f"{file.name} of {name} is not a regular file")
            continue
        try:
            with pq.ParquetFile(file) as parquet:
                rows += parquet.metadata.num_rows
                present = [c for c in columns.split() if c in parquet.schema_arrow.names]
                if rows > ROWS_MAX:
                    data.notes.append(f"{name} has more than {ROWS_MAX} rows: not plotted")
                    return None
                parts.append(parquet.read(columns=present))
        except (OSError, pa.ArrowException) as error:
            data.notes.append(f"{file.name} of {name} cannot be read: {error}")
    if not parts:
        data.notes.append(f"the table {name} is missing")
        return None
    table = pa.concat_tables(parts, promote_options="permissive")
    for column in columns.split():
        if column not in table.column_names:
            table = table.append_column(column, pa.nulls(table.num_rows))
    return table


def _timed(path: Path, name: str, data: RunData, columns: str) -> pa.Table | None:
    """Return the rows of a table that have a time, in the first of its columns."""
    table, (time, *_) = _table(path, name, data, columns), columns.split()
    return None if table is None else table.filter(pc.is_valid(table[time]))


def _floats(table: pa.Table, column: str) -> Floats:
    # Not safe: a clock that has run for 104 days exceeds what a float holds to the nanosecond.
    values = table[column].cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=float)


def _keys(table: pa.Table) -> Keys:
    """Return the message keys; they use all 64 bits, so never as floats."""
    values = table["msg_key"].cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=np.int64)


def _strings(table: pa.Table, column: str) -> Words:
    return np.asarray(table[column].cast(pa.string()).fill_null("").to_pylist(), dtype=object)


def _zero(run: dict[str, Any], *tables: pa.Table | None) -> float:
    if run.get("t0_mono_ns") is not None:
        return float(run["t0_mono_ns"])
    firsts = [
        np.nanmin(_floats(table, column))
        for table, column in zip(tables, ("t_inv", "t0"), strict=True)
        if table is not None and table.num_rows
    ]
    return float(min(firsts)) if firsts else 0.0


def _send_series(sends: pa.Table, zero: float) -> Series:
    start = (_floats(sends, "t_inv") - zero) / NS
    end = (_floats(sends, "t_cmp") - zero) / NS
    outcome = _strings(sends, "outcome")
    outcome[outcome == ""] = "info"
    done = np.where(np.isnan(end), start, end)
    answered = np.where(np.isnan(end), np.inf, end)
    times = {"start": start, "end": done, "answered": answered}
    return {**times, "latency": done - start, "outcome": outcome}


def _unseen(path: Path, data: RunData, sends: pa.Table, zero: float) -> Series:
    """Return, per queue, how many acknowledged messages no consumer has had yet, over time."""
    got = _timed(path, "deliveries", data, "t_recv msg_key auditor")
    if got is None or not got.num_rows:
        return {}
    audited = np.asarray(got["auditor"].cast(pa.bool_()).fill_null(fill_value=False).to_pylist())
    keys = _keys(got)[~audited]
    seen_at = ((_floats(got, "t_recv") - zero) / NS)[~audited]
    order = np.argsort(seen_at, kind="stable")
    distinct, first = np.unique(keys[order], return_index=True)
    first_seen = seen_at[order][first]
    ok = data.sends["outcome"] == "ok"
    sent_keys = _keys(sends)[ok]
    at = np.searchsorted(distinct, sent_keys)
    at[at >= len(distinct)] = 0
    known = (distinct[at] == sent_keys) if len(distinct) else np.zeros(len(sent_keys), bool)
    seen = np.where(known, first_seen[at] if len(distinct) else np.inf, np.inf)
    queue = _strings(sends, "topic")[ok] + "/" + _strings(sends, "queue_id")[ok]
    acked = data.sends["end"][ok]
    end = max(acked.max(initial=0), seen_at.max(initial=0)) + 1.0
    steps = np.arange(0.0, end, max(0.25, end / STEPS_MAX))
    lines = {}
    for name in sorted(set(queue))[:QUEUES_SHOWN]:
        mine = queue == name
        # Delivered before the acknowledgement came back: not unseen at any time.
        left = np.sort(np.maximum(seen[mine], acked[mine]))
        lines[name] = np.searchsorted(np.sort(acked[mine]), steps, side="right") - np.searchsorted(
            left, steps, side="right"
        )
    return {"t": steps, "queues": lines}


def _probe_series(probes: pa.Table, zero: float) -> dict[str, Series]:
    node, role = _strings(probes, "node"), _strings(probes, "role")
    ok = np.asarray(probes["ok"].cast(pa.bool_()).fill_null(fill_value=False).to_pylist())
    t = (_floats(probes, "t0") - zero) / NS
    columns = {name: _floats(probes, name) for name in ("term", "commit", "group")}
    series = {}
    for name in sorted(set(node)):
        mine = np.flatnonzero(node == name)
        mine = mine[np.argsort(t[mine], kind="stable")]
        series[name] = {
            "t": t[mine],
            "role": np.array(
                [
                    r.lower() if up else "no answer"
                    for r, up in zip(role[mine], ok[mine], strict=True)
                ],
                dtype=object,
            ),
            **{column: values[mine] for column, values in columns.items()},
        }
    return series


def _faults(path: Path, data: RunData, zero: float) -> list[FaultRow]:
    columns = "fault_id kind targets method status t_on0 t_on1 t_off0 t_off1 witness"
    table = _table(path, "faults", data, columns)
    rows = []
    for raw in table.to_pylist() if table is not None else []:
        began, start, end = (
            None if t is None else (t - zero) / NS
            for t in (_first(raw, "t_on0", "t_on1"), _first(raw, "t_on1"), _first(raw, "t_off0"))
        )
        rows.append(
            FaultRow(
                fault_id=str(raw["fault_id"]),
                kind=str(raw["kind"]),
                targets=", ".join(raw["targets"] or ()),
                method=str(raw["method"] or ""),
                status=str(raw["status"] or ""),
                began=began,
                start=start,
                end=end,
                witness=dict(raw["witness"] or {}),
                in_flight=_overlapping(data.sends, start, end, tolerance_of(data.run) / NS),
            )
        )
    return sorted(rows, key=lambda row: (row.start is None, row.start or 0.0))


def _first(row: dict[str, Any], *names: str) -> int | None:
    return next((row[name] for name in names if row[name] is not None), None)


def _overlapping(sends: Series, start: float | None, end: float | None, clocks: float) -> int:
    """Return how many sends a fault overlaps; ``clocks``: how far they may differ, in seconds."""
    if not sends or start is None or end is None:
        return 0
    room = 2 * clocks  # both may have begun so much earlier, and ended so much later
    return int(((sends["start"] <= end + room) & (sends["answered"] >= start - room)).sum())


def _failovers(data: RunData) -> list[Failover]:
    sightings = sorted(
        (float(t), int(group) if group == group else 0, float(term), name)  # noqa: PLR0124 - NaN
        for name, probe in data.probes.items()
        for t, role, term, group in zip(
            probe["t"], probe["role"], probe["term"], probe["group"], strict=True
        )
        if role == "leader"
    )
    acks = np.sort(data.sends["end"][data.sends["outcome"] == "ok"]) if data.sends else np.array([])
    changes = []
    current: dict[int, tuple[float, float, str]] = {}
    for t, group, term, name in sightings:
        before = current.get(group)
        if before is not None and term < before[1]:
            continue  # an old leader that has not heard yet
        if before is not None and term > before[1]:
            fault = _cause(data.faults, before[2], before[0], t)
            begin = before[0] if fault is None or fault.began is None else fault.began
            until = t if fault is None or fault.start is None else fault.start
            changes.append(
                Failover(
                    group=group,
                    old=before[2],
                    new=name,
                    term=int(term),
                    at=t,
                    leaderless_ms=(t - begin) * 1000,
                    stall_ms=_stall(acks, begin, until),
                    cause="" if fault is None else f"{fault.fault_id} {fault.kind}",
                )
            )
        current[group] = (t, term, name)
    return changes


def _cause(faults: list[FaultRow], node: str, last_seen: float, elected: float) -> FaultRow | None:
    """Return the fault that hit the old leader last before the new one was seen."""
    near = [
        f
        for f in faults
        if f.began is not None
        and node in f.targets.split(", ")
        and last_seen - 15.0 <= f.began <= elected
    ]
    return near[-1] if near else None


def _stall(acks: Floats, begin: float, until: float) -> float | None:
    """Return the longest time (ms) without an acknowledged send around ``begin..until``."""
    first = max(0, int(np.searchsorted(acks, begin)) - 1)
    last = int(np.searchsorted(acks, until, side="right")) + 1
    found = service_gap(acks[first:last].tolist(), begin, until)
    return None if found is None else found[0] * 1000

"""Histories of many chapters in which cells, rows and log entries are changed at random.

Each chapter has a topic, a group and a producer of its own, so a history of 40 is 40 small ones
that share nodes, logs and elections. What a change amounts to is for the checkers to say: this
knows no anomaly. ``SPOILED_SEEDS=1..20 pytest tests/spark/test_agreement.py -k spoiled`` asks both
about 20 such histories, in one Spark session.
"""

import copy
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from chaos.checker import check_history
from chaos.history.domains import ORDERED
from chaos.load import load_history
from chaos.verdict import compare
from spark.job import Report
from tests.spark.generate import MS, HistoryBuilder
from tests.spark.kinds import FAMILIES
from tests.spark.leaders import elect
from tests.spark.minimal import recorded

Row = dict[str, Any]
SHIFTS_NS: Final = (1, -1, MS, -MS, -5 * MS, 100 * MS, -100 * MS, 4_000 * MS, 20_000 * MS)
SHIFTS: Final = (1, -1, 1, -2, 2, 5, 1_000)
WORDS: Final = {
    ("sends", "outcome"): ("ok", "fail", "info"),
    ("sends", "kind"): ("plain", "batch", "orderly", "delay", "txn"),
    ("acks", "kind"): ("ack", "nack", "commit", "reset", "fetch"),
    ("acks", "outcome"): ("ok", "fail", "info"),
    ("txn", "step"): ("half", "commit", "rollback", "checkback"),
    ("txn", "answer"): ("commit", "rollback", "unknown"),
    ("faults", "status"): ("planned", "active", "skipped", "failed", "healed"),
    ("faults", "kind"): ("kill", "wipe", "pause", "cut", "flip", "clock_jump", "power_loss", "odd"),
    ("raft_event", "kind"): (
        "become_leader", "vote_granted", "append", "commit", "truncate", "boot", "vote_refused",
    ),
}  # fmt: skip
FLAGS: Final = ("is_retry", "is_dlq", "auditor", "durable", "drained", "ok")
NUMBERS: Final = (
    "queue_offset", "queue_id", "index", "prev_index", "term", "generation", "value_offset",
    "reconsume", "min_off", "end_off", "read_to", "commit", "applied", "epoch", "pos", "delay_ms",
)  # fmt: skip


def chapters(rng: random.Random, count: int) -> HistoryBuilder:
    """Return a sound history with so many chapters, and one message of each kind beside them."""
    run = HistoryBuilder()
    recorded(run, 2)
    run.election("n0", 1)
    for number in range(2, 2 + count):
        part = run.chapter(number, queues=rng.randint(1, 3))
        sent = part.traffic(rng.randint(8, 25))
        for message in sent[:3]:
            part.deliver(message, grp="audit", auditor=True, consumer="a", generation=1)
        for delivered in (True, False):
            unsure = part.send(outcome="info", stored=delivered)
            if delivered:
                part.deliver(unsure)
        part.send(outcome="fail", stored=False)
        run.clock = max(run.clock, part.clock + 50_000 * MS)
    for family in FAMILIES:
        family(run)
    last = len(run.logs["n0"]) - 1
    elect(run, "n1", 2, last=last)
    run.event("n1", "append", 2, index=last + 1, prev_index=last)
    return run


def spoil(run: HistoryBuilder, rng: random.Random) -> str:
    """Change something; say what."""
    if rng.random() < 0.1:
        return _spoil_log(run, rng)
    table = rng.choice(sorted(name for name, rows in run.tables.items() if rows))
    rows = run.tables[table]
    at = rng.randrange(len(rows))
    change = rng.choice((_shift_time, _shift_number, _another_word, _turn, _swap, _remove, _repeat))
    return f"{table}[{at}]: {change(table, rows, at, rng)}"


def _shift_time(table: str, rows: list[Row], at: int, rng: random.Random) -> str:
    row = rows[at]
    times = [name for name, value in row.items() if _is_time(name) and value is not None]
    said = _shift(row, times, SHIFTS_NS, rng)
    # What ends before it begins is refused as a whole, and nothing of it is judged.
    moved = said.split()[0]
    for begin, end in ORDERED.get(table, ()):
        if None not in {row.get(begin), row.get(end)} and row[end] < row[begin]:
            row[begin] = row[end] = row[moved if moved in {begin, end} else begin]
    return said


def _shift_number(_table: str, rows: list[Row], at: int, rng: random.Random) -> str:
    numbers = [name for name in NUMBERS if isinstance(rows[at].get(name), int)]
    return _shift(rows[at], numbers, SHIFTS, rng)


def _shift(row: Row, names: Sequence[str], by: Sequence[int], rng: random.Random) -> str:
    if not names:
        return "nothing to shift"
    name = rng.choice(names)
    row[name] = max(0, row[name] + rng.choice(by))
    return f"{name} is {row[name]}"


def _another_word(table: str, rows: list[Row], at: int, rng: random.Random) -> str:
    names = [name for name in rows[at] if (table, name) in WORDS]
    for name in names[:1]:
        rows[at][name] = rng.choice(WORDS[table, name])
        return f"{name} is {rows[at][name]}"
    return "no word to change"


def _turn(_table: str, rows: list[Row], at: int, _rng: random.Random) -> str:
    for name in FLAGS:
        if isinstance(rows[at].get(name), bool):
            rows[at][name] = not rows[at][name]
            return f"{name} is {rows[at][name]}"
    return "no flag to turn"


def _swap(_table: str, rows: list[Row], at: int, rng: random.Random) -> str:
    row, other = rows[at], rng.choice(rows)
    names = [n for n, value in row.items() if value is not None and other.get(n) is not None]
    name = rng.choice(names)
    row[name], other[name] = other[name], row[name]
    return f"{name} swapped"


def _remove(_table: str, rows: list[Row], at: int, _rng: random.Random) -> str:
    del rows[at]
    return "removed"


def _repeat(table: str, rows: list[Row], at: int, _rng: random.Random) -> str:
    row = copy.deepcopy(rows[at])
    if table == "raft_event":  # numbered without a gap by each node
        row["seq"] = 1 + max(one["seq"] or 0 for one in rows if one["node"] == row["node"])
    elif table == "faults":
        row["fault_id"] += "-again"
    elif row.get("op_id") is not None:  # one row of one operation, twice, is refused
        row["op_id"] += 1_000_000
    rows.append(row)
    return "repeated"


def _is_time(name: str) -> bool:
    return name.startswith("t_") or name in {"t0", "t1"}


def _spoil_log(run: HistoryBuilder, rng: random.Random) -> str:
    node = rng.choice(sorted(run.logs))
    log = run.logs[node]
    at = rng.randrange(len(log))
    entry = log[at] = copy.copy(log[at])
    change: Callable[[], object] = rng.choice((
        lambda: setattr(entry, "queue_offset", entry.queue_offset + 1),
        lambda: setattr(entry, "queue_id", entry.queue_id + 1),
        lambda: setattr(entry, "body", b"z" * len(entry.body)),
        lambda: setattr(entry, "term", entry.term + 1),
        lambda: run.commits.update({node: log[-1].index - 1}),
        log.pop,
    ))  # fmt: skip
    change()
    return f"log of {node}, around {at}"


def differences(path: Path, report: Report) -> list[str]:
    """Return on what the checkers differ about a history, and which of their checks crashed."""
    ours = check_history(load_history(path)).as_json()
    theirs = json.loads(json.dumps(report.as_json(), default=str))
    crashed = [
        f"{check} crashed: {told[check]['summary']}"
        for told in (ours["checks"], theirs["checks"])
        for check in told
        if "check failed" in told[check]["summary"]
    ]
    return crashed + compare(ours, theirs)

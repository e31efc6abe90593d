"""Reads a run's recordings while they are written, and lands what it reads as Parquet files.

Spark streams over files that appear whole; recordings (``RUN/raw/*.jsonl``) only grow. A `Feed`
reads what was added since it last looked and puts it, one row per fact, into a file that appears
at once. A row ``mark`` ends each round: whatever had happened by its time is in what was landed so
far, for an operation is on record before anybody can see what it did.

Source: docs/chaos.md, "While it runs"; `chaos.history.tables` has the meaning of the columns.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from chaos.catalogue.contracts import NONE
from chaos.catalogue.faults import exceeds, forgets, moves_clock, that_may_take
from chaos.history.outcome import CODES

SCHEMA: Final = pa.schema([
    ("what", pa.string()), ("t", pa.int64()), ("msg_key", pa.int64()), ("hash", pa.int64()),
    ("topic", pa.string()), ("queue_id", pa.int32()), ("queue_offset", pa.int64()),
    ("grp", pa.string()), ("node", pa.string()), ("outcome", pa.string()), ("due", pa.int64()),
    ("copied", pa.bool_()), ("word", pa.string()), ("role", pa.string()), ("term", pa.int64()),
    ("commit", pa.int64()), ("applied", pa.int64()), ("boot", pa.string()), ("ended", pa.int64()),
    ("raft_group", pa.int32()), ("rows", pa.int64()), ("begun", pa.int64()),
    ("op_id", pa.int64()),
])  # fmt: skip
"""One fact. ``what``: send, end (of a send), delivery, call (of an orderly listener, by a delivery
in it: ``begun`` and ``ended``; ``node`` is the consumer), txn, probe or mark; ``t`` is when (ns).
Of an end: when the send had ``begun``. Of a mark: ``rows`` landed before it, and in ``due`` up to
when all files were read in the order of time."""
ROWS_PER_FILE: Final = 50_000
BYTES_PER_LOOK: Final = 2 << 20
"""So much of a recording is read in one round: a backlog takes several."""
LINE_BYTES_MAX: Final = 64 << 20
"""A longer line is none of a recorder."""
EARLY_MAX: Final = 50_000
"""So many deliveries may wait for the first send to their topic before consumers' files wait."""
LANDING: Final = "landing"
_MS: Final = 1_000_000
_DOUBTFUL: Final = frozenset(code for code, row in CODES.items() if not row.definite)


@dataclass(slots=True)
class _Recording:
    """How far a file was read, and the time of the last fact in it."""

    offset: int = 0
    lines: int = 0
    latest: int = 0
    has_more: bool = False


class DamagedFeedError(Exception):
    """A recording has a line that is none, or lacks one; names the file."""


@dataclass(slots=True)
class Feed:
    """Lands the recordings of ``run`` in ``folder``. One feed per folder.

    Errors of its making: `DamagedFeedError` for a run.json that is none; OSError.
    """

    run: Path
    folder: Path
    _recordings: dict[Path, _Recording] = field(default_factory=dict)
    _open: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """Sends in flight, by operation: the facts of their invocations."""
    _topics: set[str] = field(default_factory=set)
    _early: list[dict[str, Any]] = field(default_factory=list)
    """Deliveries on topics of which no send was read yet: looked at once more."""
    _own: frozenset[str] = frozenset()
    _orderly: frozenset[str] = frozenset()
    """The groups that get one call of a queue at a time, as run.json names them."""
    _files: int = 0
    _rows: int = 0
    clocks_move: bool = False
    """Whether a fault of the plan moves wall clocks: waits are not judged then."""
    nodes_forget: bool = False
    """Whether a fault of the plan takes a node's memory: its terms are not judged then."""
    may_lose: bool = False
    """Whether a fault of the plan, or the mode, may take what was acknowledged."""
    landed: int = 0
    """How many rows were landed, marks too."""
    _flush: str = ""
    _may_lose: bool = False
    """Whether the mode promises nothing."""
    _planned: set[str] = field(default_factory=set)
    """The kinds of faults of the plan, all of which are on record before the first is applied."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            about = json.loads((self.run / "run.json").read_text())
            contract = about.get("contract") or {}
            modes = dict(about.get("modes") or {})
        except (ValueError, TypeError, AttributeError) as error:
            raise DamagedFeedError(f"{self.run / 'run.json'}: {error}") from error
        self._own = frozenset(str(about[n]) for n in ("run_id", "run_tag") if n in about)
        self._orderly = frozenset(name for name, mode in modes.items() if mode == "orderly")
        self._flush = str(contract.get("flush", "ASYNC_FLUSH")).lower()
        self.may_lose = self._may_lose = contract.get("durability") == NONE

    @property
    def rows(self) -> int:
        """How many facts were landed so far."""
        return self._rows

    def look(self, now_ns: int | None = None) -> int:
        """Land what was added, and return how many facts that were.

        ``now_ns``: the time before which all that happened is on record, by default now. Errors:
        `DamagedFeedError`; OSError.
        """
        begun = time.monotonic_ns() if now_ns is None else now_ns
        early, self._early = self._early, []
        facts: list[dict[str, Any]] = []
        for path in self._paths():
            if _is_of_producer(path) or len(early) + len(self._early) < EARLY_MAX:
                facts += self._read(path)
            else:  # until producers' were read so far: that tells of which topics these are
                self._recordings.setdefault(path, _Recording()).has_more = True
        late = any(recording.has_more for recording in self._recordings.values())
        sent = [one for path, one in self._recordings.items() if _is_of_producer(path)]
        fresh = len(self._early)
        facts += [fact for row in early for fact in self._of_delivery(row)]
        if not any(one.has_more for one in sent):  # nobody sent to their topics before these
            del self._early[fresh:]
        for start in range(0, len(facts), ROWS_PER_FILE):
            self._land(facts[start : start + ROWS_PER_FILE])
        known = [r.latest for r in self._recordings.values() if r.latest]
        behind = [r.latest for r in self._recordings.values() if r.has_more and r.latest]
        mark: dict[str, Any] = {"what": "mark", "rows": self._rows}
        mark["t"] = 0 if late else begun  # with a backlog nothing is known to be missing
        mark["due"] = min(behind, default=max(known, default=0))
        if facts or not late:
            self._land([mark], counted=False)
        return len(facts)

    @property
    def is_behind(self) -> bool:
        """Whether there is more that the next look will read."""
        return any(recording.has_more for recording in self._recordings.values())

    def _paths(self) -> list[Path]:
        """Return the recordings, producers' first: sends come before what is made of them."""
        return sorted((self.run / "raw").glob("*.jsonl"), key=lambda p: (not _is_of_producer(p), p))

    def _read(self, path: Path) -> Iterator[dict[str, Any]]:
        at = self._recordings.setdefault(path, _Recording())
        with path.open("rb") as file:
            file.seek(at.offset)
            chunk = file.read(BYTES_PER_LOOK)
            at.has_more = len(chunk) == BYTES_PER_LOOK
            while at.has_more and b"\n" not in chunk[-BYTES_PER_LOOK:]:  # a line of more than that
                if len(chunk) >= LINE_BYTES_MAX:
                    why = f"a line of more than {LINE_BYTES_MAX >> 20} MiB"
                    raise DamagedFeedError(f"{path}:{at.lines + 1}: {why}")
                more = file.read(BYTES_PER_LOOK)
                chunk += more
                at.has_more = len(more) == BYTES_PER_LOOK
        whole = chunk.rfind(b"\n") + 1  # the last line may be half written
        at.offset += whole
        for line in chunk[:whole].splitlines():
            try:
                number, table, row = json.loads(line)
            except ValueError as error:
                raise DamagedFeedError(f"{path}:{at.lines + 1}: {error}") from error
            if number != at.lines:
                raise DamagedFeedError(f"{path}:{at.lines + 1}: record {number}")
            at.lines += 1
            for fact in self._facts(table, row):
                at.latest = max(at.latest, fact["t"])
                yield fact

    def _facts(self, table: str, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        match table:
            case "events" if row["f"] == "send":
                yield from self._of_send(row)
            case "deliveries":
                yield from self._of_delivery(row)
            case "txn":
                word = row["answer"] if row["step"] == "checkback" else row["step"]
                yield {"what": "txn", "t": row["t_inv"], "msg_key": row["msg_key"], "word": word}
            case "raft_probe" if row["ok"]:
                names = {"t": "t0", "ended": "t1", "raft_group": "group", "boot": "boot_id"}
                same = {name: name for name in ("node", "term", "role", "commit", "applied")}
                yield {"what": "probe"} | {to: row.get(of) for to, of in (names | same).items()}
            case "faults":
                self.clocks_move |= moves_clock(row["kind"])
                self._planned.add(str(row["kind"]))
                taking = that_may_take(self._planned)
                self.nodes_forget = any(map(forgets, taking))
                self.may_lose = self._may_lose or any(exceeds(k, self._flush) for k in taking)

    def _of_send(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        value = row["value"]
        if row["type"] == "invoke":
            delay = value.get("delay_ms")
            facts = [
                {
                    "what": "send",
                    "t": row["t_mono_ns"],
                    "msg_key": member["msg_key"],
                    "hash": member["body_hash"],
                    "topic": value["topic"],
                    "due": None if delay is None else row["t_mono_ns"] + delay * _MS,
                }
                for member in value.get("members") or (value,)
            ]
            self._topics.add(value["topic"])
            self._open[row["op_id"]] = facts
            yield from facts
            return
        offset = value.get("queue_offset")
        for number, fact in enumerate(self._open.pop(row["op_id"], ())):
            yield fact | {
                "what": "end",
                "t": row["t_mono_ns"],
                "begun": fact["t"],
                "outcome": "refused" if _is_refused(row) else row["type"],
                "queue_id": value.get("queue_id"),
                "queue_offset": None if offset is None else offset + number,
                "node": value.get("node"),
            }

    def _of_delivery(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        copied = bool(row.get("is_retry") or row.get("is_dlq"))
        tag = row.get("payload_run_id")
        if tag is not None and tag not in self._own:
            return
        if not copied and row["topic"] not in self._topics:
            self._early.append(row)
            return
        same = ("msg_key", "topic", "queue_id", "queue_offset", "grp", "node")
        fact = {name: row.get(name) for name in same}
        fact |= {"hash": row.get("body_hash"), "copied": copied}
        yield {"what": "delivery", "t": row["t_recv"], **fact}
        begun, ended = row.get("t_proc_begin"), row.get("t_proc_end")
        if row["grp"] in self._orderly and None not in (begun, ended) and not row.get("is_dlq"):
            queue = {name: row[name] for name in ("topic", "queue_id", "grp", "op_id")}
            call = {"what": "call", "t": ended, "node": row.get("consumer")}
            yield call | queue | {"begun": begun, "ended": ended}

    def _land(self, facts: list[dict[str, Any]], *, counted: bool = True) -> None:
        """Write a file that appears whole."""
        name = f"part-{self._files:08d}.parquet"
        hidden = self.folder / f".{name}"
        pq.write_table(pa.Table.from_pylist(facts, schema=SCHEMA), hidden)
        hidden.rename(self.folder / name)
        self._files += 1
        self.landed += len(facts)
        self._rows += len(facts) if counted else 0


def _is_of_producer(path: Path) -> bool:
    return "producer" in path.name


def _is_refused(row: dict[str, Any]) -> bool:
    """Whether a send certainly stored nothing: by what its attempts ended with, or by its code."""
    known = row["value"].get("tries") is not None or row.get("err_code") not in _DOUBTFUL
    return bool(row["type"] == "fail" and known)

"""Builds small histories: a run directory with tables and replicas' segments, sound or spoiled.

`HistoryBuilder` records what a run would have recorded; tests spoil it through its public lists
before `write`. `random_history` plants a random set of anomalies and says what it planted.
"""

import json
import random
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from chaos.history import payload
from chaos.history.arrow import arrow_schema

MS = 1_000_000
TOPIC = "orders"
GROUP = "billing"


@dataclass(slots=True)
class Entry:
    index: int
    term: int
    queue_id: int
    queue_offset: int
    body: bytes
    topic: str = TOPIC
    sys_flag: int = 0
    body_crc: int | None = None


@dataclass(slots=True)
class Message:
    key: int
    queue_id: int
    queue_offset: int
    body: bytes
    index: int
    t: int
    send: dict[str, Any]
    delivery: dict[str, Any] | None = None


def encode_record(entry: Entry, pos: int) -> bytes:
    topic, properties = entry.topic.encode(), b"UNIQ_KEY\x01" + b"0" * 32 + b"\x02"
    wide = len(topic) > 127
    host = struct.pack(">4si", b"\x7f\0\0\1", 10911)
    body_crc = zlib.crc32(entry.body) & 0x7FFFFFFF if entry.body_crc is None else entry.body_crc
    tail = struct.pack(">i", len(entry.body)) + entry.body
    tail += struct.pack(">H" if wide else ">B", len(topic)) + topic
    tail += struct.pack(">h", len(properties)) + properties
    head = struct.pack(
        ">IIiiqqiq",
        0xDAA320AB if wide else 0xDAA320A7,
        body_crc,
        entry.queue_id,
        0,
        entry.queue_offset,
        pos + 48,
        entry.sys_flag,
        1,
    )
    rest = host + struct.pack(">q", 2) + host + struct.pack(">iq", 0, 0)
    size = 4 + len(head) + len(rest) + len(tail)
    return struct.pack(">i", size) + head + rest + tail


def encode_segment(entries: list[Entry], start: int = 0, blank: int = 64) -> bytes:
    out = bytearray()
    for entry in entries:
        pos = start + len(out)
        body = encode_record(entry, pos)
        size = 48 + len(body)
        out += struct.pack(
            ">iiqqqiiIi", 1, size, entry.index, entry.term, pos, 0, 0, zlib.crc32(body), len(body)
        )
        out += body
    return bytes(out) + struct.pack(">ii", -1, blank) if blank else bytes(out)


@dataclass
class HistoryBuilder:
    """A run of one topic and one group on three nodes; everything public may be spoiled."""

    run_id: str = "a-run"
    nodes: tuple[str, ...] = ("n0", "n1", "n2")
    queues: int = 2
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    logs: dict[str, list[Entry]] = field(default_factory=dict)
    commits: dict[str, int] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    drained: bool = True
    with_replicas: bool = True
    first_index: dict[str, int] = field(default_factory=dict)
    clock: int = 1_000 * MS
    entries_per_segment: int = 10_000
    consumes: dict[str, set[str]] = field(default_factory=dict)
    """Groups, the auditor too, that read topics of their own and are owed nothing else."""
    drain_lacks: dict[tuple[str, str], str] = field(default_factory=dict)
    """A column of ``drain`` that is empty, by group and topic."""
    raft_groups: dict[str, str] = field(default_factory=dict)
    """The Raft group of a node's log, where it is not the usual one."""
    with_queues: bool = False
    """Whether somebody read the queue files of all nodes."""
    queue_spoils: list[Callable[[list[dict[str, Any]]], object]] = field(default_factory=list)
    """What is done to the rows of them."""
    topic: str = TOPIC
    grp: str = GROUP
    pid: int = 1

    def __post_init__(self) -> None:
        self.run = {
            "run_id": self.run_id,
            "nodes": list(self.nodes),
            "contract": {"durability": "quorum", "flush": "ASYNC_FLUSH"},
            "topic": TOPIC,
            "group": GROUP,
            "quorum": 2,
            "coverage": {},
            "problems": [],
        }
        self.logs = {node: [] for node in self.nodes}
        self.tag = bytes.fromhex(payload.run_tag(self.run_id))
        self._sequence = 0
        self._offsets: dict[tuple[str, int], int] = {}
        self._op = 0

    def chapter(self, number: int, queues: int = 2) -> "HistoryBuilder":
        """Return a part of this history with a topic, a group, a producer and times of its own."""
        part = HistoryBuilder(
            queues=queues,
            topic=f"{TOPIC}-{number}",
            grp=f"{GROUP}-{number}",
            pid=number,
            nodes=self.nodes,
            clock=number * 1_000_000 * MS,
        )
        shared = ("run_id", "run", "tag", "tables", "logs", "commits", "consumes", "_offsets")
        for name in (*shared, "drain_lacks"):
            setattr(part, name, getattr(self, name))
        part._op = number * 10_000
        self.consumes[part.grp] = {part.topic}
        return part

    def op(self) -> int:
        self._op += 1
        return self._op

    def add(self, table: str, **row: Any) -> dict[str, Any]:
        row = {"run_id": self.run_id} | row
        self.tables.setdefault(table, []).append(row)
        return row

    def send(
        self,
        *,
        queue_id: int | None = None,
        outcome: str = "ok",
        topic: str = "",
        stored: bool | None = None,
        term: int = 1,
        **row: Any,
    ) -> Message:
        """A send; it is stored on all nodes if it is ok (or `stored` says so)."""
        self._sequence += 1
        self.clock += 2 * MS
        seq, pid, topic = self._sequence, self.pid, topic or self.topic
        queue_id = seq % self.queues if queue_id is None else queue_id
        stored = outcome == "ok" if stored is None else stored
        key = payload.make_key(pid, seq)
        body = payload.encode_body(self.tag, key, 28 + seq % 50)
        offset = self._offsets.get((topic, queue_id), 0)
        index = max((e.index for e in self.logs[self.nodes[0]]), default=-1) + 1
        if stored:
            self._offsets[topic, queue_id] = offset + 1
            for log in self.logs.values():
                log.append(Entry(index, term, queue_id, offset, body, topic))
        ok = outcome == "ok"
        sent = self.add(
            "sends", **{
                "op_id": self.op(), "msg_key": key, "pid": pid, "seq": seq, "topic": topic,
                "queue_id": queue_id, "body_hash": payload.body_hash(body),
                "body_len": len(body), "t_inv": self.clock, "t_cmp": self.clock + MS,
                "outcome": outcome, "attempts": 1, "node": self.nodes[0], "kind": "plain",
                "queue_offset": offset if ok else None, "phase": "main",
                "err_code": 0 if ok else 14 if outcome == "fail" else -2,
                "raft_term": term if ok else None,
            } | row,
        )  # fmt: skip
        return Message(key, queue_id, offset, body, index, self.clock, sent)

    def deliver(
        self, message: Message, *, grp: str = "", after: int = 5 * MS, **row: Any
    ) -> dict[str, Any]:
        self.clock += MS
        got = self.add(
            "deliveries", **{
                "op_id": self.op(), "pos": 0, "grp": grp or self.grp, "consumer": "c0",
                "generation": 1, "topic": message.send["topic"], "queue_id": message.queue_id,
                "queue_offset": message.queue_offset, "msg_key": message.key,
                "body_hash": payload.body_hash(message.body),
                "payload_run_id": self.tag.hex(), "reconsume": 0, "is_retry": False,
                "is_dlq": False, "t_fetch_inv": self.clock + after - MS,
                "t_recv": self.clock + after, "node": self.nodes[0], "auditor": False,
            } | row,
        )  # fmt: skip
        message.delivery = message.delivery or got
        return got

    def commit(
        self,
        queue_id: int,
        offset: int,
        *,
        t: int | None = None,
    ) -> None:
        t = self.clock if t is None else t
        self.add(
            "acks",
            op_id=self.op(),
            grp=self.grp,
            topic=self.topic,
            queue_id=queue_id,
            kind="commit",
            value_offset=offset,
            t_inv=t,
            t_cmp=t,
            outcome="ok",
        )

    def fault(
        self, kind: str, targets: list[str], start: int, end: int, effective: bool = True
    ) -> None:
        self.add(
            "faults",
            fault_id=f"f{len(self.tables.get('faults', []))}",
            kind=kind,
            targets=targets,
            t_on0=start,
            t_on1=start,
            t_off0=end,
            t_off1=end,
            status="healed",
            witness={
                "probe": "p",
                "before": 0.0,
                "during": 1.0,
                "after": 0.0,
                "effective": effective,
            },
        )

    def probe(self, node: str, role: str, term: int, t: int) -> None:
        self.add(
            "raft_probe",
            node=node,
            t0=t,
            t1=t + 1,
            ok=True,
            role=role,
            term=term,
            group=0,
            commit=0,
        )

    def event(self, node: str, kind: str, term: int, **row: Any) -> dict[str, Any]:
        """Note something of a node, behind what it noted before."""
        seq = 1 + sum(r["node"] == node for r in self.tables.get("raft_event", []))
        fields = {"boot_id": f"{node}-1", "seq": seq, "node_mono_ns": seq * MS, "group": 0} | row
        return self.add("raft_event", node=node, kind=kind, term=term, **fields)

    def election(self, leader: str, term: int) -> None:
        """Note that all vote for ``leader``, which leads."""
        for node in self.nodes:
            self.event(node, "boot", term - 1, index=-1, prev_index=-1)
            if node == leader:
                self.event(node, "become_candidate", term)
                self.event(node, "become_leader", term, peer=node)
            else:
                self.event(node, "vote_granted", term, peer=leader, index=-1, prev_index=0)
            for index in (0, 1, 2):
                self.event(node, "append", term, index=index, prev_index=index - 1)
                self.event(node, "commit", term, index=index, prev_index=index - 1)

    def traffic(self, count: int, **kw: Any) -> list[Message]:
        """Send and deliver `count` messages."""
        messages = [self.send(**kw) for _ in range(count)]
        for message in messages:
            self.deliver(message)
        return messages

    def write(self, path: Path) -> Path:
        """Write the run directory and return it."""
        path.mkdir(parents=True, exist_ok=True)
        if self.drained and ("drain" not in self.tables or self.consumes):
            self._drain()
        if "events" not in self.tables:
            for number, row in enumerate(self.tables.get("sends", [])):
                self.add("events", idx=number, type="ok", f="send", t_mono_ns=row["t_inv"])
        if "raft_event" not in self.tables:
            self.election(self.nodes[0], 1)
        if self.with_queues:
            self._read_queues()
        (path / "run.json").write_text(json.dumps(self.run))
        for table, rows in self.tables.items():
            write_table(path, table, rows)
        if self.with_replicas:
            for node in self.nodes:
                self._write_replica(path / "replicas" / node, node)
        return path

    def _drain(self) -> None:
        taken = set().union(*self.consumes.values())
        topics = {row["topic"] for row in self.tables.get("sends", [])} - taken
        groups = {
            row["grp"] for row in self.tables.get("deliveries", []) if not row["auditor"]
        } or {GROUP}
        owed = dict.fromkeys(groups, topics) | self.consumes
        told = {(row["grp"], row["topic"]) for row in self.tables.get("drain", [])}
        for grp in sorted(owed):
            for topic in sorted(owed[grp]):
                if (grp, topic) in told:
                    continue
                for queue_id in range(self.queues):
                    said = [  # a broker's end lies behind whatever it acknowledged
                        row["queue_offset"] + 1
                        for row in self.tables["sends"]
                        if (row["topic"], row.get("queue_id")) == (topic, queue_id)
                        and row.get("queue_offset") is not None
                    ]
                    end = max([self._offsets.get((topic, queue_id), 0), *said])
                    row = self.add(
                        "drain",
                        grp=grp,
                        topic=topic,
                        queue_id=queue_id,
                        min_off=0,
                        end_off=end,
                        read_to=end,
                        empty_polls=2,
                        drained=True,
                    )
                    if (grp, topic) in self.drain_lacks:
                        row[self.drain_lacks[grp, topic]] = None

    def _read_queues(self) -> None:
        """Note what the queues of nodes name: all messages that their logs have committed."""
        topics = {row["topic"] for row in self.tables["sends"]}
        for node, log in self.logs.items():
            for entry in log:
                if entry.topic in topics and entry.index <= self.commits.get(node, entry.index):
                    seen = payload.decode_body(entry.body)
                    self.add(
                        "queue_index", node=node, topic=entry.topic, queue_id=entry.queue_id,
                        queue_offset=entry.queue_offset, index=entry.index,
                        msg_key=None if seen is None else seen.msg_key,
                    )  # fmt: skip
        for spoil in self.queue_spoils:
            spoil(self.tables["queue_index"])

    def _write_replica(self, path: Path, node: str) -> None:
        (path / "data").mkdir(parents=True, exist_ok=True)
        log = self.logs[node]
        last = log[-1].index if log else -1
        meta = {
            "node": node,
            "group": self.raft_groups.get(node, "g"),
            "boot_id": "b",
            "end_index": last,
            "first_index": self.first_index.get(node, 0),
            "commit_index": self.commits.get(node, last),
        }
        (path / "meta.json").write_text(json.dumps(meta))
        start = 0
        for at in range(0, len(log), self.entries_per_segment):
            data = encode_segment(log[at : at + self.entries_per_segment], start)
            (path / "data" / f"{start:020d}").write_bytes(data)
            start += len(data)


def write_table(path: Path, table: str, rows: list[dict[str, Any]], part: int = 0) -> Path:
    # What is required may be null here: others write what they like.
    schema = pa.schema([column.with_nullable(nullable=True) for column in arrow_schema(table)])
    directory = path / "tables" / table
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"part-{part}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)
    return file


Planter = Callable[["HistoryBuilder", random.Random], Counter[str]]


def random_history(seeds: Sequence[int], path: Path, plant_more: Planter) -> dict[str, int]:
    """Write a run with random planted anomalies; return how many of each check are planted.

    Each seed has a chapter of messages; what replicas do wrong they do once. ``plant_more`` adds
    others beside these, and says which.
    """
    run = HistoryBuilder(run_id=f"random-{seeds[0]}", queues=4)
    planted = Counter(dict.fromkeys(PLANTED, 0))
    for number, seed in enumerate(seeds, start=2):
        rng = random.Random(seed)
        part = run.chapter(number, queues=rng.randint(1, 4))
        messages = part.traffic(rng.randint(30, 80))
        for _ in range(rng.randint(0, 5)):
            unsure = part.send(outcome="info", stored=True)
            if rng.random() < 0.5:
                part.deliver(unsure)
        planted.update(_plant_messages(part, messages, rng))
        run.clock = part.clock + 100_000 * MS
        planted.update(plant_more(run, rng))  # before the ends of the logs are spoiled
    run.election("n0", 1)
    for name in OF_REPLICAS:
        if rng.random() < 0.6:
            _PLANTS[name](run, messages[0])
            planted[name] += 1
    run.write(path)
    return {check: planted[check] for check in planted}


def _plant_messages(run: HistoryBuilder, messages: list[Message], rng: random.Random) -> Counter:
    planted: Counter[str] = Counter()
    victims = iter(rng.sample(messages, 16))
    for name in PLANTED:
        if name not in OF_REPLICAS and rng.random() < 0.4:
            _PLANTS[name](run, next(victims))
            planted[name] += 1
    # What was acknowledged at a place that another holds, and delivered, lies in no log.
    planted["A35"] += planted["A15"]
    # A corrupt body is also a second content of its place.
    planted["A15"] += planted["A6"]
    return planted


OF_REPLICAS = ("A30", "A31", "A32", "A33", "A34", "A36", "A37", "A38")
PLANTED = (
    "A1", "A5", "A6", "A7", "A8", "A15", "A30", "A31", "A32", "A33", "A34", "A35", "A36", "A37",
    "A38",
)  # fmt: skip


def plant_two_leaders(run: HistoryBuilder, message: Message) -> None:
    run.event("n1", "become_leader", 1, peer="n1")


def plant_second_vote(run: HistoryBuilder, message: Message) -> None:
    """The vote of a process that died was forgotten by the next one."""
    run.event("n2", "vote_granted", 1, peer="n1", boot_id="n2-2", index=-1, prev_index=0)


def plant_term_fall(run: HistoryBuilder, message: Message) -> None:
    run.event("n1", "vote_refused", 0, peer="n2")
    run.event("n1", "vote_refused", 1, peer="n2")


def plant_commit_fall(run: HistoryBuilder, message: Message) -> None:
    run.event("n0", "commit", 1, index=1, prev_index=2)


def plant_short_leader(run: HistoryBuilder, message: Message) -> None:
    run.event("n2", "vote_granted", 8, peer="n1", index=1, prev_index=1)
    run.event("n1", "become_leader", 8, peer="n1")


def plant_old_term(run: HistoryBuilder, message: Message) -> None:
    run.event("n2", "vote_granted", 9, peer="n0", index=9, prev_index=1)
    run.event("n0", "become_leader", 9, peer="n0")
    run.event("n0", "commit", 9, index=9, prev_index=2)


def plant_stale(run: HistoryBuilder, message: Message) -> None:
    message.send["raft_term"] = 0


def plant_lost(run: HistoryBuilder, message: Message) -> None:
    run.tables["deliveries"].remove(message.delivery)


def plant_phantom(run: HistoryBuilder, message: Message) -> None:
    key = payload.make_key(99, run.pid << 16 | message.key & 0xFFFF)
    body = payload.encode_body(run.tag, key, 40)
    ghost = Message(key, 0, 1_000_000 + len(run.tables["deliveries"]), body, -1, 0, message.send)
    run.deliver(ghost, generation=9)  # or later polls of its queue would go back


def plant_corrupt(run: HistoryBuilder, message: Message) -> None:
    # The body changed on its way out: its place has two contents now, so A15 sees it too.
    message.delivery["body_hash"] ^= 1


def plant_aborted(run: HistoryBuilder, message: Message) -> None:
    run.deliver(run.send(outcome="fail", stored=True))


def plant_copy(run: HistoryBuilder, message: Message) -> None:
    offset = run._offsets[run.topic, message.queue_id]
    run._offsets[run.topic, message.queue_id] += 1
    for log in run.logs.values():
        log.append(Entry(log[-1].index + 1, 1, message.queue_id, offset, message.body, run.topic))


def plant_clash(run: HistoryBuilder, message: Message) -> None:
    # Two acknowledged sends say the same place; the second one is read from another.
    other = run.send(outcome="ok", stored=False, queue_id=message.queue_id)
    other.send["queue_offset"] = message.queue_offset
    run.deliver(other, queue_offset=2_000_000 + other.key % 1000)


def plant_mismatch(run: HistoryBuilder, message: Message) -> None:
    # An uncommitted tail entry of one term differs between two nodes.
    last = run.logs["n1"][-1].index
    for node, filler in (("n1", b"x"), ("n2", b"y")):
        run.commits[node] = min(run.commits.get(node, last), last)
        run.logs[node].append(Entry(last + 1, 7, 0, 5_000, filler * 40, "%other"))


def plant_divergence(run: HistoryBuilder, message: Message) -> None:
    # One replica committed another entry (of another term) at the message's index.
    # Of the same length, or everything behind it would lie elsewhere and differ too.
    at = next(i for i, e in enumerate(run.logs["n2"]) if e.index == message.index)
    other = b"z" * len(message.body)
    run.logs["n2"][at] = Entry(message.index, 5, 0, 6_000, other, "%" * len(run.topic))


_PLANTS = {
    "A1": plant_lost,
    "A5": plant_phantom,
    "A6": plant_corrupt,
    "A7": plant_aborted,
    "A8": plant_copy,
    "A15": plant_clash,
    "A30": plant_two_leaders,
    "A31": plant_second_vote,
    "A32": plant_term_fall,
    "A33": plant_commit_fall,
    "A35": plant_divergence,
    "A34": plant_mismatch,
    "A36": plant_short_leader,
    "A37": plant_old_term,
    "A38": plant_stale,
}

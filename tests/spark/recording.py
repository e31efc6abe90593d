"""Writes the recordings of a run piece by piece, as its processes do while it goes on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chaos.convert import convert
from chaos.history import payload
from chaos.run import run_row

S = 1_000_000_000
MS = 1_000_000
RUN_ID, TOPIC, GROUP = "a-run", "orders", "billing"
ORDERLY = "ledger"
"""A group that gets one call of a queue at a time."""


class Recording:
    """A run whose clock is moved by hand. Every method appends lines; `clock` is now (ns)."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.clock = 1_000 * S
        self._lines: dict[str, int] = {}
        self._sequence, self._ops = 0, 0
        self._offsets: dict[int, int] = {}
        (run / "raw").mkdir(parents=True)
        about = {
            "run_id": RUN_ID, "run_tag": payload.run_tag(RUN_ID), "scenario": "made", "seed": 1,
            "backend": "local", "plan": {}, "t0_wall_us": 0, "contract": {}, "nodes": ["n0", "n1"],
            "topic": TOPIC, "group": GROUP, "problems": [], "quorum": 1,
            "modes": {ORDERLY: "orderly"},
        }  # fmt: skip
        (run / "run.json").write_text(json.dumps(about))

    def write(self, file: str, table: str, **row: Any) -> None:
        number = self._lines.get(file, 0)
        with (self.run / "raw" / f"{file}.jsonl").open("a") as out:
            out.write(json.dumps([number, table, row]) + "\n")
        self._lines[file] = number + 1

    def invoke(self, kind: str | None = None, delay_ms: int | None = None) -> dict[str, Any]:
        """Begin to send a message; return what is known of it."""
        self._sequence += 1
        self._ops += 1
        key = payload.make_key(1, self._sequence)
        sent = {
            "op": self._ops, "key": key, "hash": key * 31, "queue": self._sequence % 3, "offset": 0
        }  # fmt: skip
        value = {"topic": TOPIC, "msg_key": key, "body_hash": sent["hash"], "body_len": 10}
        value |= {"kind": kind, "delay_ms": delay_ms} if kind else {}
        self._event("invoke", sent, value)
        return sent

    def complete(
        self, sent: dict[str, Any], outcome: str = "ok", offset: int | None = None
    ) -> None:
        queue = sent["queue"]
        if outcome == "ok" and offset is None:
            offset = self._offsets[queue] = self._offsets.get(queue, -1) + 1
        sent["offset"] = offset or 0
        value = {"tries": [outcome], "queue_id": queue, "queue_offset": offset, "node": "n0"}
        self._event(outcome, sent, value)

    def deliver(self, sent: dict[str, Any], **more: Any) -> None:
        row = {
            "op_id": 0, "grp": GROUP, "consumer": "c", "topic": TOPIC, "queue_id": sent["queue"],
            "queue_offset": sent["offset"], "msg_key": sent["key"], "body_hash": sent["hash"],
            "payload_run_id": payload.run_tag(RUN_ID), "t_recv": self.clock, "node": "n0",
            "auditor": False, "is_retry": False, "is_dlq": False,
        }  # fmt: skip
        self.write("consumer-1", "deliveries", **{**row, **more})

    def call(self, sent: dict[str, Any], consumer: str, begun: int) -> None:
        """Give a message to an orderly listener, which is done with it now."""
        self._ops += 1
        self.deliver(
            sent, grp=ORDERLY, consumer=consumer, op_id=self._ops, t_recv=begun,
            t_proc_begin=begun, t_proc_end=self.clock,
        )  # fmt: skip

    def skip(self, queue: int) -> int:
        """Leave an offset of a queue free, and return it."""
        self._offsets[queue] = self._offsets.get(queue, -1) + 1
        return self._offsets[queue]

    def traffic(self, count: int, seconds: float) -> list[dict[str, Any]]:
        """Send, acknowledge and deliver ``count`` messages over ``seconds``."""
        step = int(seconds * S / count / 3)
        messages = []
        for number in range(count):
            messages.append(self.invoke())
            self.clock += step
            self.complete(messages[-1])
            self.clock += step
            self.deliver(messages[-1])
            self.clock += step
            if number % 10 == 0:
                self.probe("n0", 1, commit=self.clock // S)
        return messages

    def probe(self, node: str, term: int, commit: int, role: str = "leader") -> None:
        self.write(
            "harness", "raft_probe", node=node, t0=self.clock, t1=self.clock + 1, ok=True,
            role=role, term=term, commit=commit, applied=self.clock // S, boot_id=f"{node}-1",
            group=0,
        )  # fmt: skip
        self.clock += 2

    def decide(self, sent: dict[str, Any], step: str) -> None:
        row = {"txn_id": 1, "msg_key": sent["key"], "step": step, "answer": None}
        row |= {"t_inv": self.clock, "t_cmp": self.clock, "outcome": "ok"}
        self.write("producer-1", "txn", **row)

    def end(self) -> None:
        """Make the tables, as a run does when it is over."""
        convert(self.run, run_row(json.loads((self.run / "run.json").read_text())))

    def _event(self, type_: str, sent: dict[str, Any], value: dict[str, Any]) -> None:
        self.write(
            "producer-1", "events", worker=1, process=1, role="producer", type=type_, f="send",
            op_id=sent["op"], t_mono_ns=self.clock, value=value,
            err_code=None if type_ in {"invoke", "ok"} else 14,
        )  # fmt: skip


def plants(run: Recording) -> Iterator[tuple[str, str]]:
    """Spoil a run in one way after the other; yield the check and the key that are alarmed."""
    phantom = run.invoke()
    unknown = {**phantom, "key": payload.make_key(9, 7), "offset": 900}
    run.complete(phantom)
    run.deliver(phantom)
    run.deliver(unknown)
    yield "A5", str(unknown["key"])
    spoiled = run.invoke()
    run.complete(spoiled, "info")
    run.deliver(spoiled, body_hash=5, queue_offset=901)
    yield "A6", str(spoiled["key"])
    refused = run.invoke()
    run.complete(refused, "fail")
    run.deliver(refused, queue_offset=902)
    yield "A7", str(refused["key"])
    first, second = run.invoke(), run.invoke()
    run.complete(first)
    run.complete(second, "info")
    run.deliver(second, queue_id=first["queue"], queue_offset=first["offset"])
    yield "A15", f"{TOPIC}/{first['queue']}@{first['offset']}"
    yield from _plants_of_queues(run)
    yield from _plants_of_nodes(run)
    yield from _plants_of_kinds(run)


def _plants_of_queues(run: Recording) -> Iterator[tuple[str, str]]:
    behind = run.invoke()
    free = run.skip(behind["queue"])
    run.complete(behind)
    run.clock += 1
    overtaking = {**run.invoke(), "queue": behind["queue"]}
    run.complete(overtaking, offset=free)
    yield "A11", str(overtaking["key"])
    at_once = run.invoke()
    run.complete(at_once)
    began, run.clock = run.clock, run.clock + S
    run.call(at_once, "c1", began)
    run.clock += S // 2
    run.call(at_once, "c2", run.clock - S)
    run.clock += S
    run.call(at_once, "c1", run.clock)
    yield "A17", f"{TOPIC}/{at_once['queue']}"


def _plants_of_nodes(run: Recording) -> Iterator[tuple[str, str]]:
    run.probe("n1", 1, commit=1)
    yield "A30", "0:1"
    run.probe("n1", 5, commit=3, role="follower")
    run.probe("n1", 4, commit=3, role="follower")
    yield "A32", f"n1:answer at {run.clock - 2}"
    run.probe("n1", 5, commit=2, role="follower")
    yield "A33", f"n1:answer at {run.clock - 2}"


def _plants_of_kinds(run: Recording) -> Iterator[tuple[str, str]]:
    undone = run.invoke("txn")
    run.decide(undone, "half")
    run.decide(undone, "rollback")
    run.deliver(undone, queue_offset=904)
    yield "A53", str(undone["key"])
    early = run.invoke("txn")
    run.decide(early, "half")
    run.deliver(early, queue_offset=905)
    run.clock += S
    yield "A54", str(early["key"])
    waiting = run.invoke("delay", delay_ms=60_000)
    run.complete(waiting, "info")
    run.deliver(waiting, queue_offset=906)
    yield "A56", str(waiting["key"])

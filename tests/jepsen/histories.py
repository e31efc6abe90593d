"""Random histories of a few queues, sound or with one thing wrong, as producers and groups saw it.

Sends overlap, some end unknown or refused; members poll side by side with producers, and each group
changes hands once, so that what was not committed comes again. Every group reads to the end.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from chaos.checker import History

MS = 1_000_000
TOPIC = "t"
GROUPS = ("g0", "g1")
Row = dict[str, Any]


@dataclass
class World:
    """What happened, as rows that a plant may spoil."""

    rng: random.Random
    queues: int
    sends: list[Row] = field(default_factory=list)
    deliveries: list[Row] = field(default_factory=list)
    logs: list[list[tuple[int, int]]] = field(default_factory=list)
    """By queue, when each message was stored, and which."""
    drain: dict[str, int] = field(default_factory=dict)
    """Where queues begin, for groups to which that was told."""
    subscriptions: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def of(self, **wanted: Any) -> list[Row]:
        """Return the deliveries with these values, in the order in which they came."""
        rows = [
            row
            for row in self.deliveries
            if all(row[name] == value for name, value in wanted.items())
        ]
        return sorted(rows, key=lambda row: (row["t_recv"], row["op_id"], row["pos"]))

    def ok(self) -> list[Row]:
        return [send for send in self.sends if send["outcome"] == "ok"]

    def new_key(self) -> int:
        return 1 + max(row["msg_key"] for row in (*self.sends, *self.deliveries))

    def end(self) -> int:
        times = [row["t_cmp"] or 0 for row in self.sends] + [r["t_recv"] for r in self.deliveries]
        return max(times) + 10 * MS

    def history(self) -> History:
        drain = [
            {"grp": grp, "topic": TOPIC, "queue_id": queue_id, "min_off": self.drain.get(grp, 0),
             "end_off": len(log), "read_to": len(log), "empty_polls": 2, "drained": True}
            for grp in sorted({row["grp"] for row in self.deliveries})
            for queue_id, log in enumerate(self.logs)
        ]  # fmt: skip
        return History(
            topic=TOPIC, group=GROUPS[0], sends=untold(self.sends), deliveries=self.deliveries,
            drain=drain, subscriptions=self.subscriptions,
        )  # fmt: skip


def sound(rng: random.Random) -> World:
    """Return a world in which nothing went wrong, though some was unknown or came twice."""
    world = World(rng, queues=rng.randint(1, 3))
    world.logs = [[] for _ in range(world.queues)]
    _send_all(world)
    for grp in GROUPS[: rng.randint(1, 2)]:
        for queue_id in range(world.queues):
            _read(world, grp, queue_id)
    return world


def untold(sends: list[Row]) -> list[Row]:
    """Return sends as producers know them: where nobody answered, nobody said in which queue."""
    return [s if s["outcome"] == "ok" else s | {"queue_id": None} for s in sends]


def _send_all(world: World) -> None:
    rng = world.rng
    stored: list[tuple[int, Row]] = []
    clocks = [rng.randrange(5 * MS) for _ in range(rng.randint(1, 4))]
    for key in range(1, rng.randint(30, 70)):
        process = min(range(len(clocks)), key=clocks.__getitem__)
        begun = clocks[process] + rng.randint(1, 2 * MS)
        ended = begun + rng.randint(2, 8 * MS)
        clocks[process] = ended
        outcome = rng.choices(("ok", "info", "fail"), (86, 9, 5))[0]
        send = {
            "op_id": key, "msg_key": key, "pid": process, "process": process, "topic": TOPIC,
            "queue_id": rng.randrange(world.queues), "body_hash": key * 1000, "queue_offset": None,
            "t_inv": begun, "t_cmp": ended, "outcome": outcome, "attempts": 1, "err_code": None,
            "node": "n0", "phase": "main", "kind": "plain", "tag": None,
        }  # fmt: skip
        world.sends.append(send)
        if outcome == "ok" or (outcome == "info" and rng.random() < 0.5):
            stored.append((rng.randint(begun + 1, ended - 1), send))
    for at, send in sorted(stored, key=lambda one: one[0]):
        log = world.logs[send["queue_id"]]
        if send["outcome"] == "ok":
            send["queue_offset"] = len(log)
        log.append((at, send["msg_key"]))


def _read(world: World, grp: str, queue_id: int) -> None:
    """Read a queue while it grows; once another generation begins, some messages before."""
    rng, log = world.rng, world.logs[queue_id]
    turn, at, t, generation = rng.randint(1, max(1, len(log) - 1)), 0, rng.randrange(9 * MS), 1
    while at < len(log):
        if generation == 1 and at >= turn:
            generation, at = 2, at - rng.randint(0, min(at, 3))
        there = sum(stored < t for stored, _ in log)
        if there > at:
            to = min(there, at + rng.randint(1, 5))
            # In the second generation the queue has the same member, or another.
            member = queue_id if generation == 1 else queue_id + turn % 2
            for pos, offset in enumerate(range(at, to)):
                deliver(world, grp, queue_id, (offset, log[offset][1]), t=t, pos=pos,
                        consumer=f"{grp}-c{member}", generation=generation,
                        op_id=t * 10 + queue_id)  # fmt: skip
            at = to
        t += rng.randint(2 * MS, 9 * MS)


def deliver(
    world: World, grp: str, queue_id: int, what: tuple[int, int], *, t: int, **more: Any
) -> Row:
    """Add a delivery of (offset, message)."""
    row = {
        "op_id": t * 10 + queue_id, "pos": 0, "grp": grp, "consumer": f"{grp}-c{queue_id}",
        "generation": 1, "topic": TOPIC, "queue_id": queue_id, "queue_offset": what[0],
        "msg_key": what[1], "body_hash": what[1] * 1000, "payload_run_id": None, "reconsume": 0,
        "t_fetch_inv": t, "t_recv": t + MS, "auditor": False,
    }  # fmt: skip
    world.deliveries.append(row | more)
    return world.deliveries[-1]

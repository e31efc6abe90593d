"""Histories of somebody who has not read the checkers: odd, and as far as told all right or not.

The in-process checker is asked of all (`tests/unit/chaos/test_outside`), Spark of the odd events.
Source: spec/proof.md 3.0.
"""

import json
from collections.abc import Callable
from typing import Final

from tests.spark.generate import GROUP, MS, HistoryBuilder, Message
from tests.spark.kinds import (
    Kind,
    failing,
    kind_of,
    of,
    orderly,
    passed_over,
    reading,
    refuse,
    transactions,
    waiting,
)

Spoil = Callable[[HistoryBuilder, list[Message]], None]
FAR: Final = 1 << 60


def far_apart(run: HistoryBuilder, messages: list[Message]) -> None:
    """Offsets are positions of a file of another system: nothing lies between two of them."""
    run.with_replicas, run.run["nodes"] = False, []
    for queue_id in range(run.queues):
        for _ in range(2):
            run._offsets["orders", queue_id] += FAR
            message = run.send(queue_id=queue_id, tries=["ok"], msg_id="far")
            run.deliver(message)


def passed_over_far_away(run: HistoryBuilder, messages: list[Message]) -> None:
    """Of three messages that lie far apart, another member gets the second one last of all."""
    run.with_replicas, run.run["nodes"] = False, []
    sent = []
    for _ in range(3):
        run._offsets["orders", 0] += FAR
        sent.append(run.send(queue_id=0, tries=["ok"], msg_id="far"))
    sent.append(run.send(queue_id=0, tries=["ok"], msg_id="near"))
    for message in (sent[0], *sent[2:]):
        run.deliver(message)
    run.clock += 20 * MS
    run.commit(0, sent[-1].queue_offset + 1)
    run.deliver(sent[1], consumer="c1", generation=2, after=40 * MS)


def overdue(kind: Kind, count: int, late: int, half_ms: int = 2_000) -> None:
    """So many of so many delayed messages come three seconds late, where one may be four."""
    contract = kind.run.run["contract"]
    contract |= {"late_ms_max": 4_000, "late_ms_half_max": half_ms}
    for _ in range(count - len(kind.sent)):
        message = kind.send(kind="delay", delay_ms=1_000)
        message.send.update(queue_id=None, queue_offset=None)
        kind.run.clock = max(kind.run.clock, message.send["t_cmp"] + 1_000 * MS)
        kind.deliver(message)
    for row in kind.given[len(kind.given) - late :]:
        for name in ("t_fetch_inv", "t_recv"):
            row[name] += 3_000 * MS


def kept(kind: Kind, *, refused: bool = True) -> None:
    """The last copy that the group allows is kept, since nobody takes it back, and tried again."""
    copy = kind.rows["retry"]
    t = kind.run.clock = kind.run.clock + 2_000 * MS
    if refused:
        about = {"msg_key": kind.sent[1].key, "reconsume": 1, "delay_ms": 1_000, "outcome": "info"}
        kind.ack("nack", **about)
    again = copy | {"reconsume": 2, "t_proc_begin": t + 2_000 * MS, "t_proc_end": t + 2_001 * MS}
    kind.run.add("deliveries", **again)
    kind.run.clock = t + 3_000 * MS


def dead(kind: Kind, late_ns: int) -> None:
    """c0 dies so long after it went on behind a message that c1 gets."""
    passed_over(kind)
    t = kind.given[4]["t_recv"] + late_ns
    kind.run.add("events", idx=2, type="info", f="crash", role="consumer", node="c0",
                 value=json.dumps({"consumer": "c0", "grp": kind.grp}), t_mono_ns=t)  # fmt: skip


def late_question(kind: Kind, late_ms: int, next_ms: int) -> None:
    """The first question takes a while to its producer, and the next one comes soon after it."""
    asked, given = kind.rows["checkback/checkback"], kind.given[-1]
    begun = asked["t_inv"]
    asked.update(t_inv=begun + late_ms * MS, t_cmp=begun + late_ms * MS + 1)
    t = begun + next_ms * MS
    kind.run.add("txn", **(asked | {"t_inv": t, "t_cmp": t + 1}))
    given.update(t_fetch_inv=t + 2 * MS, t_recv=t + 3 * MS)
    kind.run.clock = t + 3 * MS


def lost_one_by_one(run: HistoryBuilder, most: int) -> None:
    """Two questions were due while a broker stood still, each time for a moment."""
    kind = kind_of(run, "txn")
    run.run["check_back"] = {"after_ms": 2_000, "interval_ms": 1_000, "max": most}
    half = kind.send(kind="txn", stored=False)
    half.send.update(queue_id=None, queue_offset=None)
    times = {"t_inv": run.clock, "t_cmp": run.clock + MS}
    run.add("txn", step="half", txn_id=half.key, msg_key=half.key, outcome="ok", **times)
    for at in (2_000, 3_000):
        run.fault("pause", ["n0"], run.clock + (at - 50) * MS, run.clock + (at + 50) * MS)
    run.clock += 20_000 * MS
    kind.deliver(kind.send())


def odd_assignments(run: HistoryBuilder, messages: list[Message]) -> None:
    """Events of consumers whose values are of other types than ours."""
    values: tuple[object, ...] = (
        [1],
        "word",
        {"consumer": ["c0"], "topic": "orders", "queues": [0]},
        {"consumer": "c0", "topic": "orders", "queues": 5},
        {"consumer": "c0", "topic": "orders", "queues": ["0", "1"]},
        {"consumer": "c0", "topic": "orders", "queues": [1 << 40]},
        {"consumer": "c0", "topic": "orders", "queues": [10**30, -1]},
        {"consumer": 5, "grp": {"a": 1}, "topic": "orders", "queues": [0]},
    )
    again = run.send(queue_id=0, tries=["ok"], msg_id="again")
    run.deliver(again)
    for idx, value in enumerate(values, start=2):
        run.add("events", idx=idx, type="info", f="rebalance", role="consumer", node="c0",
                value=json.dumps(value), t_mono_ns=run.clock)  # fmt: skip
    run.add("acks", grp=GROUP, kind="nack", msg_key=again.key, delay_ms=0, reconsume=0,
            t_inv=run.clock + 6 * MS, t_cmp=run.clock + 6 * MS, outcome="ok")  # fmt: skip
    run.deliver(again, is_retry=True, reconsume=1, after=20 * MS)


def committed_without_end(run: HistoryBuilder, messages: list[Message]) -> None:
    """One node calls more committed than anybody could name."""
    run.commits["n1"] = FAR


ODD: Final[dict[str, tuple[Spoil, dict[str, int]]]] = {
    "offsets far apart": (far_apart, {}),
    "passed over far away": (passed_over_far_away, {"A2": 1, "A14": 1}),
    "passed for ever": (of(orderly, lambda kind: refuse(kind, 4)), {"A17": 1, "A27": 1}),
    "at hand of a dead member": (of(reading, lambda kind: dead(kind, MS)), {}),
    "passed over by a former death": (of(reading, lambda kind: dead(kind, -MS)), {"A14": 1}),
    "late question": (of(transactions, lambda kind: late_question(kind, 180, 200)), {}),
    "asked twice at once": (of(transactions, lambda kind: late_question(kind, 60, 65)), {"A23": 1}),
    "lost one by one": (lambda run, _: lost_one_by_one(run, 2), {}),
    "not all were lost": (lambda run, _: lost_one_by_one(run, 3), {"A23": 1}),
    "odd assignments": (odd_assignments, {}),
    "kept and tried again": (of(failing, kept), {}),
    "half of many late": (of(waiting, lambda kind: overdue(kind, 21, 11)), {"A25": 11}),
    "half of few late": (of(waiting, lambda kind: overdue(kind, 19, 19)), {}),
    "less than half late": (of(waiting, lambda kind: overdue(kind, 24, 12)), {}),
    "committed without end": (committed_without_end, {"A35": FAR - 11}),
}
"""What is odd, and how many anomalies of which check it has."""

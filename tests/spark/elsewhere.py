"""What is said of one excuses no other that is called the same, nor it at another time.

Each history violates one check by what an excuse for somebody else would hide; `ELSEWHERE_SOUND`
has what is all right though it would be an anomaly of another.
"""

import json
from collections.abc import Callable
from typing import Any

from tests.spark.generate import MS, HistoryBuilder, Message
from tests.spark.kinds import Kind, of, passed_over, reading

Spoil = Callable[[HistoryBuilder, list[Message]], None]


def noted(kind: Kind, f: str, grp: str, t: int, queues: tuple[int, ...] = ()) -> None:
    """A consumer called c0 told something of its life in a group."""
    value = {"consumer": "c0", "grp": grp, "topic": kind.topic, "queues": queues}
    kind.run.add("events", idx=len(kind.run.tables["events"]), type="info", f=f, role="consumer",
                 node="c0", value=json.dumps(value), t_mono_ns=t)  # fmt: skip


def passed_over_as_one_died(kind: Kind, grp: str = "elsewhere") -> None:
    """c0 passed a message over, and a c0 had died before another one got it."""
    passed_over(kind)
    t = kind.given[3]["t_recv"] - MS // 2
    noted(kind, "crash", grp, t)


def again_as_a_namesake_gave_up(kind: Kind) -> None:
    """A message came again as a broker stood still; c0 of another group gave its queue up."""
    run, last = kind.run, kind.given[-1]
    noted(kind, "rebalance", "elsewhere", run.clock)
    run.fault("pause", ["n0"], last["t_recv"], last["t_recv"] + MS)
    run.clock += 5_000 * MS
    kind.rows["durable"]["durable"] = None
    kind.deliver(kind.sent[7])


def answered(run: HistoryBuilder, node: str, life: str, term: int, **row: Any) -> None:
    """A node told its term; a second later."""
    run.clock += 1_000 * MS
    t = run.clock
    run.add("raft_probe", node=node, boot_id=life, t0=t, t1=t + MS, ok=True, role="follower",
            term=term, group=3, **row)  # fmt: skip


def wiped_between(run: HistoryBuilder, node: str) -> None:
    """The disk of a node is wiped between two of its lives."""
    answered(run, node, f"{node}-life-1", 7)
    run.clock += 1_000 * MS
    run.fault("wipe", [node], run.clock, run.clock + 1_000 * MS)
    run.clock += 2_000 * MS
    answered(run, node, f"{node}-life-2", 7, voted_for="n0")


def term_forgotten_later(run: HistoryBuilder, messages: list[Message]) -> None:
    """A node whose disk had been wiped forgot its term over a later restart."""
    wiped_between(run, "n2")
    answered(run, "n2", "n2-life-3", 5)


def voted_again_later(run: HistoryBuilder, messages: list[Message]) -> None:
    """A node whose disk had been wiped forgot its vote over a later restart."""
    wiped_between(run, "n1")
    answered(run, "n1", "n1-life-3", 7, voted_for="n1")


def noted_one_and_answered_another(run: HistoryBuilder, messages: list[Message]) -> None:
    """Of one vote it noted another candidate than it answered."""
    for node in ("n0", "n1"):
        answered(run, node, f"{node}-1", 8)
    run.event("n0", "vote_granted", 9, peer="n0", boot_id="n0-1", group=3, index=9, prev_index=0)
    answered(run, "n0", "n0-1", 9, voted_for="n1")


def forgot_as_it_was_wiped(run: HistoryBuilder, messages: list[Message]) -> None:
    """A term and a vote of before its disk was wiped, and others of before it was wiped again."""
    for term, name in ((7, "n0"), (5, "n2"), (5, "n0")):
        answered(run, "n0", f"n0-of-{term}-{name}", term, voted_for=name)
        run.fault("wipe", ["n0"], run.clock + MS, run.clock + 500 * MS)


def died_itself(kind: Kind) -> None:
    passed_over_as_one_died(kind, kind.grp)


ELSEWHERE_VIOLATIONS: dict[str, tuple[str, str, Spoil]] = {
    "passed over as a namesake died": ("A14", "invalid", of(reading, passed_over_as_one_died)),
    "a term forgotten after a wipe": ("A32", "invalid", term_forgotten_later),
    "a vote forgotten after a wipe": ("A31", "invalid", voted_again_later),
    "a vote noted and another answered": ("A31", "invalid", noted_one_and_answered_another),
}
"""As in `minimal`: the check that finds it, its verdict, and how the history comes about."""

ELSEWHERE_SOUND: dict[str, Spoil] = {
    "passed over as it died": of(reading, died_itself),
    "again as a namesake gave up": of(reading, again_as_a_namesake_gave_up),
    "forgotten as it was wiped": forgot_as_it_was_wiped,
}
"""What is all right, all in one history."""

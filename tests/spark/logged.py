"""Lines in the logs of processes, in small histories: anomalies, and what faults explain."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.spark.generate import MS, HistoryBuilder, Message

Spoil = Callable[[HistoryBuilder, list[Message]], None]
SECOND = 1_000 * MS


def logged(run: HistoryBuilder, kind: str, *, node: str = "n0", **more: Any) -> None:
    row = {"role": "broker", "level": "ERROR", "event": None, "exception": None, "t": run.clock,
           "t_last": run.clock, "count": 1, "line": f"{kind} of {node}"}  # fmt: skip
    run.add("node_log", node=node, kind=kind, **(row | more))


def fault(run: HistoryBuilder, kind: str, node: str = "n0", *, effective: bool = True) -> None:
    run.fault(kind, [node], run.clock, run.clock + 2 * SECOND, effective=effective)


def nothing_odd(run: HistoryBuilder, messages: list[Message]) -> None:
    """What faults bring about where they are, and a machine that is slow."""
    run.run.setdefault("nodes", ["n0", "n1", "n2"])
    logged(run, "slow", event="slow_write", count=3)
    run.clock += 60 * SECOND
    fault(run, "full")
    early, late = run.clock - SECOND, run.clock + 12 * SECOND
    logged(run, "resource", event="disk_full", t=early, t_last=late)
    logged(run, "resource", t=None, t_last=None)
    run.clock += 60 * SECOND
    fault(run, "spoil", "n1")
    found = run.clock + 50 * SECOND
    logged(run, "corrupt", node="n1", t=found, t_last=found + 50 * SECOND)
    run.clock += 60 * SECOND


def traced(run: HistoryBuilder, messages: list[Message]) -> None:
    """A disk that fails explains no traceback, nor a bug that a broker names."""
    run.clock += 60 * SECOND
    fault(run, "full")
    logged(run, "traceback", exception="KeyError", event="uncaught")
    logged(run, "error", event="bug", count=4)
    run.clock += 60 * SECOND


def asserted(run: HistoryBuilder, messages: list[Message]) -> None:
    logged(run, "assertion", node="n2", level="CRITICAL", event="invariant_broken")
    logged(run, "panic", node="ns0", role="namesrv", level=None, t=None, t_last=None)


def client_raised(run: HistoryBuilder, messages: list[Message]) -> None:
    logged(run, "traceback", node="producer-1", role="client", event="client_raised",
           exception="builtins.KeyError")  # fmt: skip


def damaged_elsewhere(run: HistoryBuilder, messages: list[Message]) -> None:
    """The disk of another node was damaged, and that of this one later."""
    run.clock += 60 * SECOND
    fault(run, "spoil", "n1")
    logged(run, "corrupt", event="corruption")
    fault(run, "full", "n2")
    logged(run, "corrupt", node="n2", event="corruption")
    run.clock += 60 * SECOND
    logged(run, "corrupt", node="n0", event="queue_corruption", t=run.clock - 2 * SECOND)
    fault(run, "spoil")
    run.clock += 60 * SECOND


def full_for_no_reason(run: HistoryBuilder, messages: list[Message]) -> None:
    """Its disk was full before, and long after there was space again; one took no effect."""
    run.clock += 60 * SECOND
    fault(run, "full")
    logged(run, "resource", event="disk_full", t_last=run.clock + 13 * SECOND)
    logged(run, "resource", line="[Errno 28]", t=run.clock - 2 * SECOND)
    run.clock += 60 * SECOND
    fault(run, "full", "n1", effective=False)
    logged(run, "resource", node="n1", t=None, t_last=None)
    run.clock += 60 * SECOND


LOG_VIOLATIONS: dict[str, tuple[str, str, Spoil]] = {
    "a traceback": ("A62", "invalid", traced),
    "an assertion": ("A62", "invalid", asserted),
    "a client raised": ("A62", "invalid", client_raised),
    "damage elsewhere": ("A62", "invalid", damaged_elsewhere),
    "full for no reason": ("A62", "invalid", full_for_no_reason),
}
COUNTS = {"a traceback": 2, "an assertion": 2, "a client raised": 1, "damage elsewhere": 3,
          "full for no reason": 3}  # fmt: skip
"""How many anomalies each has."""


def plant_logs(run: HistoryBuilder, rng: random.Random) -> Counter[str]:
    """Add lines that are nothing, and some that are."""
    nothing_odd(run, [])
    names = [name for name in LOG_VIOLATIONS if rng.random() < 0.4]
    for name in names:
        LOG_VIOLATIONS[name][2](run, [])
    return Counter({"A62": sum(COUNTS[name] for name in names)})

"""Lines in the logs of processes, in small histories: anomalies, and what faults explain."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.spark.generate import MS, HistoryBuilder, Message

Spoil = Callable[[HistoryBuilder, list[Message]], None]
SECOND = 1_000 * MS


def logged(run: HistoryBuilder, kind: str, node: str, **more: Any) -> None:
    row = {"role": "broker", "level": "ERROR", "event": None, "exception": None, "t": run.clock,
           "t_last": run.clock, "count": 1, "line": f"{kind} of {node}"}  # fmt: skip
    run.add("node_log", node=node, kind=kind, **(row | more))


def fault(run: HistoryBuilder, kind: str, node: str, *, effective: bool = True) -> None:
    run.fault(kind, [node], run.clock, run.clock + 2 * SECOND, effective=effective)


def members(run: HistoryBuilder) -> list[str]:
    """Three nodes that nothing was done to so far, and a minute without anything."""
    run.clock += 60 * SECOND
    return [f"m{len(run.tables.get('node_log', ()))}.{number}" for number in range(3)]


def nothing_odd(run: HistoryBuilder, messages: list[Message]) -> None:
    """What faults bring about where they are, and a machine that is slow."""
    a, b, c = members(run)
    logged(run, "slow", a, event="slow_write", count=3)
    fault(run, "full", a)
    early, late = run.clock - SECOND, run.clock + 12 * SECOND
    logged(run, "resource", a, event="disk_full", t=early, t_last=late)
    logged(run, "resource", a, t=None, t_last=None)
    run.clock += 60 * SECOND
    fault(run, "spoil", b)
    found = run.clock + 50 * SECOND
    logged(run, "corrupt", b, t=found, t_last=found + 50 * SECOND)
    run.clock += 60 * SECOND
    fault(run, "trim", b)
    logged(run, "removed", c, t=run.clock + 50 * SECOND, t_last=run.clock + 60 * SECOND)
    run.clock += 60 * SECOND


def traced(run: HistoryBuilder, messages: list[Message]) -> None:
    """A disk that fails explains no traceback, nor a bug that a broker names."""
    a, _, _ = members(run)
    fault(run, "full", a)
    logged(run, "traceback", a, exception="KeyError", event="uncaught")
    logged(run, "error", a, event="bug", count=4)
    run.clock += 60 * SECOND


def asserted(run: HistoryBuilder, messages: list[Message]) -> None:
    logged(run, "assertion", "n2", level="CRITICAL", event="invariant_broken")
    logged(run, "panic", "ns0", role="namesrv", level=None, t=None, t_last=None)


def client_raised(run: HistoryBuilder, messages: list[Message]) -> None:
    logged(run, "traceback", "producer-1", role="client", event="client_raised",
           exception="builtins.KeyError")  # fmt: skip


def damaged_elsewhere(run: HistoryBuilder, messages: list[Message]) -> None:
    """The disk of another node was damaged, and that of this one later."""
    a, b, c = members(run)
    fault(run, "spoil", b)
    logged(run, "corrupt", a, event="corruption")
    fault(run, "full", c)
    logged(run, "corrupt", c, event="corruption")
    run.clock += 60 * SECOND
    logged(run, "corrupt", a, event="queue_corruption", t=run.clock - 2 * SECOND)
    fault(run, "spoil", a)
    run.clock += 60 * SECOND


def full_for_no_reason(run: HistoryBuilder, messages: list[Message]) -> None:
    """Its disk was full before, and long after there was space again; one took no effect.

    And what waited was removed before anybody trimmed a log.
    """
    a, b, c = members(run)
    begin = min(row["t_inv"] for row in run.tables["sends"])
    logged(run, "removed", c, event="delayed_messages_removed", t=begin, t_last=begin)
    fault(run, "full", a)
    logged(run, "resource", a, event="disk_full", t_last=run.clock + 13 * SECOND)
    logged(run, "resource", a, line="[Errno 28]", t=run.clock - 2 * SECOND)
    run.clock += 60 * SECOND
    fault(run, "full", b, effective=False)
    logged(run, "resource", b, t=None, t_last=None)
    run.clock += 60 * SECOND


LOG_VIOLATIONS: dict[str, tuple[str, str, Spoil]] = {
    "a traceback": ("A62", "invalid", traced),
    "an assertion": ("A62", "invalid", asserted),
    "a client raised": ("A62", "invalid", client_raised),
    "damage elsewhere": ("A62", "invalid", damaged_elsewhere),
    "full for no reason": ("A62", "invalid", full_for_no_reason),
}
COUNTS = {"a traceback": 2, "an assertion": 2, "a client raised": 1, "damage elsewhere": 3,
          "full for no reason": 4}  # fmt: skip
"""How many anomalies each has."""


def plant_logs(run: HistoryBuilder, rng: random.Random) -> Counter[str]:
    """Add lines that are nothing, and some that are."""
    nothing_odd(run, [])
    names = [name for name in LOG_VIOLATIONS if rng.random() < 0.4]
    for name in names:
        LOG_VIOLATIONS[name][2](run, [])
    return Counter({"A62": sum(COUNTS[name] for name in names)})

"""Service that does not come back, or is not there, in small histories."""

import random
from collections import Counter
from collections.abc import Callable

from tests.spark.generate import MS, HistoryBuilder, Message

Spoil = Callable[[HistoryBuilder, list[Message]], None]
BOUND_MS = 1_000


def not_back(run: HistoryBuilder, messages: list[Message]) -> None:
    """For three seconds after a link is whole again nobody knows what becomes of a send."""
    run.run["contract"]["recovery_ms_max"] = BOUND_MS
    run.clock += 60_000 * MS
    run.fault("cut", ["n0", "n1"], run.clock, run.clock + 500 * MS)
    run.clock += 600 * MS
    for _ in range(3):
        run.send(outcome="info", t_cmp=None)
        run.clock += 200 * MS
    run.clock += 2_000 * MS
    run.deliver(run.send(tries=["ok"], msg_id="back"))
    run.clock += 60_000 * MS


def back_in_time(run: HistoryBuilder, messages: list[Message]) -> None:
    """A send fails after the heal, and the next is acknowledged just within the bound."""
    run.run["contract"]["recovery_ms_max"] = BOUND_MS
    run.clock += 60_000 * MS
    run.fault("cut", ["n0", "n1"], run.clock, run.clock + 500 * MS)
    healed = run.clock + 500 * MS
    run.clock += 600 * MS
    run.send(outcome="info", t_cmp=None)
    run.deliver(run.send(tries=["ok"], msg_id="back", t_cmp=healed + BOUND_MS * MS))
    run.clock += 60_000 * MS


def healed_too_late_to_tell(run: HistoryBuilder, messages: list[Message]) -> None:
    """Nothing is acknowledged after the heal, but another fault begins before the bound is over."""
    run.run["contract"]["recovery_ms_max"] = BOUND_MS
    run.clock += 60_000 * MS
    for _ in range(2):
        run.fault("cut", ["n0", "n1"], run.clock, run.clock + 500 * MS)
        run.clock += 600 * MS
        run.send(outcome="info", t_cmp=None)
        run.clock += 200 * MS
    run.deliver(run.send(tries=["ok"], msg_id="back"))
    run.clock += 60_000 * MS


def refused_without_a_fault(run: HistoryBuilder, messages: list[Message]) -> None:
    run.run["contract"]["availability_min"] = 0.9
    for _ in range(40):
        run.send(outcome="fail", tries=["fail"])


def never_ended(run: HistoryBuilder, messages: list[Message]) -> None:
    """Far from all faults nothing is heard of many sends."""
    run.run["contract"]["availability_min"] = 0.9
    for _ in range(40):
        run.send(outcome="info", t_cmp=None)


def never_ended_before_a_fault(run: HistoryBuilder, messages: list[Message]) -> None:
    """Nothing is heard of many sends, and then a fault comes: it may have been that."""
    never_ended(run, messages)
    run.clock += 60_000 * MS
    run.fault("cut", ["n0", "n1"], run.clock, run.clock + 500 * MS)
    run.clock += 60_000 * MS


SERVICE_VIOLATIONS: dict[str, tuple[str, str, Spoil]] = {
    "not back": ("A60", "invalid", not_back),
    "refused without a fault": ("A61", "invalid", refused_without_a_fault),
}


def plant_service(run: HistoryBuilder, rng: random.Random) -> Counter[str]:
    """Plant service that does not come back, and that is not there, in some histories."""
    planted = Counter({"A60": 0, "A61": 0})
    if rng.random() < 0.3:
        not_back(run, [])
        planted["A60"] += 1
    if rng.random() < 0.5 and "availability_min" not in run.run["contract"]:
        refused_without_a_fault(run, [])
        run.run["contract"]["availability_min"] = 0.95  # of a longer history
        planted["A61"] += 1
    return planted

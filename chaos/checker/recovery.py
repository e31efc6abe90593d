"""Is service back when faults are over, and there while there are none: A60 A61.

Faults whose times overlap are one stretch. Between stretches the system has nothing to blame.

Source: spec/proof.md A60, A61.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from chaos.checker.model import History, Result, result, span_of, unchecked
from chaos.history.columns import Row

HORIZON_NS = 60_000_000_000
"""So long after a heal service is looked for where the contract has no bound."""
SETTLE_NS = 10_000_000_000
"""Until so long after a fault what is not acknowledged may still be its doing."""
Span = tuple[int, int]
NEVER = 1 << 62


def check_recovery(history: History) -> Result:
    """A60: a topic that nobody could send to for all of ``recovery_ms_max`` after a heal.

    A heal is the end of a stretch of faults. Judged is what was quiet, and recorded, for all that
    time; a topic counts to which sends began in the first half of it.
    """
    spans = fault_spans(history, 0)
    bound = history.contract.get("recovery_ms_max")
    limit = HORIZON_NS if bound is None else int(float(bound) * 1e6)
    limit += 2 * history.clock_tolerance_ns
    heals = [(over, begin) for (_, over), (begin, _) in pairwise([*spans, (NEVER, NEVER)])]
    heals = [(heal, begin) for heal, begin in heals if heal != NEVER]
    if not heals:
        return unchecked("A60", "no fault was lifted")
    ends = sorted((_ended(s), s["topic"]) for s in history.sends if s["outcome"] == "ok")
    begins = sorted((int(send["t_inv"]), send["topic"]) for send in history.sends)
    last = max(map(_ended, history.sends), default=0)
    found: list[Row] = []
    worst: float | None = None
    for heal, begin in heals:
        acks = _firsts(ends, heal, min(heal + limit, begin))
        for at in acks.values():
            worst = max(worst or 0.0, (at - heal) / 1e6)
        is_whole = bound is not None and heal + limit <= min(begin, last)
        tried = _firsts(begins, heal, heal + limit // 2) if is_whole else {}
        for topic in sorted(tried.keys() - acks.keys()):
            explain = f"nothing sent to {topic} was acknowledged within {bound} ms of the heal"
            found.append({"topic": topic, "t": heal, "explain": f"{explain} at {heal}"})
    words = "nothing was acknowledged" if worst is None else f"at worst after {worst:.0f} ms"
    summary = f"{len(heals)} heals, service back {words}"
    return result("A60", found, summary, heals=len(heals), worst_ms=worst)


def check_availability(history: History) -> Result:
    """A61: fewer sends acknowledged than ``availability_min``, of those far from any fault."""
    spans = fault_spans(history, SETTLE_NS + 2 * history.clock_tolerance_ns)
    begins = [begin for begin, _ in spans]

    def is_quiet(send: Row) -> bool:
        # What never ended may have run into whatever came later.
        cmp = NEVER if send["t_cmp"] is None else send["t_cmp"]
        number = bisect_right(begins, cmp)
        return number == 0 or spans[number - 1][1] < send["t_inv"]

    quiet = [send for send in history.sends if is_quiet(send)]
    if not quiet:
        return unchecked("A61", "no send was far from all faults")
    acknowledged = sum(send["outcome"] == "ok" for send in quiet)
    floor = history.contract.get("availability_min")
    found: list[Row] = []
    if floor is not None and acknowledged < float(floor) * len(quiet):
        explain = f"{acknowledged} of {len(quiet)} sends far from all faults were acknowledged"
        found = [{"key": "availability", "explain": f"{explain}, fewer than {floor} of them"}]
    summary = f"{acknowledged} of {len(quiet)} sends far from all faults were acknowledged"
    return result("A61", found, summary, quiet=len(quiet), acknowledged=acknowledged)


def fault_spans(history: History, settle_ns: int) -> list[Span]:
    """Return when faults were in force, each with the time to settle; overlapping ones are one."""
    known = [span_of(fault) for fault in history.witnessed]
    return merged((one.begin, NEVER if one.end is None else one.end + settle_ns) for one in known)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return stretches of time in their order; those that overlap are one."""
    found: list[Span] = []
    for begin, over in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], over))
        else:
            found.append((begin, over))
    return found


def _firsts(times: Sequence[tuple[int, str]], since: int, until: int) -> dict[str, int]:
    """Return the first time of each topic from ``since`` to ``until``; ``times`` are in order."""
    found: dict[str, int] = {}
    for number in range(bisect_left(times, (since, "")), len(times)):
        at, topic = times[number]
        if at > until:
            break
        found.setdefault(topic, at)
    return found


def _ended(send: Row) -> int:
    return int(send["t_inv"] if send["t_cmp"] is None else send["t_cmp"])

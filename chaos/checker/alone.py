"""When too few brokers ran to hold what is acknowledged: a part of A38.

While a broker is killed, has ended or stands still it gets nothing, and while the link of a pair is
cut neither gets anything from the other. What is sent after that began, and acknowledged before it
was lifted, can lie on the others alone. A fault accuses here, so that it counts only for as long as
nothing else may have started its broker, or made the group another, and not at all if its broker
answered meanwhile. Source: spec/proof.md A38.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from chaos.catalogue.contracts import PAIR, QUORUM
from chaos.catalogue.faults import changes_group, cuts_link, gets_nothing, may_start
from chaos.checker.model import History, is_half_applied, span_of
from chaos.history.columns import Row

NEVER: Final = 1 << 62
PAIR_SIZE: Final = 2
Away = tuple[str, int, int]
"""A broker, and from when to when it gets nothing."""


def lonely_spans(history: History) -> list[tuple[int, int]]:
    """Return from when to when so many brokers were away that the rest are no majority, or pair.

    Nothing where nobody says how many copies are promised, or of which brokers.
    """
    named, promised = set(history.named_nodes), max(history.promised.values(), default=0)
    is_told = history.contract.get("durability") in {QUORUM, PAIR} and history.is_one_group
    if not is_told or not 1 < promised <= len(named) or history.nodes - named:
        return []
    missing = len(named) - promised + 1
    doubts = list(_doubts(history, named))
    answers = _Answers(history)
    away = {
        one for fault in history.witnessed for one in _away(history, fault, named, doubts, answers)
    }
    spans, until = [], dict.fromkeys(named, -NEVER)
    for begin, node, end in sorted((begin, node, end) for node, begin, end in away):
        until[node] = max(until[node], end)
        # So many are away from here until the first of those comes back that stay away longest.
        first_back = sorted(until.values(), reverse=True)[missing - 1]
        if begin < first_back:
            spans.append((begin, first_back))
    return spans


def _away(
    history: History,
    fault: Row,
    named: set[str],
    doubts: Sequence[tuple[Row, Away]],
    answers: "_Answers",
) -> Iterator[Away]:
    """Yield which brokers a fault keeps from getting anything."""
    targets = [target for target in fault["targets"] or () if target in named]
    is_cut = cuts_link(fault["kind"]) and named == set(targets) and len(named) == PAIR_SIZE
    lifted = fault["t_off0"]
    if lifted is None and fault["t_off1"] is None and fault["status"] == "active":
        lifted = NEVER
    keeps = is_cut or gets_nothing(fault["kind"])
    if fault["t_on1"] is None or lifted is None or is_half_applied(fault) or not keeps:
        return
    # Faults were widened, to excuse more; by the clock of whoever sent they were in force for less.
    begin, end = fault["t_on1"] + history.clock_tolerance_ns, lifted - history.clock_tolerance_ns
    start, over = _whole(fault)
    for target in targets:
        if not is_cut and answers.came_within(target, begin, end):
            continue
        if not any(
            node == target and since <= over and start <= until and other is not fault
            for other, (node, since, until) in doubts
        ):
            yield target, begin, end


class _Answers:
    """When nodes answered status questions: a witness that saw one of them gone was mistaken."""

    def __init__(self, history: History) -> None:
        told: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for row in history.probes:
            if row.get("ok") and row.get("t1") is not None:
                told[row["node"]].append((row["t0"], row["t1"]))
        self._begins: dict[str, list[int]] = {}
        self._ends: dict[str, list[int]] = {}
        for node, spans in told.items():
            spans.sort()
            self._begins[node] = [begin for begin, _ in spans]
            # The earliest end of any that began then or later.
            self._ends[node] = [*accumulate((end for _, end in reversed(spans)), min)][::-1]

    def came_within(self, node: str, begin: int, end: int) -> bool:
        """Tell whether one was asked for and had come between two times."""
        at = bisect_left(self._begins.get(node, []), begin)
        return at < len(self._begins.get(node, [])) and self._ends[node][at] <= end


def _doubts(history: History, named: set[str]) -> Iterator[tuple[Row, Away]]:
    """Yield by whose fault which broker may have been started, or others may have decided, when."""
    for fault in history.begun:
        start, over = _whole(fault)
        reached = set(fault["targets"] or ()) if may_start(fault["kind"]) else set()
        for node in named if changes_group(fault["kind"]) else reached & named:
            yield fault, (node, start, over)


def _whole(fault: Row) -> tuple[int, int]:
    """Return from when to when a fault that was on at some time was in force, at the most."""
    span = span_of(fault)
    return -NEVER if span.begin is None else span.begin, NEVER if span.end is None else span.end


def acknowledged_alone(history: History) -> Iterator[Row]:
    """Yield what was sent and acknowledged while too few brokers ran to hold it."""
    groups = {send.get("raft_group") or 0 for send in history.ok_sends}
    spans = lonely_spans(history) if len(groups) == 1 else []
    begins, ends = [begin for begin, _ in spans], list(accumulate((end for _, end in spans), max))
    for send in history.ok_sends:
        told, before = send["t_cmp"], bisect_right(begins, send["t_inv"])
        if told is not None and before and told <= ends[before - 1]:
            explain = (
                f"message {send['msg_key']} (op {send['op_id']}) was sent and acknowledged while "
                "fewer brokers got anything than have to hold it"
            )
            yield {"msg_key": send["msg_key"], "op_id": send["op_id"], "explain": explain}

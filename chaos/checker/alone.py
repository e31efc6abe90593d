"""When too few brokers ran to hold what is acknowledged: a part of A38.

While a broker is killed, has ended or stands still it gets nothing, and while the link of a pair is
cut neither gets anything from the other. What is sent after that began, and acknowledged before it
was lifted, can lie on the others alone. Source: spec/proof.md A38.
"""

from collections.abc import Iterator
from itertools import combinations, product

from chaos.catalogue.contracts import PAIR, QUORUM
from chaos.catalogue.faults import cuts_link, gets_nothing
from chaos.checker.model import History, Row

NEVER = 1 << 62
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
    found = set()
    by_fault = [list(_away(fault, named)) for fault in history.witnessed]
    for some in combinations([one for one in by_fault if one], missing):
        for each in product(*some):
            begin, end = max(one[1] for one in each), min(one[2] for one in each)
            if begin < end and len({one[0] for one in each}) == missing:
                found.add((begin, end))
    return sorted(found)


def _away(fault: Row, named: set[str]) -> Iterator[Away]:
    """Yield which brokers a fault keeps from getting anything."""
    targets = [target for target in fault["targets"] or () if target in named]
    is_cut = cuts_link(fault["kind"]) and named == set(targets) and len(named) == len((0, 1))
    if fault["t_on1"] is None or not (is_cut or gets_nothing(fault["kind"])):
        return
    lifted = fault["t_off1"] if fault["t_off0"] is None else fault["t_off0"]
    for target in targets:
        yield target, fault["t_on1"], NEVER if lifted is None else lifted


def acknowledged_alone(history: History) -> Iterator[Row]:
    """Yield what was sent and acknowledged while too few brokers ran to hold it."""
    groups = {send.get("raft_group") or 0 for send in history.ok_sends}
    spans = lonely_spans(history) if len(groups) == 1 else []
    for send in history.ok_sends:
        begun, told = send["t_inv"], send["t_cmp"]
        if told is not None and any(begin <= begun and told <= end for begin, end in spans):
            explain = (
                f"message {send['msg_key']} (op {send['op_id']}) was sent and acknowledged while "
                "fewer brokers got anything than have to hold it"
            )
            yield {"msg_key": send["msg_key"], "op_id": send["op_id"], "explain": explain}

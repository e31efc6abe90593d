"""What a run promised, and whether the faults that took effect were more than it promised for.

The promise is ``run.json``'s ``contract``: ``durability`` and ``flush``; what faults excuse is data
(`chaos.catalogue.contracts`). Only witnessed faults count. Source: spec/proof.md 4.3 (Contract).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chaos.catalogue.contracts import NONE, QUORUM, Allowance, allowance
from chaos.catalogue.faults import exceeds
from spark.context import Fault
from spark.result import Contract


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """On how many of its nodes a group has what it acknowledged."""

    nodes: frozenset[str]
    copies: int


def evaluate_contract(
    run: dict[str, Any], faults: list[Fault], promises: Sequence[Promise]
) -> Contract:
    """Return the contract of a run; exceeded if the faults took from a group what it relied on."""
    stated = run.get("contract")
    stated = dict(stated) if isinstance(stated, dict) else {}
    durability = str(stated.get("durability", QUORUM))
    if durability == NONE:
        return Contract(stated=stated, exceeded=True, reasons=(allowance(NONE, "", 0, {}).why,))
    flush = str(stated.get("flush", "ASYNC_FLUSH")).lower()
    known = frozenset().union(*(promise.nodes for promise in promises))
    broken: list[Allowance] = []
    whole: set[str] = set()
    hurt: set[str] = set()
    for promise in promises:
        hit: dict[str, int | None] = {}
        for fault in (f for f in faults if f.effective and exceeds(f.kind, flush)):
            for node in (n for n in fault.targets if n in promise.nodes or n not in known):
                total = hit.setdefault(node, 0)
                uncounted = total is None or fault.only_there is None
                hit[node] = None if uncounted else (total or 0) + (fault.only_there or 0)
        found = allowance(durability, flush, promise.copies, hit)
        broken += [found] if found.why else []
        (hurt if found.why else whole).update(promise.nodes)
    bounds = [one.messages_max for one in broken]
    return Contract(
        stated=stated,
        exceeded=bool(broken),
        reasons=tuple(sorted({one.why for one in broken})),
        whole=frozenset(whole - hurt),
        messages_max=None if None in bounds or not bounds else sum(b for b in bounds if b),
    )

"""From when to when too few brokers ran to hold what is acknowledged, for A38.

A broker that is killed, has ended or stands still gets nothing; nor do two from each other whose
link is cut, which matters where there are no others. It does not count where another fault may have
started it meanwhile, or made the group another, nor where the broker answered a status question.
Facts of the driver: faults are few.
Source: spec/proof.md A38.
"""

from typing import Final

from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.catalogue.contracts import PAIR, QUORUM, copies
from chaos.catalogue.faults import changes_group, cuts_link, gets_nothing, may_start
from spark.context import HALF_APPLIED, Context, Fault
from spark.facts import NO_BOUND
from spark.history import few_rows

PAIR_SIZE: Final = 2
Stretch = tuple[int, int]
Away = tuple[int, int, str, bool]
"""From when to when, which broker, and whether its link was cut."""


def lonely(context: Context) -> list[Stretch]:
    """Return the stretches, in order; none where run.json lists no brokers or promises nothing."""
    run = context.history.run
    nodes, contract, told = run.get("nodes"), run.get("contract"), run.get("quorum")
    durability = contract.get("durability") if isinstance(contract, dict) else None
    if durability not in {QUORUM, PAIR} or not isinstance(nodes, list) or isinstance(told, dict):
        return []
    names = frozenset(map(str, nodes))
    promised = told if isinstance(told, int) and told > 0 else copies(str(durability), len(names))
    if not 1 < promised <= len(names) or context.nodes - names:
        return []
    missing = len(names) - promised + 1
    away = _silent(context, [one for node in names for one in _away(context, node, names)])
    found: dict[int, int] = {}
    back: dict[str, int] = {}
    for on, off, node in away:
        back[node] = max(off, back.get(node, off))
        later = sorted(time for time in back.values() if time > on)
        if len(later) >= missing:  # until fewer than so many of them are away
            found[on] = later[-missing]
    return sorted(found.items())


def _silent(context: Context, away: list[Away]) -> list[tuple[int, int, str]]:
    """Return when brokers were away, in order, without those that answered a question meanwhile."""
    stopped = [(on, off, node) for on, off, node, is_cut in away if not is_cut]
    answers: set[tuple[int, int, str]] = set()
    if stopped and context.history.rows("raft_probe"):
        table = F.broadcast(few_rows(context.session, stopped, "on long, off long, node string"))
        probes = context.table("raft_probe").filter("ok and t1 is not null").join(table, "node")
        told = probes.filter("t0 >= on and t1 <= off").select("on", "off", "node").distinct()
        answers = {(row["on"], row["off"], row["node"]) for row in told.collect()}
    return sorted(
        (on, off, node)
        for on, off, node, is_cut in away
        if is_cut or (on, off, node) not in answers
    )


def _away(context: Context, node: str, names: frozenset[str]) -> list[Away]:
    """Return when a broker got nothing, and whether it was its link that was cut."""
    # Faults were widened, to excuse more: here they accuse.
    slack = context.history.tolerance
    return [
        (fault.on + slack, fault.lifting - slack, node, not gets_nothing(fault.kind))
        for fault in context.faults
        if fault.on is not None and fault.lifting is not None
        if node in fault.targets and fault.status != HALF_APPLIED and _keeps_away(fault, names)
        if not any(_may_undo(other, fault, node) for other in context.begun)
    ]


def _keeps_away(fault: Fault, names: frozenset[str]) -> bool:
    is_cut = cuts_link(fault.kind) and len(names) == PAIR_SIZE and names <= set(fault.targets)
    return gets_nothing(fault.kind) or is_cut


def _may_undo(other: Fault, fault: Fault, node: str) -> bool:
    """Tell whether the broker may have run amid a fault of its own, or others have decided."""
    if other is fault:
        return False
    reaches = node in other.targets and may_start(other.kind)
    end = NO_BOUND if fault.end is None else fault.end
    return (reaches or changes_group(other.kind)) and other.overlaps(fault.start, end)

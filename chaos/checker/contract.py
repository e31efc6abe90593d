"""What a run may lose of what it acknowledged: its contract, and the faults that took effect.

Source: spec/proof.md 4.3 (contract); the rules are `chaos.catalogue.contracts`.
"""

from collections import defaultdict

from chaos.catalogue.contracts import QUORUM, Allowance, allowance
from chaos.catalogue.faults import exceeds
from chaos.checker.model import History


def allowed_loss(history: History) -> Allowance:
    """Return what the run may lose: nothing, unless faults took more than the contract bears.

    Each Raft group, or pair, by itself: what one of them loses excuses whatever is not known to
    have been another's (`whole_nodes`).
    """
    found = [one for one in _by_group(history).values() if one.why]
    if not found:
        return Allowance()
    bounds = [one.messages_max for one in found]
    known = [bound for bound in bounds if bound is not None]
    return Allowance(
        why="; ".join(dict.fromkeys(one.why for one in found)),
        messages_max=sum(known) if len(known) == len(bounds) else None,
    )


def whole_nodes(history: History) -> set[str]:
    """Return the nodes whose groups have, by their logs, all that they promised to keep."""
    broken = {group for group, one in _by_group(history).items() if one.why}
    of_these = {one.node for one in history.replicas if one.group in broken}
    return {one.node for one in history.replicas if one.group not in broken} - of_these


def _by_group(history: History) -> dict[str, Allowance]:
    durability = str(history.contract.get("durability", QUORUM))
    flush = str(history.contract.get("flush", "ASYNC_FLUSH")).lower()
    hit = _hit(history, flush)
    members: dict[str, set[str]] = defaultdict(set)
    for replica in history.replicas:
        members[replica.group].add(replica.node)
    nameless = hit.keys() - set().union(*members.values())
    found = {}
    for group in sorted(members) or [""]:
        # Whose log is not there may have been of any group.
        mine = {n: hit[n] for n in hit if n in members[group] or n in nameless}
        found[group] = allowance(durability, flush, history.promised_in(group), mine)
    return found


def _hit(history: History, flush: str) -> dict[str, int | None]:
    """Return from whose disks something was taken, and how many messages each had alone."""
    hit: dict[str, int | None] = {}
    for fault in history.taking:
        if not exceeds(fault["kind"], flush):
            continue
        alone = fault.get("only_there")
        for node in history.ours(fault["targets"] or ()):
            before = hit.get(node, 0)
            hit[node] = None if alone is None or before is None else before + int(alone)
    return hit

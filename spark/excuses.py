"""What faults that took disks do not excuse: the same checks over the sends apart from them.

Such faults take what there was. So where a contract is exceeded, checks of loss are asked again of
what was sent after the last of them, and, where no end of the run is needed, of what was sent and
read before the first; without logs, which have no times. Source: spec/proof.md 4.3 (Contract).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from chaos.catalogue.contracts import AFTER, BEFORE, NONE, SETTLED_NS
from chaos.catalogue.faults import exceeds
from spark.checks.loss import check_loss
from spark.checks.offsets import check_offsets
from spark.checks.reading import check_backwards, check_skips
from spark.checks.retries import check_missing_letters
from spark.checks.sends import check_order
from spark.checks.service import check_refused
from spark.checks.transactions import check_committed_missing
from spark.context import Context, load_context
from spark.history import Part
from spark.message_outcomes import load_outcomes
from spark.result import INVALID, UNKNOWN, CheckResult, Contract

_ASKED: Final[dict[str, Callable[[Context], CheckResult]]] = {
    "A1": lambda context: check_loss(context, load_outcomes(context, None), None, gaps=False),
    "A11": check_order,
    "A13": check_backwards,
    "A14": check_skips,
    "A15": lambda context: check_offsets(context, None, None),
    "A27": check_refused,
    "A55": check_committed_missing,
    "A57": check_missing_letters,
}


def excuse_less(context: Context, contract: Contract, results: list[CheckResult]) -> None:
    """Note in the details of results what no fault that took a disk explains."""
    if not contract.exceeded or contract.stated.get("durability") == NONE:
        return
    doubted = [one for one in results if one.verdict == INVALID and one.check in _ASKED]
    for part, checks, words in _parts(context, contract) if doubted else ():
        known: Context | None = None
        for result in doubted:
            if result.check not in checks or "not_excused" in result.details:
                continue
            known = known or _context_of(context, part)
            found = _ASKED[result.check](known)
            if found.verdict != UNKNOWN:
                found.validator()
            if found.verdict == INVALID:
                result.details["not_excused"] = f"{found.count} of what was {words}"


def _context_of(context: Context, part: Part) -> Context:
    """Return the facts of a part; whether deliveries were recorded is known of the whole.

    For all of a part may be lost.
    """
    known = load_context(context.session, replace(context.history, part=part))
    known.delivered_rows = context.delivered_rows
    return known


def _parts(context: Context, contract: Contract) -> Iterator[tuple[Part, tuple[str, ...], str]]:
    flush = str(contract.stated.get("flush", "ASYNC_FLUSH")).lower()
    taking = [one for one in context.taking if one.effective and exceeds(one.kind, flush)]
    if not taking:
        return
    ends = [fault.end for fault in taking]
    known = [end for end in ends if end is not None]
    if len(known) == len(ends):
        yield Part(after=max(known) + SETTLED_NS), AFTER, "sent after them"
    begin = min(fault.start for fault in taking)
    yield Part(before=begin), BEFORE, "sent and read before them"

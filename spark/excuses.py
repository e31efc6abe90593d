"""What faults that took disks do not excuse: the same checks over the sends apart from them.

Such faults take what there was. So where a contract is exceeded, checks of loss are asked again of
what was sent after the last of them, and, where no end of the run is needed, of what was sent and
read before the first. Logs have no times: of them counts what they lack of what was sent later.
Checks that name a message and a group look at each by itself (`taken`).
Source: spec/proof.md 4.3 (Contract).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.catalogue.contracts import AFTER, BEFORE, NAMED, NONE, SETTLED_NS
from chaos.catalogue.faults import exceeds
from spark.checks.offsets import check_offsets
from spark.checks.raft import check_later
from spark.checks.reading import check_backwards, check_skips
from spark.checks.retries import check_missing_letters
from spark.checks.sends import check_order
from spark.checks.service import check_refused
from spark.checks.transactions import decisions, missed_commits
from spark.checks.unseen import check_passed
from spark.context import Context, Fault, load_context
from spark.facts import made_anew, read_out
from spark.history import Part
from spark.log_entries import LogEntries
from spark.message_outcomes import load_outcomes
from spark.result import INVALID, UNKNOWN, CheckResult, Contract
from spark.taken import not_taken

Ask = Callable[[Context, LogEntries | None], CheckResult]
_ASKED: Final[dict[str, Ask]] = {
    "A2": lambda context, _: check_passed(context, load_outcomes(context, None)),
    "A11": lambda context, _: check_order(context),
    "A13": lambda context, _: check_backwards(context),
    "A14": lambda context, _: check_skips(context),
    "A15": lambda context, _: check_offsets(context, None, None),
    "A27": lambda context, _: check_refused(context),
    "A35": check_later,
    "A57": lambda context, _: check_missing_letters(context),
}


def excuse_less(
    context: Context, contract: Contract, results: list[CheckResult], entries: LogEntries | None
) -> None:
    """Note in the details of results what no fault that took a disk explains."""
    taking = _taking(context, contract)
    if not contract.exceeded or contract.stated.get("durability") == NONE or not taking:
        return
    for result in results:
        if result.verdict == INVALID and result.check in NAMED:
            missed = _missed(context, result.check)
            words = ""
            if missed is not None:
                words = not_taken(context, missed, entries, taking, contract.whole)
            result.details |= {"not_excused": words} if words else {}
    doubted = [one for one in results if one.verdict == INVALID and one.check in _ASKED]
    for part, checks, words in _parts(taking) if doubted else ():
        known: Context | None = None
        for result in doubted:
            if result.check not in checks or "not_excused" in result.details:
                continue
            mine = replace(part, anew=tuple(made_anew(context)))
            known = known or load_context(context.session, replace(context.history, part=mine))
            found = _ASKED[result.check](known, entries)
            if found.verdict != UNKNOWN:
                found.validator()
            if found.verdict == INVALID:
                result.details["not_excused"] = f"{found.count} of what was {words}"


def _missed(context: Context, check: str) -> DataFrame | None:
    """Return what groups did not get, with places and sends; None if nothing is named."""
    if check == "A1":
        return None if context.absent is None else context.absent.filter("state = 'lost'")
    said = decisions(context, check)
    if isinstance(said, CheckResult):
        return None
    return missed_commits(context, said).filter(F.col("gname").isin(read_out(context)))


def _taking(context: Context, contract: Contract) -> list[Fault]:
    """Return the faults that took from disks what this flush promises to keep."""
    flush = str(contract.stated.get("flush", "ASYNC_FLUSH")).lower()
    return [one for one in context.taking if exceeds(one.kind, flush)]


def _parts(taking: Sequence[Fault]) -> Iterator[tuple[Part, tuple[str, ...], str]]:
    ends = [fault.end for fault in taking]
    known = [end for end in ends if end is not None]
    if len(known) == len(ends):
        yield Part(after=max(known) + SETTLED_NS), AFTER, "sent after them"
    begin = min(fault.start for fault in taking)
    yield Part(before=begin), BEFORE, "sent and read before them"

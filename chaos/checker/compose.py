"""All checks over one history, and the verdict: the worst answer wins.

A check that crashes makes the verdict unknown, never valid. Source: Jepsen check-safe;
spec/proof.md 4.2 (exit codes).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from chaos.catalogue.checks import EXCUSABLE, without
from chaos.catalogue.contracts import Allowance, beyond
from chaos.checker.acknowledged import check_durable
from chaos.checker.check_back import check_questions
from chaos.checker.compact import Given
from chaos.checker.contract import allowed_loss
from chaos.checker.copies import check_duplicates, check_offsets
from chaos.checker.delayed import check_early, check_late
from chaos.checker.effects import (
    check_coverage,
    check_failover,
    check_harness,
    check_minimum_evidence,
)
from chaos.checker.events import check_commits, check_leaders, check_terms, check_votes
from chaos.checker.excuses import excused_less
from chaos.checker.leadership import check_completeness, check_old_terms, check_stale
from chaos.checker.logs import check_committed, check_log_matching
from chaos.checker.masters import check_masters
from chaos.checker.measures import check_span, check_storm, check_unknown
from chaos.checker.messages import (
    check_aborted,
    check_corrupt,
    check_loss,
    check_phantom,
    refused,
)
from chaos.checker.model import INVALID, UNKNOWN, VALID, History, Result, undecided
from chaos.checker.process_logs import check_process_logs
from chaos.checker.progress import check_batches, check_beyond, check_falls, check_holes
from chaos.checker.queues import check_queues
from chaos.checker.reading import check_backwards, check_shards, check_skips
from chaos.checker.recovery import check_availability, check_recovery
from chaos.checker.redelivery import check_redelivery
from chaos.checker.retries import (
    check_false_letters,
    check_ladder,
    check_letters_twice,
    check_missing_letters,
)
from chaos.checker.sends import check_order, check_word
from chaos.checker.service import check_answers, check_exits, check_refused, check_selection
from chaos.checker.transactions import (
    check_committed_missing,
    check_rolled_back,
    check_undecided,
)
from chaos.checker.unseen import check_lag, check_passed

CHECKS: Mapping[str, Callable[[History], Result]] = {
    "A1": check_loss,
    "A2": check_passed,
    "A3": check_unknown,
    "A4": check_lag,
    "A5": check_phantom,
    "A6": check_corrupt,
    "A7": check_aborted,
    "A8": check_duplicates,
    "A9": check_redelivery,
    "A11": check_order,
    "A12": check_batches,
    "A13": check_backwards,
    "A14": check_skips,
    "A15": check_offsets,
    "A16": check_holes,
    "A17": check_shards,
    "A18": check_falls,
    "A19": check_beyond,
    "A23": check_questions,
    "A25": check_late,
    "A26": check_ladder,
    "A27": check_refused,
    "A28": check_false_letters,
    "A29": check_letters_twice,
    "A30": check_leaders,
    "A31": check_votes,
    "A32": check_terms,
    "A33": check_commits,
    "A34": check_log_matching,
    "A35": check_committed,
    "A36": check_completeness,
    "A37": check_old_terms,
    "A38": check_stale,
    "A39": check_queues,
    "A41": check_failover,
    "A45": check_minimum_evidence,
    "A46": check_selection,
    "A47": check_coverage,
    "A48": check_harness,
    "A49": check_word,
    "A50": check_answers,
    "A51": check_exits,
    "A52": check_durable,
    "A53": check_rolled_back,
    "A54": check_undecided,
    "A55": check_committed_missing,
    "A56": check_early,
    "A57": check_missing_letters,
    "A58": check_storm,
    "A59": check_span,
    "A60": check_recovery,
    "A61": check_availability,
    "A62": check_process_logs,
    "A63": check_masters,
}
BEYOND = frozenset({"A8", "A29"})
"""Checks of copies: what they find is no loss, but more than the contract says."""
_GIVEN = ("delivered", "redelivered")
HEADLINES: Final = {
    "sends": ("sent", "acknowledged", "unknown", "failed", *_GIVEN),
    "deliveries": _GIVEN,
}
"""The headline numbers that rest on a table: what was refused is not known, and not 0."""

EXIT_CODES = {VALID: 0, INVALID: 1, UNKNOWN: 2}
EXIT_EXCEEDED, EXIT_USAGE, EXIT_HARNESS = 3, 254, 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict over all checks, with its reasons and the headline counts."""

    verdict: str
    reasons: tuple[str, ...]
    results: Mapping[str, Result]
    counts: Mapping[str, int]
    exit_code: int

    def as_json(self) -> dict[str, Any]:
        """Return the content of the verdict file."""
        return {
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "reasons": list(self.reasons),
            "counts": dict(self.counts),
            "checks": {name: found.as_json() for name, found in self.results.items()},
            "checker": "in-process",
        }


def check_history(history: History) -> Verdict:
    """Run every check and compose the verdict."""
    results = {name: _safely(name, check, history) for name, check in CHECKS.items()}
    allowed, counts = Allowance(), {}
    try:
        allowed = allowed_loss(history)
        results = excused_less(history, results, CHECKS) if allowed.why else results
        counts = count(history, results)
    except Exception as error:  # noqa: BLE001 - the checks that were made stand
        why = f"contract and counts: {type(error).__name__}: {error}"
        results["A48"] = undecided("A48", f"{results['A48'].summary}; {why}")
    verdict, reasons = decide(list(results.values()), allowed=allowed)
    code = EXIT_CODES[verdict] or (EXIT_EXCEEDED if reasons else 0)
    return Verdict(verdict=verdict, reasons=reasons, results=results, counts=counts, exit_code=code)


def decide(
    results: Sequence[Result], allowed: Allowance | None = None
) -> tuple[str, tuple[str, ...]]:
    """Return the worst verdict (invalid, then unknown, then valid) and the reasons for it.

    Reasons for valid: the contract was exceeded. ``allowed``: what this run may lose; more than
    that is invalid.
    """
    invalid = [r for r in results if r.verdict == INVALID]
    beyond_contract = [
        f"{r.check} {r.count}: {r.summary}"
        for r in results
        if r.check in BEYOND and r.count and r not in invalid
    ]
    bad = []
    for one in invalid:
        line = f"{one.check} {one.count}: {one.summary}"
        if allowed is None or not allowed.why or one.check not in EXCUSABLE:
            bad.append(line)
        elif more := one.details.get("not_excused") or beyond(
            allowed, int(one.details.get("most_of_a_group", one.count))
        ):
            bad.append(f"{line}; {allowed.why}; {more}")
        else:
            beyond_contract.append(f"{line}; expected loss: {allowed.why}")
    unknown = [f"{r.check}: {r.summary}" for r in results if r.verdict == UNKNOWN]
    if bad:
        return INVALID, (*bad, *unknown, *beyond_contract)
    if unknown:
        return UNKNOWN, (*unknown, *beyond_contract)
    return VALID, tuple(beyond_contract)


def unreadable(error: Exception) -> Verdict:
    """Return the verdict over a run that could not even be loaded: unknown, whatever is in it."""
    why = f"the run could not be loaded: {type(error).__name__}: {error}"
    return Verdict(
        verdict=UNKNOWN,
        reasons=(why,),
        results={name: undecided(name, why) for name in CHECKS},
        counts={},
        exit_code=EXIT_CODES[UNKNOWN],
    )


def count(history: History, results: Mapping[str, Result]) -> dict[str, int]:
    """Return the headline numbers of a run, without those of tables that were refused."""
    failed = sum(map(refused, history.sends))
    different = Given(history.by_key)
    given = 0
    for row in history.to_groups:
        if row["msg_key"] is not None:
            different.add(row["grp"], row["msg_key"])
            given += 1
    distinct = len(different)
    counts = {
        "sent": len(history.sends),
        "acknowledged": len({send.get("msg_key") for send in history.ok_sends}),
        "unknown": len(history.sends) - len(history.ok_sends) - failed,
        "failed": failed,
        "delivered": distinct,
        "redelivered": given - distinct,
        "lost": results["A1"].count,
        "phantom": results["A5"].count,
        "corrupt": results["A6"].count,
        "aborted": results["A7"].count,
        "duplicates": results["A8"].count,
        "inconsistent_offsets": results["A15"].count,
        "divergent": int(results["A35"].details.get("divergent", 0)),
        "log_entries": sum(len(replica.rows) for replica in history.replicas),
    }
    unknown = {name for table in history.unusable for name in HEADLINES.get(table, ())}
    return {name: number for name, number in counts.items() if name not in unknown}


def _safely(name: str, check: Callable[[History], Result], history: History) -> Result:
    if why := without(name, history.unusable):
        return undecided(name, why)
    try:
        return check(history)
    except Exception as error:  # noqa: BLE001 - a broken check must not pass for a good result
        return undecided(name, f"the check failed: {type(error).__name__}: {error}")

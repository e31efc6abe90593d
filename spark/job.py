"""Runs the checks over a history in an order that shares passes, and writes the verdict.

A check that raises makes its own result unknown and the others go on. Source: spec/proof.md 4.2,
4.3.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from chaos.catalogue.checks import CHECKS as ENTRIES
from chaos.catalogue.checks import REFUSED, REPLICAS, UNSETTLED
from chaos.history.arrow import arrow_schema
from spark.checks.acknowledged import check_durable
from spark.checks.check_back import check_questions
from spark.checks.corrupt import check_corrupt
from spark.checks.coverage import check_coverage
from spark.checks.delayed import check_early, check_late
from spark.checks.duplicates import check_duplicates
from spark.checks.harness import check_failover, check_harness
from spark.checks.leadership import check_completeness, check_old_terms, check_stale
from spark.checks.loss import check_loss
from spark.checks.masters import check_masters
from spark.checks.measures import check_span, check_storm, check_unknown
from spark.checks.minimum_evidence import check_minimum_evidence
from spark.checks.offsets import check_offsets
from spark.checks.phantom import check_aborted, check_phantom
from spark.checks.process_logs import check_process_logs
from spark.checks.progress import check_batches, check_beyond, check_falls, check_holes
from spark.checks.queues import check_queues
from spark.checks.raft import check_committed, check_log_matching
from spark.checks.raft_events import check_commits, check_leaders, check_terms, check_votes
from spark.checks.reading import check_backwards, check_shards, check_skips
from spark.checks.recovery import check_availability, check_recovery
from spark.checks.redelivery import check_redelivery
from spark.checks.retries import (
    check_false_letters,
    check_ladder,
    check_letters_twice,
    check_missing_letters,
)
from spark.checks.sends import check_order, check_word
from spark.checks.service import check_answers, check_exits, check_refused, check_selection
from spark.checks.transactions import (
    check_committed_missing,
    check_rolled_back,
    check_undecided,
)
from spark.checks.unseen import check_lag, check_passed
from spark.context import Context, load_context
from spark.contract import Promise, evaluate_contract
from spark.excuses import excuse_less
from spark.history import History
from spark.log_entries import LogEntries, load_log_entries, missing_nodes, promised_copies
from spark.message_outcomes import MessageOutcomes, load_outcomes
from spark.result import SPARK_CHECKS, UNKNOWN, CheckResult, Contract, Verdict, decide

CHECKS: Final = SPARK_CHECKS
RESTS_ON_OUTCOMES: Final = frozenset({"A1", "A2", "A3", "A5", "A6", "A7", "A8", "A9", "A35", "A59"})
"""What asks of messages what became of them: all tables laid over each other by key."""
RESTS_ON_LOGS: Final = RESTS_ON_OUTCOMES | {"A15", "A34", "A39", "A48"}
"""What asks the replicas' logs; A48 whether they are there."""
RESTS_ON_GAPS: Final = frozenset({"A1", "A5", "A45"})
"""What is said otherwise where the record has gaps."""
ANOMALIES_PER_FILE: Final = 1_000_000
Progress = Callable[[str], None]
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Report:
    """Everything a run of the job found."""

    results: list[CheckResult]
    contract: Contract
    verdict: Verdict
    counts: dict[str, int | None]
    problems: list[str]
    seconds: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``results.json``."""
        return {
            "verdict": self.verdict.verdict,
            "exit_code": self.verdict.exit_code,
            "reasons": list(self.verdict.reasons),
            "counts": self.counts,
            "checks": {r.check: r.as_json() for r in self.results},
            "contract": {
                "stated": self.contract.stated,
                "exceeded": self.contract.exceeded,
                "reasons": list(self.contract.reasons),
            },
            "problems": self.problems,
            "timings_s": {name: round(s, 3) for name, s in self.seconds.items()},
            "checker": "spark",
        }


class _Steps:
    """Runs named steps, times them, and turns their exceptions into one line each."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}
        self.failures: list[str] = []

    def run(self, name: str, step: Callable[[], T]) -> T | None:
        """Return what ``step`` returns, or None after noting why it failed."""
        begin = time.perf_counter()
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the verdict becomes unknown
            self.failures.append(f"{name}: {describe_error(error)}")
            return None
        finally:
            self.seconds[name] = time.perf_counter() - begin


@dataclass(slots=True, kw_only=True)
class LaidOut:
    """What the checks of a run share; a part that could not be made is None."""

    history: History
    steps: _Steps
    context: Context | None = None
    entries: LogEntries | None = None
    outcomes: MessageOutcomes | None = None


def run_checks(
    session: SparkSession, history: History, *, only: Iterable[str] = CHECKS, progress: Progress
) -> Report:
    """Run the checks named in ``only`` and return the report. Raises nothing of Spark's."""
    wanted = tuple(only)
    return judge(lay_out(session, history, wanted, progress), wanted)


def lay_out(
    session: SparkSession, history: History, wanted: tuple[str, ...], progress: Progress
) -> LaidOut:
    """Make what the checks ``wanted`` share, once. Raises nothing of Spark's."""
    # Spark knows cached results by path: a rewritten run must not be answered from an earlier one.
    session.catalog.clearCache()
    steps = _Steps(progress)
    laid = LaidOut(history=history, steps=steps)
    context = laid.context = steps.run("facts", lambda: load_context(session, history))
    if context is None:
        return laid
    progress(f"read facts of {history.rows('sends')} sends ({steps.seconds['facts']:.1f} s)")
    if RESTS_ON_LOGS & set(wanted):
        laid.entries = _decode(steps, context)
    if RESTS_ON_OUTCOMES & set(wanted):
        laid.outcomes = steps.run("messages", lambda: load_outcomes(context, laid.entries))
    if laid.outcomes is not None:
        progress(f"laid all tables over each other ({steps.seconds['messages']:.1f} s)")
    return laid


def judge(laid: LaidOut, wanted: tuple[str, ...]) -> Report:
    """Return the report of the checks ``wanted`` over what was laid out for them."""
    history, steps, context, entries = laid.history, laid.steps, laid.context, laid.entries
    results = _check(steps, wanted, context, laid.outcomes, entries)
    promises = _promises(history.run, context, entries)
    contract = evaluate_contract(history.run, context.taking if context else [], promises)
    known = len(steps.failures)
    if context is not None:
        steps.run("excuses", lambda: excuse_less(context, contract, results, entries))
    problems = [*history.problems, *steps.failures]
    # A48 has told what was known when it was asked.
    told = problems if context is None or "A48" not in wanted else steps.failures[known:]
    return Report(
        results=results,
        contract=contract,
        verdict=decide(results, contract, told),
        counts=_counts(results, laid.outcomes, entries),
        problems=problems,
        seconds=steps.seconds,
    )


def _promises(
    run: dict[str, Any], context: Context | None, entries: LogEntries | None
) -> list[Promise]:
    """Return what each group promises; without logs there is one group, of nodes unknown."""
    nodes = entries.nodes if entries else []
    told_of = len(context.telling_nodes) if context else 0
    promised = entries.promised if entries else promised_copies(run, [], {}, told_of)
    return [
        Promise(nodes=frozenset(n.node for n in nodes if n.group == group), copies=number)
        for group, number in promised.items()
    ]


def _decode(steps: _Steps, context: Context) -> LogEntries | None:
    """Return the folded logs; None if there are none, or they cannot be read."""
    entries = steps.run("replica logs", lambda: load_log_entries(context))
    if steps.failures:
        context.history.unusable[REPLICAS] = REFUSED
    elif absent := missing_nodes(context, entries):
        steps.failures.append(absent)
    if entries is not None:
        if entries.unsettled:
            context.history.unusable.setdefault(REPLICAS, UNSETTLED)
        rows, spent = sum(n.rows for n in entries.nodes), steps.seconds["replica logs"]
        nodes = len(entries.nodes)
        steps.progress(f"decoded {rows} log entries of {nodes} replicas ({spent:.1f} s)")
    return entries


def _check(
    steps: _Steps,
    wanted: tuple[str, ...],
    context: Context | None,
    outcomes: MessageOutcomes | None,
    entries: LogEntries | None,
) -> list[CheckResult]:
    """Return a result for every check that is wanted; what could not be made is unknown."""
    if context is None:
        return [_not_made(check, steps.failures) for check in wanted]
    plan: dict[str, Callable[[], CheckResult]] = {}
    gaps = False
    if RESTS_ON_GAPS & set(wanted):
        floor = _run_check(steps, "A45", lambda: check_minimum_evidence(context, outcomes))
        plan["A45"], gaps = (lambda: floor), "gap" in floor.details
    if outcomes is not None:
        plan |= _plan_of_messages(context, outcomes, entries, gaps=gaps)
    plan |= _plan_of_kinds(context)
    plan |= {
        "A11": lambda: check_order(context),
        "A15": lambda: check_offsets(context, entries, outcomes),
        "A27": lambda: check_refused(context),
        "A30": lambda: check_leaders(context),
        "A31": lambda: check_votes(context),
        "A32": lambda: check_terms(context),
        "A33": lambda: check_commits(context),
        "A34": lambda: check_log_matching(context, entries),
        "A39": lambda: check_queues(context, entries),
        "A41": lambda: check_failover(context),
        "A46": lambda: check_selection(context),
        "A47": lambda: check_coverage(context),
        "A48": lambda: check_harness(context, [*context.history.problems, *steps.failures]),
        "A49": lambda: check_word(context),
        "A50": lambda: check_answers(context),
        "A51": lambda: check_exits(context),
    }
    order = sorted(wanted, key=CHECKS.index)
    results = []
    for check in order:
        if why := context.history.lacks(check):
            results.append(CheckResult(check=check, verdict=UNKNOWN, summary=why))
        elif check == "A45":
            results.append(plan[check]())
        elif check in plan:
            results.append(_run_check(steps, check, plan[check]))
        else:
            results.append(_not_made(check, steps.failures))
    return results


def _plan_of_kinds(context: Context) -> dict[str, Callable[[], CheckResult]]:
    """Return the checks that ask of order, offsets, delay, retries and transactions."""
    checks: dict[str, Callable[[Context], CheckResult]] = {
        "A4": check_lag,
        "A12": check_batches,
        "A13": check_backwards,
        "A14": check_skips,
        "A16": check_holes,
        "A17": check_shards,
        "A18": check_falls,
        "A19": check_beyond,
        "A23": check_questions,
        "A25": check_late,
        "A26": check_ladder,
        "A28": check_false_letters,
        "A29": check_letters_twice,
        "A36": check_completeness,
        "A37": check_old_terms,
        "A38": check_stale,
        "A52": check_durable,
        "A53": check_rolled_back,
        "A54": check_undecided,
        "A55": check_committed_missing,
        "A56": check_early,
        "A57": check_missing_letters,
        "A58": check_storm,
        "A60": check_recovery,
        "A61": check_availability,
        "A62": check_process_logs,
        "A63": check_masters,
    }
    return {name: partial(check, context) for name, check in checks.items()}


def _plan_of_messages(
    context: Context, outcomes: MessageOutcomes, entries: LogEntries | None, *, gaps: bool
) -> dict[str, Callable[[], CheckResult]]:
    """Return the checks that ask what became of messages."""
    return {
        "A1": lambda: check_loss(context, outcomes, entries, gaps=gaps),
        "A2": lambda: check_passed(context, outcomes),
        "A3": lambda: check_unknown(outcomes),
        "A59": lambda: check_span(context, outcomes),
        "A5": lambda: check_phantom(context, outcomes, gaps=gaps),
        "A6": lambda: check_corrupt(context, outcomes),
        "A7": lambda: check_aborted(context, outcomes, entries),
        "A8": lambda: check_duplicates(context, outcomes, entries),
        "A9": lambda: check_redelivery(context, outcomes),
        "A35": lambda: check_committed(context, entries, outcomes),
    }


def _not_made(check: str, failures: list[str]) -> CheckResult:
    """Return the result of a check whose tables could not be laid out."""
    why = failures[-1] if failures else "what it rests on is missing"
    return CheckResult(check=check, verdict=UNKNOWN, summary=f"not made: {why}")


def _run_check(steps: _Steps, check: str, call: Callable[[], CheckResult]) -> CheckResult:
    known = len(steps.failures)
    result = steps.run(check, call)
    if result is None:
        result = CheckResult(check=check, verdict=UNKNOWN, summary=steps.failures[-1])
        del steps.failures[known:]
    elif result.verdict != UNKNOWN:
        result.validator()
    result.seconds = steps.seconds[check]
    steps.progress(
        f"{check:<4} {ENTRIES[check].title}: {result.verdict}, {result.count} "
        f"({result.seconds:.1f} s)"
    )
    return result


def _counts(
    results: list[CheckResult], outcomes: MessageOutcomes | None, entries: LogEntries | None
) -> dict[str, int | None]:
    found = {r.check: r.count for r in results}
    totals: Mapping[str, int] = outcomes.totals if outcomes else {}
    asked = bool(RESTS_ON_OUTCOMES & found.keys())
    names = ("sent", "acknowledged", "unknown", "failed", "delivered", "redelivered")
    return {
        **{name: totals.get(name, 0) if asked else None for name in names},
        "lost": found.get("A1"),
        "phantom": found.get("A5"),
        "corrupt": found.get("A6"),
        "aborted": found.get("A7"),
        "duplicates": found.get("A8"),
        "inconsistent_offsets": found.get("A15"),
        "divergent": entries.divergent if entries else 0,
        "log_entries": sum(n.rows for n in entries.nodes) if entries else 0,
    }


def write_report(report: Report, out: Path) -> None:
    """Write ``results.json`` and the table ``anomalies`` into ``out``. Errors: OSError."""
    out.mkdir(parents=True, exist_ok=True)
    target = out / "anomalies"
    if target.exists():
        shutil.rmtree(target)
    found = [r.anomalies for r in report.results if r.anomalies is not None]
    if found:
        union = found[0]
        for part in found[1:]:
            union = union.unionByName(part)
        number = sum(r.count for r in report.results if r.anomalies is not None)
        files = max(1, -(-number // ANOMALIES_PER_FILE))
        union.repartition(files).write.parquet(str(target))
    else:
        target.mkdir()
        empty = arrow_schema("anomalies").empty_table()
        pq.write_table(empty, target / "part-0.parquet")
    text = json.dumps(report.as_json(), indent=2, default=str)
    (out / "results.json").write_text(text + "\n")


def describe_error(error: BaseException) -> str:
    """Return one line for an error; from a worker's or a JVM's trace the line that matters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in reversed(lines):
        match = re.match(r"^(?:Caused by: |: )?(?:[\w.]*\.)?(\w*(?:Error|Exception)): (.*)$", line)
        if match and match.group(1) != "PythonException":
            return f"{match.group(1)}: {match.group(2)}"
    return f"{type(error).__name__}: {lines[0] if lines else ''}"

"""From a recorded run to a verdict: the in-process checker, the Spark job, and their agreement.

The Spark job runs as a process of its own (``python -m spark.check_history RUN``): the harness
imports nothing above itself. If the two do not agree, one of them is wrong and nothing is proven:
the verdict is at best unknown. Source: spec/proof.md 3.0, 4.2.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from chaos.backends.process import environment, python
from chaos.catalogue.checks import COMPARED
from chaos.checker import check_history, unreadable
from chaos.checker.compose import EXIT_CODES, EXIT_HARNESS
from chaos.checker.model import EVIDENCE_MAX, INVALID, NOT_CHECKED, UNKNOWN
from chaos.convert import recorded_rows
from chaos.load import load_history
from ledgermq.runtime.cancel import timeout

SPARK_START_S = 480.0
"""For the JVM, the plans and a small run: that took 237 s on two cores at a load of ten."""
SPARK_ROWS_PER_S = 1_000.0
"""A tenth of what one slow core checks."""
REPORT_TIMEOUT_S = 90.0
COMPLAINTS = ("A45", "A47", "A48")
"""Checks that count complaints in words of their own: only their verdicts are compared."""
COMPARED_COUNTS = ("sent", "acknowledged", "unknown", "failed", "delivered", "redelivered")
NOWHERE = "nowhere"
"""How many indexes are in no log (A35): these the two name apart, by index and by node."""
_RANK = {"valid": 0, UNKNOWN: 1, INVALID: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedVerdict:
    """What both checkers said, and what follows from it."""

    verdict: str
    exit_code: int
    reasons: tuple[str, ...]
    local: Mapping[str, Any]
    spark: Mapping[str, Any] | None
    disagreements: tuple[str, ...]


def check_in_process(run: Path) -> dict[str, Any]:
    """Check a run without Spark and write RUN/verdict/inprocess.json."""
    try:
        verdict = check_history(load_history(run))
    except Exception as error:  # noqa: BLE001 - whoever asks wants a verdict, not a traceback
        verdict = unreadable(error)
    found = verdict.as_json()
    path = run / "verdict" / "inprocess.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")
    return found


def spark_limit_s(run: Path) -> float:
    """Return how long the Spark job may take over a run, by what was recorded in it."""
    return SPARK_START_S + recorded_rows(run, ("sends", "deliveries")) / SPARK_ROWS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOutcome:
    """What the Spark job found; None and the reason if it found nothing."""

    found: dict[str, Any] | None
    why: str = ""


async def check_with_spark(run: Path, limit_s: float | None = None) -> SparkOutcome:
    """Run the Spark job and return its results, or why there are none.

    It is ended after ``limit_s``, by default what `spark_limit_s` says.
    """
    limit = spark_limit_s(run) if limit_s is None else limit_s
    log = run / "logs" / "spark.log"
    path = run / "verdict" / "results.json"
    path.unlink(missing_ok=True)  # of an earlier job
    code = await run_module(["spark.check_history", str(run)], log, limit)
    if code is None:
        rows = recorded_rows(run, ("sends", "deliveries"))
        why = f"it was ended after {limit:.0f} s, its limit for {rows:,} sends and deliveries"
        return SparkOutcome(found=None, why=f"{why} (--spark-limit sets another)")
    if code == EXIT_HARNESS or not path.exists():
        return SparkOutcome(found=None, why=f"it failed with exit code {code}; its log: {log}")
    return SparkOutcome(found=json.loads(path.read_text()))


async def run_module(arguments: Sequence[str], log: Path, timeout_s: float) -> int | None:
    """Run ``python -m`` with these arguments; return its exit code, None if it took too long."""
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *python("-m", *arguments), stdout=out, stderr=out, env=environment()
        )
    try:
        async with timeout(timeout_s):
            return await process.wait()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:  # out of time, or whoever waits was interrupted
            process.kill()
            await process.wait()


def combine(
    local: Mapping[str, Any],
    spark: Mapping[str, Any] | None,
    *,
    spark_wanted: bool,
    why: str = "",
) -> CombinedVerdict:
    """Compose the final verdict: the worst of both; disagreement makes it at best unknown.

    ``why`` says why the Spark job gave no result.
    """
    verdict, reasons = local["verdict"], list(local["reasons"])
    disagreements: tuple[str, ...] = ()
    exit_code = int(local.get("exit_code", 0))
    if spark is not None:
        disagreements = tuple(compare(local, spark))
        if _RANK[spark["verdict"]] > _RANK[verdict]:
            verdict = spark["verdict"]
            reasons += [f"Spark: {reason}" for reason in spark["reasons"]]
        if verdict == "valid" and not exit_code:
            exit_code = spark.get("exit_code") or 0
            reasons += [f"Spark: {reason}" for reason in spark["reasons"]]
    elif spark_wanted:
        verdict = max(verdict, UNKNOWN, key=_RANK.__getitem__)
        reasons.append("the Spark job gave no result" + (f": {why}" if why else ""))
    if disagreements:
        verdict = max(verdict, UNKNOWN, key=_RANK.__getitem__)
        reasons += [f"the checkers disagree: {line}" for line in disagreements]
    code = EXIT_CODES[verdict]
    if code == 0 and exit_code:
        code = int(exit_code)
    return CombinedVerdict(
        verdict=verdict,
        exit_code=code,
        reasons=tuple(reasons),
        local=local,
        spark=spark,
        disagreements=disagreements,
    )


def with_watch(combined: CombinedVerdict, lines: Sequence[str]) -> CombinedVerdict:
    """Return a verdict with what alarms of the run say otherwise: it is at best unknown (A48)."""
    if not lines:
        return combined
    verdict = max(combined.verdict, UNKNOWN, key=_RANK.__getitem__)
    return replace(
        combined,
        verdict=verdict,
        exit_code=EXIT_CODES[verdict],
        reasons=(*combined.reasons, *(f"A48: watch and verdict differ: {line}" for line in lines)),
    )


def compare(local: Mapping[str, Any], spark: Mapping[str, Any]) -> list[str]:
    """Return a line for each question on which the two checkers differ."""
    lines = []
    for check in COMPARED:
        ours = local["checks"].get(check, {}).get("verdict", NOT_CHECKED)
        theirs = spark["checks"].get(check, {}).get("verdict", NOT_CHECKED)
        if NOT_CHECKED in {ours, theirs}:
            continue
        if ours != theirs:
            lines.append(f"{check} is {ours} in process and {theirs} on Spark")
        elif check not in COMPLAINTS:
            lines += _other_numbers(check, local["checks"][check], spark["checks"][check])
    for name in COMPARED_COUNTS:
        ours, theirs = local["counts"].get(name), spark["counts"].get(name)
        if ours is not None and theirs is not None and ours != theirs:
            lines.append(f"{name}: {ours} in process, {theirs} on Spark")
    return lines


MEASURES: Final[Mapping[str, tuple[str, ...]]] = {
    "A3": ("recovered", "vanished"),
    "A4": ("lag_max",),
    "A36": ("leaders",),
    "A37": ("leaders",),
    "A38": ("acknowledged",),
    "A41": ("worst_ms",),
    "A58": ("elections", "terms", "failed", "longest"),
    "A59": ("messages", "bytes", "span_ms"),
    "A60": ("heals", "worst_ms"),
    "A61": ("quiet", "acknowledged"),
}
"""The numbers of what is only told: the two checkers have to agree on them too."""


def _other_numbers(check: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Return how the numbers differ of a check on whose verdict the two agree."""
    names = ("count", *MEASURES.get(check, ()))
    told = [({**one.get("details", {}), **one}) for one in (ours, theirs)]
    return _other_keys(check, ours, theirs) + [
        f"{check} has {name} {told[0][name]} in process and {told[1][name]} on Spark"
        for name in names
        if name in told[0] and name in told[1] and told[0][name] != told[1][name]
    ]


def _other_keys(check: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Return which anomalies only one of the two names, where both show all of them."""
    number = ours.get("count", 0)
    is_whole = number == theirs.get("count", 0) and 0 < number <= EVIDENCE_MAX
    if not is_whole or ours.get("details", {}).get(NOWHERE):
        return []
    mine, other = (
        {str(row.get("key")) for row in one.get("evidence") or ()} for one in (ours, theirs)
    )
    return [
        f"{check} names {', '.join(sorted(names))} only {where}"
        for names, where in ((mine - other, "in process"), (other - mine, "on Spark"))
        if names
    ]


def write_verdict(run: Path, combined: CombinedVerdict) -> None:
    """Write RUN/verdict/judgement.json: the verdict that a person is told, here and in a report."""
    told = {
        "verdict": combined.verdict,
        "exit_code": combined.exit_code,
        "reasons": list(combined.reasons),
        "disagreements": list(combined.disagreements),
    }
    (run / "verdict" / "judgement.json").write_text(json.dumps(told, indent=2) + "\n")


async def make_report(run: Path) -> Path | None:
    """Write the HTML report; None if there is none."""
    await run_module(["chaos.report", str(run)], run / "logs" / "report.log", REPORT_TIMEOUT_S)
    path = run / "report" / "index.html"
    return path if path.exists() else None

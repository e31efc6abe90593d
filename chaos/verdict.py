"""From a recorded run to a verdict: the in-process checker, the Spark job, and their agreement.

The Spark job runs as a process of its own (``python -m spark.check_history RUN``): the harness
imports nothing above itself. If the two do not agree, one of them is wrong and nothing is proven:
the verdict is at best unknown. Source: spec/proof.md 3.0, 4.2.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.backends.process import ROOT
from chaos.checker import check_history, unreadable
from chaos.checker.compose import EXIT_CODES, EXIT_HARNESS
from chaos.checker.model import INVALID, NOT_CHECKED, UNKNOWN
from chaos.load import load_history
from ledgermq.runtime.cancel import timeout

SPARK_TIMEOUT_S = 240.0
REPORT_TIMEOUT_S = 90.0
COMPARED_CHECKS = (
    "A1", "A5", "A6", "A7", "A8", "A9", "A11", "A15", "A27", "A30", "A31", "A32", "A33", "A34",
    "A35", "A45", "A46", "A47", "A49", "A50", "A51",
)  # fmt: skip
"""All that both have; A41 and A48 only the one in process has."""
COMPARED_COUNTS = ("sent", "acknowledged", "unknown", "failed", "delivered", "redelivered")
_RANK = {"valid": 0, UNKNOWN: 1, INVALID: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What both checkers said, and what follows from it."""

    verdict: str
    exit_code: int
    reasons: tuple[str, ...]
    local: Mapping[str, Any]
    spark: Mapping[str, Any] | None
    disagreements: tuple[str, ...]


def judge_in_process(run: Path) -> dict[str, Any]:
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


async def judge_with_spark(run: Path) -> dict[str, Any] | None:
    """Run the Spark job and return its results; None if it gave none (its log says why)."""
    code = await run_module(["spark.check_history", str(run)], run / "logs" / "spark.log")
    path = run / "verdict" / "results.json"
    if code in {EXIT_HARNESS, None} or not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


async def run_module(
    arguments: Sequence[str], log: Path, timeout_s: float = SPARK_TIMEOUT_S
) -> int | None:
    """Run ``python -m`` with these arguments; return its exit code, None if it took too long."""
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *arguments, stdout=out, stderr=out, env=environment
        )
    try:
        async with timeout(timeout_s):
            return await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        return None


def combine(
    local: Mapping[str, Any], spark: Mapping[str, Any] | None, *, spark_wanted: bool
) -> Judgement:
    """Compose the final verdict: the worst of both; disagreement makes it at best unknown."""
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
        reasons.append("the Spark job gave no result")
    if disagreements:
        verdict = max(verdict, UNKNOWN, key=_RANK.__getitem__)
        reasons += [f"the checkers disagree: {line}" for line in disagreements]
    code = EXIT_CODES[verdict]
    if code == 0 and exit_code:
        code = int(exit_code)
    return Judgement(
        verdict=verdict,
        exit_code=code,
        reasons=tuple(reasons),
        local=local,
        spark=spark,
        disagreements=disagreements,
    )


def compare(local: Mapping[str, Any], spark: Mapping[str, Any]) -> list[str]:
    """Return a line for each question on which the two checkers differ."""
    lines = []
    for check in COMPARED_CHECKS:
        ours = local["checks"].get(check, {}).get("verdict", NOT_CHECKED)
        theirs = spark["checks"].get(check, {}).get("verdict", NOT_CHECKED)
        if NOT_CHECKED not in {ours, theirs} and ours != theirs:
            lines.append(f"{check} is {ours} in process and {theirs} on Spark")
    for name in COMPARED_COUNTS:
        ours, theirs = local["counts"].get(name), spark["counts"].get(name)
        if ours is not None and theirs is not None and ours != theirs:
            lines.append(f"{name}: {ours} in process, {theirs} on Spark")
    return lines


async def make_report(run: Path) -> Path | None:
    """Write the HTML report; None if there is none."""
    await run_module(["chaos.report", str(run)], run / "logs" / "report.log", REPORT_TIMEOUT_S)
    path = run / "report" / "index.html"
    return path if path.exists() else None

"""What the Spark tests share: their marks, and a run's report in few words."""

import re
from collections import Counter
from pathlib import Path

import pytest

from spark.history import open_history
from spark.job import CHECKS, LaidOut, Report, lay_out, run_checks
from tests.spark.generate import HistoryBuilder

# pyspark 3.5 compares versions with distutils, and leaves the sockets it fetches results through
# to the garbage collector.
SPARK_MARKS = [
    pytest.mark.spark,
    # A report is some hundred small jobs: minutes where ten other processes want the same cores.
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:distutils Version classes:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def report_of(session, run: HistoryBuilder | Path, path: Path, only=CHECKS) -> Report:
    directory = run.write(path / "run") if isinstance(run, HistoryBuilder) else run
    return run_checks(session, open_history(directory), only=only, progress=lambda line: None)


def laid_out(session, run: HistoryBuilder, path: Path, only=CHECKS) -> LaidOut:
    """Lay a run out once, for checks that are asked of it under several contracts."""
    return lay_out(session, open_history(run.write(path / "run")), tuple(only), lambda line: None)


def found(report: Report, check: str) -> tuple[str, int]:
    result = next(r for r in report.results if r.check == check)
    return result.verdict, result.count


def alarms(report: Report) -> dict[str, int]:
    assert not report.problems, report.problems
    quiet = {"valid", "not checked"}
    return {r.check: r.count for r in report.results if r.count or r.verdict not in quiet}


def explain(report: Report, check: str) -> str:
    result = next(r for r in report.results if r.check == check)
    return "\n".join(str(item["explain"]) for item in result.evidence)


def alarms_by_chapter(report: Report) -> dict[int, Counter[str]]:
    """Return how many anomalies of each check lie in each chapter of a history; 0 is in none.

    A chapter is known by its topic, or else by its producer. No anomaly is left out.
    """
    by_chapter: dict[int, Counter[str]] = {}
    for result in report.results:
        rows = result.anomalies.collect() if result.anomalies is not None else []
        assert len(rows) == result.count or result.verdict == "unknown", result
        for row in rows:
            text = f"{row.key}: {row.explain}"
            named = re.search(r"-(\d+)/\d+@", text) or re.search(r"\(producer (\d+),", text)
            number = int(named[1]) if named else 0
            by_chapter.setdefault(number, Counter())[result.check] += 1
    return by_chapter


def explain_chapter(report: Report, check: str, number: int) -> str:
    """Return what the anomalies of a check in a chapter say."""
    result = next(r for r in report.results if r.check == check)
    rows = result.anomalies.collect() if result.anomalies is not None else []
    mine = (f"orders-{number}/", f"(producer {number},")
    return "\n".join(row.explain for row in rows if any(word in row.explain for word in mine))

"""What the Spark tests share: their marks, and a run's report in few words."""

from pathlib import Path

import pytest

from spark.history import open_history
from spark.job import CHECKS, Report, run_checks
from tests.spark.generate import HistoryBuilder

# pyspark 3.5 compares versions with distutils, and leaves the sockets it fetches results through
# to the garbage collector.
SPARK_MARKS = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:distutils Version classes:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def report_of(session, run: HistoryBuilder | Path, path: Path, only=CHECKS) -> Report:
    directory = run.write(path / "run") if isinstance(run, HistoryBuilder) else run
    return run_checks(session, open_history(directory), only=only, progress=lambda line: None)


def found(report: Report, check: str) -> tuple[str, int]:
    result = next(r for r in report.results if r.check == check)
    return result.verdict, result.count


def alarms(report: Report) -> dict[str, int]:
    assert not report.problems, report.problems
    return {r.check: r.count for r in report.results if r.count or r.verdict != "valid"}


def explain(report: Report, check: str) -> str:
    result = next(r for r in report.results if r.check == check)
    return "\n".join(str(item["explain"]) for item in result.evidence)

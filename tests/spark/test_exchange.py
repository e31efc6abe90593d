"""Spark judges what was imported as the in-process checker does: verdict and counts."""

from pathlib import Path

import pytest

from chaos.checker import check_history
from chaos.exchange.importer import import_history
from chaos.exchange.jepsen_import import import_jepsen
from chaos.exchange.mapping import HistoryMapping, parse_mapping
from chaos.load import load_history
from chaos.verdict import COMPLAINTS
from tests.spark.reports import SPARK_MARKS, report_of

pytestmark = SPARK_MARKS
ASKED = ("A1", "A5", "A7", "A9", "A11", "A15", "A26", "A27", "A45", "A48")
EXAMPLES = Path(__file__).parents[2] / "examples" / "histories"
QUEUE = """
{:process 0, :type :invoke, :f :enqueue, :value 1, :time 1000}
{:process 0, :type :ok, :f :enqueue, :value 1, :time 2000}
{:process 0, :type :invoke, :f :enqueue, :value 2, :time 3000}
{:process 0, :type :ok, :f :enqueue, :value 2, :time 4000}
{:process 1, :type :invoke, :f :drain, :value nil, :time 5000}
{:process 1, :type :ok, :f :drain, :value [2 2], :time 6000}
"""


def brought(name, path):
    def silent(_line):
        pass

    if name == "queue":
        (path / "history.edn").write_text(QUEUE)
        import_jepsen(path, HistoryMapping(tables=()), path / "run", skip_bad=False,
                      progress=silent)  # fmt: skip
    else:
        mapping = parse_mapping((EXAMPLES / name / "mapping.toml").read_text(), name)
        kind = {"kafka": "csv", "rocketmq": "jsonl"}[name]
        import_history(EXAMPLES / name, kind, mapping, path / "run", skip_bad=False,
                       progress=silent)  # fmt: skip
    return path / "run"


@pytest.mark.parametrize(
    ("name", "code", "bad"),
    [("kafka", 1, {"A1", "A15"}), ("rocketmq", 0, set()), ("queue", 1, {"A1"})],
)
def test_imported_history_gets_one_verdict_from_both(name, code, bad, session, tmp_path):
    run = brought(name, tmp_path)
    report = report_of(session, run, tmp_path, only=ASKED)
    other = check_history(load_history(run))
    assert report.verdict.exit_code == other.exit_code == code, report.verdict.reasons
    assert {r.check for r in report.results if r.verdict == "invalid"} == bad
    for result in report.results:
        if result.check not in COMPLAINTS:
            theirs = other.results[result.check]
            assert (result.verdict, result.count) == (theirs.verdict, theirs.count), result.check

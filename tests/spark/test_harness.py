"""A41 on Spark: the gap around each kill is the one that the terminal and the report tell."""

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from chaos.verdict import compare
from tests.spark.generate import MS, HistoryBuilder
from tests.spark.reports import SPARK_MARKS, report_of

pytestmark = SPARK_MARKS


def with_kills() -> HistoryBuilder:
    run = HistoryBuilder()
    messages = run.traffic(30)
    begin, end = messages[10], messages[20]
    died = begin.send["t_cmp"]
    run.fault("cut", ["n0", "n1"], begin.t - 5 * MS, died + 500)
    run.fault("kill", ["n0"], died, end.t)  # served again after the heal
    run.fault("kill", ["n1"], messages[4].t, messages[5].t)  # while others went on
    run.fault("kill", ["n2"], run.clock + MS, run.clock + 2 * MS)  # the end of all service
    for number, fault in enumerate(run.tables["faults"]):
        fault.update(fault_id=f"f{number}", t_on1=fault["t_on0"] + number * 100)
    run.tables["faults"][2]["t_on0"] = None
    return run


def test_both_checkers_measure_one_gap(session, tmp_path):
    report = report_of(session, with_kills(), tmp_path, only=["A41"]).as_json()["checks"]["A41"]
    ours = check_history(load_history(tmp_path / "run")).as_json()["checks"]["A41"]
    shown = ("fault_id", "ms", "since_heal_ms")
    theirs = [tuple(item[name] for name in shown) for item in report["evidence"]]
    assert theirs == [tuple(item[name] for name in shown) for item in ours["evidence"]]
    assert (report["summary"], report["count"]) == (ours["summary"], ours["count"])
    assert report["details"] == ours["details"]
    assert (len(theirs), report["count"]) == (3, 1)
    assert theirs[0][2] is not None, "the cut was lifted before service came back"


@pytest.mark.parametrize(
    ("check", "change", "said"),
    [
        ("A8", {"count": 2}, "A8 has count 1 in process and 2 on Spark"),
        ("A41", {"details": {"worst_ms": 5}}, "A41 has worst_ms 4 in process and 5 on Spark"),
        ("A1", {"verdict": "invalid"}, "A1 is valid in process and invalid on Spark"),
        ("A45", {"count": 2}, ""),
        ("A30", {"verdict": "not checked"}, ""),
    ],
)
def test_checkers_that_differ_in_a_verdict_or_a_number_disagree(check, change, said):
    one = {"verdict": "valid", "count": 1, "details": {"worst_ms": 4}}
    local = {"checks": {check: one}, "counts": {}}
    theirs = {"checks": {check: one | change}, "counts": {}}
    assert compare(local, local) == []
    assert compare(local, theirs) == [said] * bool(said)

"""A62: which lines of logs are anomalies, and which a fault on their node explains."""

import pytest

from chaos.catalogue.faults import FAULTS
from chaos.checker import check_history
from chaos.checker.process_logs import check_process_logs
from chaos.history.domains import LOG_KINDS
from chaos.load import load_history
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.spark.foreign import column
from tests.spark.generate import write_table
from tests.spark.kinds import every_kind
from tests.spark.logged import COUNTS, LOG_VIOLATIONS, client_raised, nothing_odd, traced
from tests.spark.minimal import write_minimal
from tests.unit.chaos.histories import clean, fault


def found_in(spoil, tmp_path):
    return check_history(load_history(write_minimal(spoil, tmp_path))).results["A62"]


def test_without_logs_it_is_not_asked(tmp_path):
    assert found_in(None, tmp_path).verdict == "not checked"
    assert check_process_logs(clean()).verdict == "not checked"


def test_logs_without_anything_odd_are_valid():
    found = check_process_logs(clean(node_log=[]))
    assert (found.verdict, found.count) == ("valid", 0)


def test_what_faults_bring_about_is_no_anomaly(tmp_path):
    found = found_in(nothing_odd, tmp_path)
    assert (found.verdict, found.count) == ("valid", 0)
    assert found.details == {"explained": 4, "slow": 1}


@pytest.mark.parametrize("name", LOG_VIOLATIONS)
def test_each_kind_of_line_counts(name, tmp_path):
    found = found_in(LOG_VIOLATIONS[name][2], tmp_path)
    assert (found.verdict, found.count) == ("invalid", COUNTS[name])


def test_evidence_names_the_process_and_what_it_says(tmp_path):
    (row,) = found_in(client_raised, tmp_path).evidence
    assert row["key"] == "producer-1 builtins.KeyError"
    assert row["explain"] == "producer-1 logged (traceback, 1 times): traceback of producer-1"


def test_a_fault_without_targets_may_be_on_any_node():
    line = {"node": "n2", "kind": "corrupt", "t": 30, "count": 1, "line": "x"}
    for targets, count in ((["n0"], 1), ([], 0), (["n2"], 0)):
        history = clean(node_log=[line], faults=[fault("f", "flip", targets=targets)])
        assert check_process_logs(history).count == count


def test_two_faults_may_explain_a_row_together():
    second = 1_000_000_000
    line = {"node": "n0", "kind": "resource", "t": 9 * second, "t_last": 23 * second, "count": 3}
    spans = ((5, 10), (12, 20))
    faults = [
        fault(
            f"f{at}", "full", t_on0=on * second, t_on1=on * second, t_off0=off * second,
            t_off1=off * second,
        )
        for at, (on, off) in enumerate(spans)
    ]  # fmt: skip
    for known, count in ((faults, 0), (faults[:1], 1), (faults[1:], 1), ([], 1)):
        history = clean(node_log=[line | {"line": "x"}], faults=known)
        assert check_process_logs(history).count == count


def test_no_fault_explains_a_bug(tmp_path):
    explained = {kind for one in FAULTS for kind in one.logs}
    assert explained == {"corrupt", "removed", "resource"} < set(LOG_KINDS)
    with planted(HARNESS_BUGS["any-fault-explains-any-line"]):
        assert found_in(traced, tmp_path).count == 0  # a fault is on


@pytest.mark.parametrize(
    ("name", "value"), [("kind", "strange"), ("role", "printer"), ("count", 0), ("node", None)]
)
def test_rows_that_say_nothing_known_leave_it_unknown(name, value, tmp_path):
    run = write_minimal(every_kind, tmp_path)
    column("node_log", name, lambda _: value)(run)
    found = check_history(load_history(run))
    assert found.results["A62"].verdict == "unknown"
    assert name in found.results["A48"].summary


def test_an_end_before_its_begin_is_refused(tmp_path):
    run = write_minimal(None, tmp_path)
    line = {"run_id": "r", "node": "n0", "kind": "error", "count": 1, "line": "x"}
    line |= {"t": 1_009_000_000, "t_last": 1_008_000_000}
    write_table(run, "node_log", [line])
    assert check_history(load_history(run)).results["A62"].verdict == "unknown"

"""What is told and not judged: unknown sends, elections, the span of a loss."""

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from chaos.verdict import MEASURES, compare
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.spark.measures import measured
from tests.spark.minimal import write_minimal


def test_numbers_are_told_and_nothing_is_judged_by_them(tmp_path):
    run, numbers = measured()
    found = check_history(load_history(run.write(tmp_path)))
    for check, wanted in numbers.items():
        told = found.results[check]
        assert (told.verdict, told.count, told.details) == ("valid", 0, wanted), check
    assert found.results["A1"].count == 2
    assert "5 unknown: 3 took effect, 2 did not" in found.results["A3"].summary
    assert "3 of them in a row" in found.results["A58"].summary


def test_sound_run_has_nothing_to_tell(tmp_path):
    found = check_history(load_history(write_minimal(None, tmp_path))).results
    assert found["A3"].details == {"recovered": 0, "vanished": 0}
    assert found["A58"].details == {"elections": 1, "terms": 1, "failed": 0, "longest": 0}
    assert found["A59"].summary == "nothing is known to be lost"


def test_history_without_events_says_nothing_of_elections(tmp_path):
    run, _ = measured()
    run.tables["raft_event"] = []
    found = check_history(load_history(run.write(tmp_path)))
    assert found.results["A58"].verdict == "not checked"


def test_other_number_is_a_disagreement(tmp_path):
    run, numbers = measured()
    ours = check_history(load_history(run.write(tmp_path))).as_json()
    assert compare(ours, ours) == []
    for check in numbers:
        for name in MEASURES[check]:
            told = ours["checks"][check]
            other = told | {"details": told["details"] | {name: -1}}
            theirs = ours | {"checks": ours["checks"] | {check: other}}
            assert compare(ours, theirs) == [
                f"{check} has {name} {told['details'][name]} in process and -1 on Spark"
            ]


@pytest.mark.parametrize(
    ("check", "count", "nowhere", "said"),
    [
        ("A5", 1, 0, ["A5 names 7 only in process", "A5 names 8 only on Spark"]),
        ("A5", 21, 0, []),  # neither shows all
        ("A35", 1, 0, ["A35 names 7 only in process", "A35 names 8 only on Spark"]),
        ("A35", 1, 1, []),  # what is in no log they name by index, and by node
    ],
)
def test_anomaly_that_only_one_names_is_a_disagreement(check, count, nowhere, said):
    told = {"verdict": "invalid", "count": count, "details": {"nowhere": nowhere}}
    one, other = (
        {"checks": {check: told | {"evidence": [{"key": key}]}}, "counts": {}} for key in ("7", "8")
    )
    assert compare(one, one) == []
    assert compare(one, other) == said
    with planted(HARNESS_BUGS["anomalies-counted-only"]):
        assert compare(one, other) == []

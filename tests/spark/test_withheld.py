"""Spark: what is refused, or not there, proves nothing; nor is it passed over.

The opening of a history (no JVM) goes through all ways, a few jobs show that the checks follow it.
"""

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from chaos.verdict import compare
from spark.commit_log import find_replicas
from spark.history import BrokenHistoryError, open_history
from tests.spark.minimal import write_minimal
from tests.spark.reports import SPARK_MARKS, report_of
from tests.spark.withheld import DUMPS, FOUND, LACKING, LEFT_OUT, REFUSED, STAY, log_of

pytestmark = SPARK_MARKS


def asked(session, run, path, only):
    """Return what both said of some checks, and on what they differ."""
    report = report_of(session, run, path, only=only)
    ours, theirs = check_history(load_history(run)), report.as_json()
    return {r.check: r for r in report.results}, ours.results, compare_of(ours.as_json(), theirs)


def compare_of(ours, theirs):
    """Return on which of the checks that Spark was asked the two differ."""
    checks = {name: ours["checks"][name] for name in theirs["checks"]}
    return compare({"checks": checks, "counts": {}}, theirs | {"counts": {}})


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_run_can_have_said_is_named(name, tmp_path):
    after, named = REFUSED[name]
    run = write_minimal(None, tmp_path)
    after(run)
    problems = "; ".join(open_history(run).problems)
    assert any(word in problems for word in named.split("|")), problems


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_was_left_out_is_known_by_the_checks_that_rest_on_it(name, tmp_path):
    after, wanted = LEFT_OUT[name]
    run = write_minimal(None, tmp_path)
    after(run)
    history = open_history(run)
    assert all(words in history.lacks(check) for check, words in wanted.items())


@pytest.mark.parametrize("name", DUMPS)
def test_dump_that_nobody_can_use_is_named(name, tmp_path):
    run = write_minimal(None, tmp_path)
    DUMPS[name](run)
    with pytest.raises(BrokenHistoryError, match=r"replicas/n1/(meta\.json|data/9+)"):
        find_replicas(run)


@pytest.mark.parametrize("name", ["deliveries", "run.json"])
def test_checks_without_what_they_rest_on_are_unknown(session, name, tmp_path):
    after, wanted = LEFT_OUT[name]
    run = write_minimal(None, tmp_path)
    after(run)
    found, other, differences = asked(session, run, tmp_path, (*wanted, "A45", "A48"))
    assert differences == []
    for check, words in wanted.items():
        assert found[check].verdict == "unknown"
        assert words in found[check].summary
        assert found[check].summary == other[check].summary


def test_dump_and_logs_of_no_use_leave_their_checks_unknown(session, tmp_path):
    run = write_minimal(None, tmp_path / "dump")
    DUMPS["a commit index without end"](run)
    found, other, differences = asked(session, run, tmp_path, ("A34", "A48"))
    assert differences == []
    assert found["A34"].summary == other["A34"].summary == "needs replicas, which was refused"
    run = write_minimal(log_of, tmp_path / "log")
    found, other, differences = asked(session, run, tmp_path, ("A34",))
    assert found["A34"].summary == other["A34"].summary
    assert "replica_log.committed" in found["A34"].summary


def test_columns_that_are_empty_are_named_by_each_check(session, tmp_path):
    def spoil(run, messages):
        for _, _, one in LACKING.values():
            one(run, messages)

    run = write_minimal(spoil, tmp_path)
    wanted = {check for checks, _, _ in LACKING.values() for check in checks}
    found, other, differences = asked(session, run, tmp_path, tuple(wanted))
    assert differences == []
    assert {check for check, one in found.items() if one.verdict == "unknown"} == wanted
    assert {c: found[c].summary for c in wanted} == {c: other[c].summary for c in wanted}


def test_what_did_not_happen_excuses_nothing(session, tmp_path):
    def spoil(run, messages):
        for _, one in FOUND.values():
            one(run, messages)

    run = write_minimal(spoil, tmp_path)
    wanted = tuple(check for check, _ in FOUND.values())
    found, _, differences = asked(session, run, tmp_path, wanted)
    assert differences == []
    assert {one.verdict for one in found.values()} == {"invalid"}


def test_fault_of_which_no_end_is_known_is_told(session, tmp_path):
    for name, (after, named) in STAY.items():
        run = write_minimal(None, tmp_path / name)
        after(run)
        found, _, differences = asked(session, run, tmp_path, ("A48",))
        assert differences == []
        assert named in found["A48"].summary

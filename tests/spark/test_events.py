"""A30 to A33 and A35 (iii): what replicas noted, against the rules of Raft; both checkers."""

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from spark.job import CHECKS as ALL
from tests.spark.generate import MS, HistoryBuilder
from tests.spark.reports import SPARK_MARKS, alarms, explain, found, report_of

pytestmark = SPARK_MARKS
CHECKS = ("A30", "A31", "A32", "A33", "A35")


def both(session, run, tmp_path, only=CHECKS):
    """Return what both checkers found, which must be the same."""
    report = report_of(session, run, tmp_path, only=only)
    spark = {check: found(report, check) for check in CHECKS}
    other = check_history(load_history(tmp_path / "run")).results
    assert spark == {check: (other[check].verdict, other[check].count) for check in CHECKS}
    assert not report.problems
    return report, {check: count for check, (_, count) in spark.items() if count}


@pytest.fixture
def run():
    history = HistoryBuilder()
    history.traffic(4)
    history.election("n0", 1)
    return history


def test_election_by_the_rules_is_sound(session, tmp_path, run):
    run.event("n1", "boot", 1, index=2, prev_index=1, boot_id="n1-2")
    run.event("n1", "become_pre_candidate", 1)
    run.event("n1", "append", 1, index=3, prev_index=2)
    run.event("n1", "commit", 1, index=1, prev_index=0, boot_id="n1-2")
    run.event("n1", "vote_granted", 2, peer="n2", index=2, prev_index=1)
    run.event("n2", "truncate", 2, index=3, prev_index=4)
    report, anomalies = both(session, run, tmp_path, only=ALL)
    assert anomalies == {}
    assert alarms(report) == {}


def test_two_leaders_of_a_term(session, tmp_path, run):
    run.event("n2", "become_leader", 1)
    report, anomalies = both(session, run, tmp_path)
    assert anomalies == {"A30": 1}
    assert explain(report, "A30") == "term 1 has 2 leaders: n0, n2"


def test_leader_that_only_a_status_tells_of(session, tmp_path, run):
    run.probe("n1", "LEADER", 1, 50 * MS)
    _, anomalies = both(session, run, tmp_path)
    assert anomalies == {"A30": 1}


@pytest.mark.parametrize("kind", ["vote_granted", "become_candidate"])
def test_second_vote_in_a_term_by_another_life_of_the_node(session, tmp_path, run, kind):
    run.event("n1", "boot", 1, index=2, prev_index=0, boot_id="n1-2")
    run.event("n1", kind, 1, peer="n2", boot_id="n1-2")
    report, anomalies = both(session, run, tmp_path)
    assert anomalies == {"A31": 1}
    assert "n1 voted in term 1 for n0, n" in explain(report, "A31")


def test_term_that_falls_over_a_restart(session, tmp_path, run):
    run.event("n2", "boot", 0, index=2, prev_index=1, boot_id="n2-2")
    report, anomalies = both(session, run, tmp_path)
    assert anomalies == {"A32": 1}
    assert "n2: term fell from 1 to 0 (event 9)" in explain(report, "A32")


def test_terms_and_votes_of_a_wiped_node_are_excused(session, tmp_path, run):
    run.fault("node.wipe", ["n2"], run.clock, run.clock + 1)
    run.event("n2", "boot", 0, index=-1, prev_index=-1, boot_id="n2-2")
    run.event("n2", "vote_granted", 1, peer="n1", boot_id="n2-2")
    _, anomalies = both(session, run, tmp_path)
    assert anomalies == {}


def test_statuses_are_compared_only_where_one_ended_before_the_next_began(session, tmp_path, run):
    for t0, t1, term in ((10, 20, 5), (15, 30, 4), (40, 50, 5)):
        run.probe("n1", "FOLLOWER", term, t0 * MS)
        run.tables["raft_probe"][-1]["t1"] = t1 * MS
    _, anomalies = both(session, run, tmp_path)
    assert anomalies == {}
    run.probe("n1", "FOLLOWER", 3, 60 * MS)
    _, anomalies = both(session, run, tmp_path)
    assert anomalies == {"A32": 1}


def test_commit_index_that_falls_within_one_life(session, tmp_path, run):
    run.event("n1", "commit", 1, index=1, prev_index=2)
    report, anomalies = both(session, run, tmp_path)
    assert anomalies == {"A33": 1}
    assert "n1: commit index fell from 2 to 1 (event 9)" in explain(report, "A33")


def test_applied_index_that_falls_between_two_statuses(session, tmp_path, run):
    for number, applied in enumerate((5, 7, 6)):
        run.probe("n1", "FOLLOWER", 1, (50 + number) * MS)
        run.tables["raft_probe"][-1] |= {"applied": applied, "boot_id": "n1-1"}
    _, anomalies = both(session, run, tmp_path)
    assert anomalies == {"A33": 1}


def test_truncation_of_what_an_earlier_life_had_called_committed(session, tmp_path, run):
    run.event("n1", "boot", 1, index=2, prev_index=0, boot_id="n1-2")
    run.event("n1", "truncate", 1, index=2, prev_index=2, boot_id="n1-2")
    report, anomalies = both(session, run, tmp_path)
    assert anomalies == {"A35": 1}
    assert "n1 cut its log at 2 (event 10) and had called everything up to 2 committed" in explain(
        report, "A35"
    )


def test_run_without_events_and_statuses_is_not_checked(session, tmp_path, run):
    run.tables["raft_event"] = []
    report, anomalies = both(session, run, tmp_path)
    assert anomalies == {}
    assert [found(report, check)[0] for check in CHECKS[:4]] == ["not checked"] * 4

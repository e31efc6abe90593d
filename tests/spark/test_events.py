"""A30 to A33 and A35 (iii): what replicas noted, against the rules of Raft; both checkers.

Each story is of a Raft group and nodes of its own. The in-process checker is told each by itself,
Spark all of them at once: what they are alone they are together.
"""

from collections import Counter

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from spark.job import CHECKS as ALL
from tests.spark.generate import MS, HistoryBuilder
from tests.spark.reports import SPARK_MARKS, alarms, explain, found, report_of

pytestmark = SPARK_MARKS
CHECKS = ("A30", "A31", "A32", "A33", "A35")


class Members:
    """Three members of one group, who elected the first of them in term 1."""

    def __init__(self, run: HistoryBuilder, number: int) -> None:
        self.run = run
        self.number = number
        self.a, self.b, self.c = (f"{letter}{number}" for letter in "abc")
        nodes, run.nodes = run.nodes, (self.a, self.b, self.c)
        begin = len(run.tables.get("raft_event", []))
        run.election(self.a, 1)
        run.nodes = nodes
        for row in run.tables["raft_event"][begin:]:
            row["group"] = number

    def event(self, node: str, kind: str, term: int, **row: object) -> None:
        self.run.event(node, kind, term, **({"group": self.number} | row))

    def probe(self, node: str, role: str, term: int, t: int, **row: object) -> None:
        self.run.probe(node, role, term, t)
        self.run.tables["raft_probe"][-1] |= {"group": self.number} | row


def by_the_rules(m: Members) -> None:
    m.event(m.b, "boot", 1, index=2, prev_index=1, boot_id="b-2")
    m.event(m.b, "become_pre_candidate", 1)
    m.event(m.b, "append", 1, index=3, prev_index=2)
    m.event(m.b, "commit", 1, index=1, prev_index=0, boot_id="b-2")
    m.event(m.b, "vote_granted", 2, peer=m.c, index=2, prev_index=1)
    m.event(m.c, "truncate", 2, index=3, prev_index=4)


def two_leaders(m: Members) -> None:
    m.event(m.c, "become_leader", 1)


def told_leader(m: Members) -> None:
    """Only a status tells of it."""
    m.probe(m.b, "LEADER", 1, 50 * MS)


def second_vote(m: Members) -> None:
    """Another life of the node votes again in the same term."""
    m.event(m.b, "boot", 1, index=2, prev_index=0, boot_id="b-2")
    m.event(m.b, "vote_granted", 1, peer=m.c, boot_id="b-2")


def vote_for_itself(m: Members) -> None:
    m.event(m.b, "boot", 1, index=2, prev_index=0, boot_id="b-2")
    m.event(m.b, "become_candidate", 1, peer=m.c, boot_id="b-2")


def term_falls(m: Members) -> None:
    m.event(m.c, "boot", 0, index=2, prev_index=1, boot_id="c-2")


def wiped(m: Members) -> None:
    """Terms and votes of a node that a fault wiped are excused."""
    m.run.fault("node.wipe", [m.c], m.run.clock, m.run.clock + 1)
    m.event(m.c, "boot", 0, index=-1, prev_index=-1, boot_id="c-2")
    m.event(m.c, "vote_granted", 1, peer=m.b, boot_id="c-2")


def overlapping_statuses(m: Members) -> None:
    """Statuses are compared only where one ended before the next began."""
    for t0, t1, term in ((10, 20, 5), (15, 30, 4), (40, 50, 5)):
        m.probe(m.b, "FOLLOWER", term, t0 * MS, t1=t1 * MS)


def told_term_falls(m: Members) -> None:
    overlapping_statuses(m)
    m.probe(m.b, "FOLLOWER", 3, 60 * MS)


def commit_falls(m: Members) -> None:
    m.event(m.b, "commit", 1, index=1, prev_index=2)


def applied_falls(m: Members) -> None:
    for number, applied in enumerate((5, 7, 6)):
        m.probe(m.b, "FOLLOWER", 1, (50 + number) * MS, applied=applied, boot_id="b-1")


def committed_is_cut(m: Members) -> None:
    """A later life cuts what an earlier one had called committed."""
    m.event(m.b, "boot", 1, index=2, prev_index=0, boot_id="b-2")
    m.event(m.b, "truncate", 1, index=2, prev_index=2, boot_id="b-2")


STORIES = {
    by_the_rules: ("", ""),
    two_leaders: ("A30", "term 1 has 2 leaders: a{0}, c{0}"),
    told_leader: ("A30", "term 1 has 2 leaders: a{0}, b{0}"),
    second_vote: ("A31", "b{0} voted in term 1 for a{0}, c{0}"),
    vote_for_itself: ("A31", "b{0} voted in term 1 for a{0}, b{0}"),
    term_falls: ("A32", "c{0}: term fell from 1 to 0 (event 9)"),
    wiped: ("", ""),
    overlapping_statuses: ("", ""),
    told_term_falls: ("A32", "b{0}: term fell from 5 to 3"),
    commit_falls: ("A33", "b{0}: commit index fell from 2 to 1 (event 9)"),
    applied_falls: ("A33", "b{0}: applied index fell from 7 to 6"),
    committed_is_cut: (
        "A35", "b{0} cut its log at 2 (event 10) and had called everything up to 2 committed",
    ),
}  # fmt: skip
"""Each story, the check that finds it, and what Spark says of it."""


def history_of(*stories) -> HistoryBuilder:
    run = HistoryBuilder()
    run.traffic(4)
    run.election("n0", 1)
    for number, story in enumerate(stories, start=1):
        story(Members(run, number))
    return run


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_each_story_by_itself(tmp_path, story):
    run = history_of(story).write(tmp_path / "run")
    results = check_history(load_history(run)).results
    counts = {check: results[check].count for check in CHECKS if results[check].count}
    wanted, _ = STORIES[story]
    assert counts == ({wanted: 1} if wanted else {})


def test_all_stories_at_once(session, tmp_path):
    report = report_of(session, history_of(*STORIES), tmp_path, only=CHECKS)
    assert not report.problems
    spark = {check: found(report, check) for check in CHECKS}
    other = check_history(load_history(tmp_path / "run")).results
    assert spark == {check: (other[check].verdict, other[check].count) for check in CHECKS}
    wanted = Counter(check for check, _ in STORIES.values() if check)
    assert {check: count for check, (_, count) in spark.items() if count} == wanted
    for number, (check, words) in enumerate(STORIES.values(), start=1):
        if check:
            assert words.format(number) in explain(report, check)


def test_election_by_the_rules_is_sound(session, tmp_path):
    sound = [story for story, (check, _) in STORIES.items() if not check]
    report = report_of(session, history_of(*sound), tmp_path, only=ALL)
    assert not report.problems
    assert alarms(report) == {}


def test_run_without_events_and_statuses_is_not_checked(session, tmp_path):
    run = history_of()
    run.tables["raft_event"] = []
    for send in run.tables["sends"]:
        send.update(node=None)  # who acknowledged in a term nobody says
    report = report_of(session, run, tmp_path, only=CHECKS[:4])
    other = check_history(load_history(tmp_path / "run")).results
    for check in CHECKS[:4]:
        assert found(report, check) == ("not checked", 0) == (other[check].verdict, 0)

"""Who becomes a voter has what was committed some time before."""

from types import SimpleNamespace

import pytest

from dledger.core.messages import AppendReply, RecoveringReply
from dledger.core.model import Role
from sim.oracles.base import Violation
from sim.oracles.promotion import ROOM_NS, Promotion
from sim.oracles.replica import Change, Mark
from sim.oracles.truth import Truth

FIRST = ("n0", "n1", "n2")
MS = 1_000_000
LEADS = (Role.LEADER, 3)


class Group:
    """n0 leads term 3; n3 is its learner, and becomes a voter by entry 50."""

    def __init__(self):
        self.now_ns = 10_000 * MS
        self.truth = Truth(FIRST)
        self.truth.now_ns = lambda: self.now_ns
        self.oracle = Promotion(self.truth)
        self.marks = {}
        self.leader = SimpleNamespace(
            name="n0", base=0, state=SimpleNamespace(term=3), mark=self.marks.get
        )

    def commits(self, index):
        self._change(index, index, index)

    def passes(self, ns):
        self.now_ns += ns

    def says(self, match_index):
        name = SimpleNamespace(name="n3")
        self.oracle.on_message(name, AppendReply("n3", "n0", 3, match_index))

    def promotes(self, voters=(*FIRST, "n3")):
        self.truth.configurations[50, 3] = voters
        self.marks[50] = Mark(3, 0, 10, 0)
        self._change(49, 49, 50)

    def _change(self, committed, kept, last):
        key = (*LEADS, committed, last, 3, committed, committed)
        self.oracle.on_change(self.leader, Change(key, key, kept, kept))


@pytest.fixture
def group():
    found = Group()
    found.commits(40)
    found.passes(ROOM_NS)
    found.commits(48)
    return found


def test_a_learner_that_has_what_was_committed_before_becomes_a_voter(group):
    group.says(40)
    group.promotes()


def test_one_that_lacks_it_does_not(group):
    group.says(39)
    with pytest.raises(Violation, match="log up to 39"):
        group.promotes()


def test_what_one_that_began_empty_tells_counts(group):
    told = RecoveringReply("n3", "n0", 3, 48, "generation")
    group.oracle.on_message(SimpleNamespace(name="n3"), told)
    group.promotes()


def test_what_was_told_in_another_term_does_not_count(group):
    group.oracle.on_message(SimpleNamespace(name="n3"), AppendReply("n3", "n0", 2, 48))
    with pytest.raises(Violation):
        group.promotes()


def test_a_leader_of_late_is_not_judged():
    group = Group()
    group.commits(40)
    group.passes(ROOM_NS - MS)
    group.promotes()


def test_who_leads_anew_begins_anew(group):
    group.oracle.on_boot(group.leader)
    group.promotes()


def test_who_leaves_or_was_a_voter_before_is_not_looked_at(group):
    group.promotes(("n0", "n1"))

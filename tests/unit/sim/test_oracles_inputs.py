"""Each tick, report and output of the core is what the rules say; bugs in them are found."""

from collections import Counter

import pytest

from dledger.core.raft import Raft
from mutants.patches import ALL, BY_TESTS
from mutants.planting import planted
from sim.oracles import inputs
from sim.oracles import steps_roles as roles
from sim.oracles.inputs import Listener, listen
from sim.oracles.steps import is_steady
from tests.unit.dledger.cluster import Cluster
from tests.unit.dledger.trouble import run_trouble

SEEDS = range(500, 516)


class OtherwiseError(Exception):
    """An input was not worked off as the rules say."""


@pytest.fixture
def judged(monkeypatch):
    """Have each input and output of each core judged; how many were, by their names."""
    kinds, begin, do = Counter(), Raft.__init__, Cluster.do
    step = Raft.step

    def tell(text):
        raise OtherwiseError(text)

    def report(error):
        raise error

    class Counting(Listener):
        def judge(self, what, validator):
            kinds[what] += 1
            super().judge(what, validator)

    def beginning(self, *args, **named):
        begin(self, *args, **named)
        listen(self, Counting(tell, report))

    def stepping(self, message):
        stood = roles.standing(self.state)
        step(self, message)
        wrong = is_steady(self.state, message, stood)
        if wrong is not None:
            raise OtherwiseError(wrong)

    def doing(self, node_id, action):
        name = getattr(action, "__name__", "")
        is_plain = getattr(Raft, name, None) is action
        do(self, node_id, (lambda raft: getattr(raft, name)()) if is_plain else action)

    monkeypatch.setattr(Raft, "__init__", beginning)
    monkeypatch.setattr(Raft, "step", stepping)
    monkeypatch.setattr(Cluster, "do", doing)
    return kinds


def troubles():
    """Run clusters through trouble, one after the other."""
    for seed in SEEDS:
        run_trouble(seed, 300)


def test_each_input_of_runs_with_trouble_is_worked_off_as_the_rules_say(judged):
    troubles()
    assert all(judged[name] > 10 for name in ("tick", "ready", "due", "persisted")), judged
    assert set(inputs.INPUTS) > {"tick", "abort", "staged", "unreachable", "block"}


@pytest.mark.parametrize(
    "name",
    [
        "quorum-a-tick-later",
        "given-up-and-sent-whole",
        "learners-by-the-last-beat",
        "commit-told-again",
        "refusal-restarts-the-timer",
        "candidates-without-haste",
    ],
)
def test_a_tick_by_another_rule_is_found(judged, name):
    with planted(ALL[name]), pytest.raises(OtherwiseError):
        troubles()


@pytest.mark.parametrize(
    "bug",
    [BY_TESTS["vote-without-patience"], BY_TESTS["beat-of-the-last-term"]],
    ids=lambda bug: bug.name,
)
def test_what_outlives_a_change_of_role_is_found(judged, bug):
    with planted(bug), pytest.raises(OtherwiseError):
        troubles()

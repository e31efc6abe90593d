"""Each step of the core is what the rules say: over runs with trouble, and with bugs planted."""

from collections import Counter
from types import SimpleNamespace

import pytest

from dledger.core.messages import (
    Append,
    AppendReject,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    PreVoteRequest,
    VoteReply,
    VoteRequest,
)
from dledger.core.model import FOLLOWER, LEADER
from dledger.core.progress import Progress
from dledger.core.raft import Raft
from mutants.patches import ALL
from mutants.planting import planted
from sim.oracles.base import Findings, Violation
from sim.oracles.steps import WAIT_NS, Steps, judge_of
from tests.unit.dledger.trouble import run_trouble

SEEDS = range(500, 516)
LONG = 1 << 20


def troubles():
    """Run clusters through trouble, one after the other."""
    for seed in SEEDS:
        run_trouble(seed, 300)


class OtherwiseError(Exception):
    """A step was not what the rules say."""


@pytest.fixture
def judged(monkeypatch):
    """Have each step judged; the messages that were, by their kinds."""
    kinds, step = Counter(), Raft.step

    def stepping(self, message):
        state = self.state
        judge = judge_of(state, message)
        before = None if judge is None else judge[0](state, message)
        step(self, message)
        if before is not None:
            kinds[type(message)] += 1
            wrong = judge[1](state, message, before)
            if wrong is not None:
                raise OtherwiseError(f"{message}: {wrong}")

    monkeypatch.setattr(Raft, "step", stepping)
    return kinds


def test_each_step_of_runs_with_trouble_is_what_the_rules_say(judged):
    troubles()
    often = (Append, AppendReply, AppendReject, Heartbeat, HeartbeatReply)
    assert all(judged[kind] > 10 for kind in often), judged
    assert all(judged[kind] for kind in (VoteRequest, VoteReply, PreVoteRequest)), judged


@pytest.mark.parametrize(
    "name",
    [
        "silent-for-ever",
        "pre-vote-answered-with-own-term",
        "round-never-heard",
        "votes-counted-not-voters",
    ],
)
def test_a_step_by_another_rule_is_found(judged, name):
    with planted(ALL[name]), pytest.raises((OtherwiseError, AssertionError)):
        troubles()


def follower(**known):
    """A follower of n1 in term 2, with ten entries, five of them committed, the last of term 1."""
    log = SimpleNamespace(
        last_index=9, last_term=1, commit_index=4, first_index=0,
        term_at=lambda index: 1 if 0 <= index <= 9 else 0 if index == -1 else None,
    )  # fmt: skip
    state = {
        "term": 2, "role": FOLLOWER, "leader_id": "n1", "voted_for": None, "tick": LONG,
        "contact_tick": LONG, "election_elapsed": 0, "fresh": False, "node_id": "n0", "log": log,
        "config": SimpleNamespace(election_ticks_min=5), "others": ("n1", "n2"), "staging": None,
        "ack_index": None, "messages": [], "replies": [], "events": [],
    }  # fmt: skip
    return SimpleNamespace(**{**state, **known})


def judge(state, message, *steps):
    """Say what is wrong with a step that changes what a state knows."""
    begin, end = judge_of(state, message)
    before = begin(state, message)
    for name, value in steps:
        setattr(state, name, value)
    return end(state, message, before)


@pytest.mark.parametrize(
    ("last_index", "last_term", "is_granted"), [(9, 1, True), (4, 2, True), (8, 1, False)]
)
@pytest.mark.parametrize("told", [True, False])
def test_a_vote_is_for_the_later_term_and_then_for_the_longer_log(
    last_index, last_term, is_granted, told
):
    state, request = follower(contact_tick=0), VoteRequest("n1", "n0", 3, last_index, last_term)
    answer = ("replies", [VoteReply("n0", "n1", 3, told)])
    wrong = judge(state, request, ("term", 3), ("voted_for", "n1" if told else None), answer)
    assert (wrong is None) == (told == is_granted)


@pytest.mark.parametrize(("owed", "is_sound"), [(4, True), (2, False), (None, False)])
def test_what_is_sent_again_is_acknowledged_as_it_is_committed(owed, is_sound):
    repeated = Append("n1", "n0", 2, 2, 1, 4, None)
    assert (judge(follower(), repeated, ("ack_index", owed)) is None) == is_sound


@pytest.mark.parametrize(("match_index", "is_sound"), [(3, True), (9, False)])
def test_what_a_follower_has_lost_counts_no_more(match_index, is_sound):
    progress = Progress("n1", 10, LONG)
    progress.match_index = 9
    leader = follower(role=LEADER, leader_id="n0", progress={"n1": progress})
    lost = AppendReject("n1", "n0", 2, 9, 3, 1, 3)
    begin, end = judge_of(leader, lost)
    before = begin(leader, lost)
    progress.match_index, progress.next_index = match_index, 4 if is_sound else 10
    assert (end(leader, lost, before) is None) == is_sound


def listening(step=lambda _message: None, complete=lambda _ready: True, **known):
    """A replica of which the steps are judged, and what is found."""
    findings = Findings()
    log = SimpleNamespace(last_index=5)
    standing = {"role_changes": 0, "role": FOLLOWER, "voted_for": None, "contact_tick": 0}
    timer = {"election_elapsed": 0, "election_timeout": 5}
    state = SimpleNamespace(
        log=log, others=("n1",), term=1, ack_index=None, **{**standing, **timer, **known}
    )
    driver = SimpleNamespace(complete=complete)
    node = SimpleNamespace(_step=step, _driver=driver, _raft=Raft.__new__(Raft))
    replica = SimpleNamespace(name="n0", node=node, state=state)
    truth = SimpleNamespace(now_ns=lambda: 0)
    steps = Steps(findings, truth)
    steps.on_boot(replica)
    return replica, steps, truth


def test_what_is_owed_and_not_held_is_found_when_the_write_is_over():
    replica, steps, truth = listening()
    for owed in (None, 5):
        replica.state.ack_index = owed
        assert replica.node._driver.complete(None)
        steps.at_end()
    replica.state.ack_index = 6
    assert replica.node._driver.complete(None)
    steps.on_change(replica, None)
    truth.now_ns = lambda: WAIT_NS
    with pytest.raises(Violation, match="owes an acknowledgement of 6"):
        steps.on_change(replica, None)


def test_a_step_is_judged_where_it_is_taken_and_of_members_alone():
    state = {"role": FOLLOWER, "voted_for": None, "leader_id": None}
    replica, steps, _ = listening(**state)
    replica.node._step(HeartbeatReply("stranger", "n0", 2, 0))  # a newer term that is not entered
    steps.at_end()
    replica.node._step(HeartbeatReply("n1", "n0", 2, 0))
    with pytest.raises(Violation, match="takes HeartbeatReply of n1"):
        steps.at_end()

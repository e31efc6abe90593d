"""A leader needs the votes of a majority, and must go on hearing of one."""

from types import SimpleNamespace

import pytest

from dledger.core.messages import AppendReply, TimeoutNow, VoteReply, VoteRequest
from dledger.core.model import Role
from sim.oracles.base import Violation
from sim.oracles.leadership import (
    Amnesia,
    Changes,
    Elected,
    HandOver,
    Invariants,
    Matches,
    Tenure,
)
from sim.oracles.replica import NO_KEY, Change, Mark, Replica
from sim.oracles.truth import Truth
from tests.unit.dledger.cluster import Cluster

VOTERS = ("n0", "n1", "n2", "n3", "n4")


def replica(name, cluster=None):
    raft = None if cluster is None else cluster[name]
    node = SimpleNamespace(_raft=raft)
    state = None if raft is None else raft.state
    return SimpleNamespace(
        name=name, controller=SimpleNamespace(node=node), state=state, last_index=0
    )


def becomes_leader(term):
    now = (Role.LEADER, term, -1, 0, term, -1, -1)
    return Change((Role.CANDIDATE, term, *NO_KEY[2:]), now, -1, -1)


@pytest.mark.parametrize("voters", [("n1",), ("n1", "n1", "n1"), ()])
def test_a_leader_without_a_majority_of_voters_is_found(voters):
    elected = Elected(Truth(VOTERS))
    for voter in voters:
        elected.on_message(replica(voter), VoteReply(voter, "n0", 3, granted=True))
    with pytest.raises(Violation, match="leads term 3"):
        elected.on_change(replica("n0"), becomes_leader(3))


def test_votes_of_another_term_and_refusals_do_not_count():
    elected = Elected(Truth(VOTERS))
    elected.on_message(replica("n1"), VoteReply("n1", "n0", 2, granted=True))
    elected.on_message(replica("n2"), VoteReply("n2", "n0", 3, granted=False))
    elected.on_message(replica("n3"), VoteReply("n3", "n0", 3, granted=True))
    with pytest.raises(Violation):
        elected.on_change(replica("n0"), becomes_leader(3))


def test_a_majority_is_fine():
    elected = Elected(Truth(VOTERS))
    for voter in ("n1", "n2"):
        elected.on_message(replica(voter), VoteReply(voter, "n0", 3, granted=True))
    elected.on_change(replica("n0"), becomes_leader(3))


def test_a_leader_that_nobody_answers_is_found_unless_it_steps_down():
    cluster = Cluster(3)
    cluster.elect("n0")
    tenure = Tenure(Truth(cluster.ids))
    state = cluster["n0"].state
    tenure.on_event(replica("n0", cluster))
    state.tick += 1000
    with pytest.raises(Violation, match="has heard only"):
        tenure.on_event(replica("n0", cluster))
    state.tick += 1
    state.become_follower(state.term, None)
    tenure.on_event(replica("n0", cluster))


def test_a_leader_whose_configuration_is_being_written_is_looked_at_when_it_is():
    cluster = Cluster(3)
    cluster.elect("n0")
    tenure = Tenure(Truth(cluster.ids))
    cluster["n0"].state.tick += 1000
    leader = replica("n0", cluster)
    leader.last_index = cluster["n0"].state.membership.latest.index - 1
    tenure.on_event(leader)
    cluster["n0"].state.tick += 1
    leader.last_index += 1
    with pytest.raises(Violation, match="has heard only"):
        tenure.on_event(leader)


@pytest.mark.parametrize(("term", "told", "is_fine"), [(1, 0, True), (1, -1, False), (0, 0, False)])
def test_a_follower_counts_for_what_it_told_in_this_term(term, told, is_fine):
    cluster = Cluster(3)
    cluster.elect("n0")
    matches = Matches()
    for follower in ("n1", "n2"):
        matches.on_message(replica(follower), AppendReply(follower, "n0", term, told))
    if is_fine:
        matches.on_event(replica("n0", cluster))
    else:
        with pytest.raises(Violation, match="counts n1 for 0"):
            matches.on_event(replica("n0", cluster))


def test_what_the_core_knows_to_be_wrong_is_a_violation():
    cluster = Cluster(3)
    cluster.elect("n0")
    validator = Invariants()
    validator.on_boot(replica("n0", cluster))
    cluster["n0"].state.voted_for = "n1"
    with pytest.raises(Violation):
        validator.on_boot(replica("n0", cluster))


@pytest.mark.parametrize(("commit", "is_fine"), [(3, True), (2, False)])
def test_a_change_of_the_group_waits_for_the_one_before(commit, is_fine):
    truth = Truth(VOTERS)
    truth.configurations = {(3, 1): VOTERS[:4], (5, 1): VOTERS[:3]}
    one = Replica("n0", 1)
    one.marks = [Mark(1, 100 * index, 100, 7) for index in range(6)]
    key = (Role.LEADER, 1, commit, 5, 1, -1, commit)
    change = Change(key, key, 4, 4)
    if is_fine:
        Changes(truth).on_change(one, change)
    else:
        with pytest.raises(Violation, match="appended a change of the group at 5"):
            Changes(truth).on_change(one, change)


@pytest.mark.parametrize(
    ("damage", "last", "candidate_end", "is_fine"),
    [
        ("wiped", 1, 5, False),
        ("wiped", 3, 5, True),
        ("wiped", 1, -1, True),
        ("", 1, 5, True),
        ("wiped and corrupt", 1, 5, True),
    ],
)
def test_who_lost_its_directory_votes_when_it_holds_again_what_it_held(
    damage, last, candidate_end, is_fine
):
    truth = Truth(VOTERS)
    truth.committed = [Mark(1, 100 * index, 100, 7) for index in range(4)]
    truth.ever = {(index, 1): 1 for index in range(4)}
    voter, other = Replica("n0", 1), Replica("n1", 2)
    log = SimpleNamespace(last_index=last)
    for one in (voter, other):
        raft = SimpleNamespace(state=SimpleNamespace(log=log))
        one.controller = SimpleNamespace(node=SimpleNamespace(_raft=raft))
    voter.is_wiped = "wiped" in damage
    voter.is_corrupt = "corrupt" in damage
    amnesia = Amnesia(truth)
    amnesia.on_boot(voter)
    amnesia.on_message(other, VoteRequest("n1", "n0", 2, candidate_end, 1))
    vote = VoteReply("n0", "n1", 2, granted=True)
    if is_fine:
        amnesia.on_message(voter, vote)
    else:
        with pytest.raises(Violation, match="has entries up to 1 of the 3"):
            amnesia.on_message(voter, vote)


@pytest.mark.parametrize(
    ("last", "goes_on", "is_fine"), [(5, True, True), (6, True, False), (6, False, True)]
)
def test_a_leader_appends_nothing_once_it_has_asked_its_successor(last, goes_on, is_fine):
    state = SimpleNamespace(transfer=SimpleNamespace(target="n1"))
    leader = SimpleNamespace(name="n0", state=state)
    validator = HandOver()
    validator.on_message(leader, TimeoutNow("n0", "n1", 1, 5))
    if not goes_on:
        state.transfer = None
    key = (Role.LEADER, 1, 5, last, 1, -1, 5)
    if is_fine:
        validator.on_change(leader, Change(key, key, 5, 5))
    else:
        with pytest.raises(Violation, match="with a log up to 5, and has appended up to 6"):
            validator.on_change(leader, Change(key, key, 5, 5))

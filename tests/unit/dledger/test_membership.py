"""The rules of membership, one test each, named as the rule.

Sections are those of Ongaro's dissertation; the rule for lost directories is our own, see
`dledger.core.rejoin`.
"""

import pytest

from dledger.core.configuration import KEPT_MAX, ChangeKind, ConfigEntry, Configuration, Membership
from dledger.core.messages import (
    Append,
    AppendReply,
    Heartbeat,
    PreVoteReply,
    PreVoteRequest,
    RejoinGrant,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from dledger.core.model import HardState, Role
from dledger.core.ready import EventKind
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.dledger.cluster import Cluster

ADD, PROMOTE, REMOVE = ChangeKind.ADD_LEARNER, ChangeKind.PROMOTE, ChangeKind.REMOVE


def sent(cluster, kind):
    return [message for message in cluster.network if isinstance(message, kind)]


def elected(size=3, **options):
    cluster = Cluster(size, **options)
    cluster.elect("n0")
    return cluster


def with_learner(size=3):
    """A group whose learner, the last of its nodes, has caught up."""
    cluster = elected(size)
    learner = f"n{size}"
    cluster.join(learner)
    assert cluster.change("n0", ADD, learner) is None
    settle(cluster)
    return cluster, learner


def settle(cluster, ticks=12):
    for _ in range(ticks):
        cluster.tick_all()
        cluster.stabilize()


def voters(cluster, node_id):
    return list(cluster[node_id].state.voters)


# Configurations in the log


def test_configuration_takes_effect_when_it_is_appended():
    """4.1: a server uses the latest configuration in its log, committed or not."""
    cluster = elected()
    cluster.change("n0", REMOVE, "n2")
    assert voters(cluster, "n0") == ["n0", "n1"]
    assert cluster["n0"].state.log.commit_index < cluster["n0"].state.membership.latest.index
    cluster.deliver()
    assert voters(cluster, "n1") == ["n0", "n1"]


def test_configuration_ends_when_it_is_truncated():
    """4.1: if it is truncated, the server falls back to the previous configuration in its log."""
    cluster = elected()
    cluster.isolate("n0")
    cluster.change("n0", REMOVE, "n2")
    assert voters(cluster, "n0") == ["n0", "n1"]
    cluster.elect("n1")
    cluster.heal()
    settle(cluster)
    assert voters(cluster, "n0") == ["n0", "n1", "n2"]
    assert cluster["n0"].state.role is Role.FOLLOWER


def test_configuration_that_could_not_be_written_is_rolled_back():
    cluster = elected()
    cluster.replicas["n0"].store.is_full = True
    cluster.change("n0", REMOVE, "n2")
    assert voters(cluster, "n0") == ["n0", "n1", "n2"]


def test_that_a_configuration_is_rolled_back_is_told():
    """Whoever keeps links to the members follows what is told."""
    cluster = elected()
    cluster.replicas["n0"].store.is_full = True
    cluster.change("n0", REMOVE, "n2")
    events = cluster.replicas["n0"].events
    told = [event.extra for event in events if event.kind is EventKind.CONFIG]
    assert told == ["version=1 voters=n0,n1", "version=0 voters=n0,n1,n2"]


def test_a_vote_given_while_entries_find_no_space_is_told():
    cluster = elected()
    raft, driver = cluster["n1"], cluster.replicas["n1"].driver
    cluster.propose("n0", b"one")
    append = next(m for m in cluster.network if m.receiver == "n1" and isinstance(m, Append))
    raft.step(append)
    ready = raft.ready()  # its term and vote are on their way to the disk, say
    raft.step(VoteRequest("n2", "n1", 9, 5, 1, transfer=True))
    cluster.replicas["n1"].store.is_full = True
    driver.begin(ready)
    assert not driver.complete(ready)
    assert EventKind.VOTE in {event.kind for event in raft.ready().events}


def test_configuration_is_on_disk_before_its_entry():
    cluster = elected()
    cluster.replicas["n0"].store.is_full = True
    cluster.change("n0", REMOVE, "n2")
    (saved,) = cluster.replicas["n0"].membership_file.saved
    assert (saved.index, saved.term, list(saved.configuration.voters)) == (1, 1, ["n0", "n1"])


def test_restart_goes_on_with_the_configuration_of_the_log():
    cluster = elected()
    cluster.change("n0", REMOVE, "n2")
    cluster.stabilize()
    for node in ("n0", "n1"):
        cluster.crash(node)
        cluster.restart(node)
        assert voters(cluster, node) == ["n0", "n1"]


def test_restart_ignores_what_the_file_has_and_the_log_has_not():
    """It was written, or cut, when the power went."""
    cluster = elected()
    cluster.replicas["n0"].store.is_full = True
    cluster.change("n0", REMOVE, "n2")
    cluster.crash("n0")
    cluster.restart("n0")
    assert voters(cluster, "n0") == ["n0", "n1", "n2"]


def test_only_so_many_configurations_are_remembered():
    membership = Membership({"n0": ""})
    for index in range(2 * KEPT_MAX):
        membership.add(ConfigEntry(index, 1, Configuration({"n0": ""}, version=index + 1)))
    assert len(membership.entries) == KEPT_MAX - 1
    assert membership.at(-1).configuration.version == 0
    assert membership.at(2 * KEPT_MAX - 2).configuration.version == 2 * KEPT_MAX - 1


def test_what_is_forgotten_is_not_taken_for_the_first_one():
    membership = Membership({"n0": ""})
    assert membership.knows(-1)
    for version in range(1, KEPT_MAX):
        membership.add(ConfigEntry(10 * version, 1, Configuration({"n0": ""}, version=version)))
    assert membership.knows(5)  # nothing is forgotten yet
    membership.add(ConfigEntry(10 * KEPT_MAX, 1, Configuration({"n0": ""}, version=KEPT_MAX)))
    assert not membership.knows(19)
    assert membership.knows(20)
    again = Membership({"n0": ""}, membership.entries)
    assert (again.knows(19), again.knows(20)) == (False, True)
    with planted(BY_TESTS["members-forgotten-are-the-first"]):
        assert membership.knows(19)


def test_snapshot_brings_its_configuration():
    membership = Membership({"n0": ""}, [ConfigEntry(3, 1, Configuration({"n0": "", "n1": ""}))])
    membership.reset(ConfigEntry(90, 4, Configuration({"n2": ""})))
    assert list(membership.latest.configuration.voters) == ["n2"]
    assert [entry.index for entry in membership.entries] == [90]
    assert membership.unsaved


# One server at a time


def test_second_change_waits_until_the_first_is_committed():
    """4.1: only one change at a time may be uncommitted."""
    cluster = elected(4)
    cluster.change("n0", REMOVE, "n3")
    assert "not committed yet" in cluster.change("n0", REMOVE, "n2")
    cluster.stabilize()
    assert cluster.change("n0", REMOVE, "n2") is None


def test_change_waits_until_the_leader_has_committed_an_entry_of_its_term():
    """The erratum of July 2015: otherwise it may not know of a change that is committed."""
    cluster = Cluster(3)
    cluster.campaign("n0")
    while cluster["n0"].state.role is not Role.LEADER:
        cluster.deliver()
    assert "has not committed" in cluster.change("n0", REMOVE, "n2")
    cluster.stabilize()
    assert cluster.change("n0", REMOVE, "n2") is None


@pytest.mark.parametrize(
    ("kind", "target", "why"),
    [
        (ADD, "n1", "n1 is a voter already"),
        (PROMOTE, "n1", "n1 is not a learner"),
        (PROMOTE, "n9", "n9 is not a learner"),
        (REMOVE, "n9", "n9 is not a member"),
    ],
)
def test_change_that_makes_no_sense_is_refused(kind, target, why):
    assert elected().change("n0", kind, target) == why


def test_last_voter_stays():
    assert "last voter" in elected(1).change("n0", REMOVE, "n0")


def test_only_a_leader_changes_the_group():
    assert "does not lead" in elected().change("n1", REMOVE, "n2")


def test_change_is_refused_while_leadership_is_transferred():
    cluster = elected()
    cluster.do("n0", lambda raft: raft.transfer("n1"))
    assert "transferred" in cluster.change("n0", REMOVE, "n2")


# Learners


def test_learner_gets_the_log_and_is_not_counted_for_a_commit():
    """4.2.1: it receives entries, but is not counted in majorities."""
    cluster, learner = with_learner()
    cluster.crash("n1")
    cluster.crash("n2")
    cluster.propose("n0", b"alone")
    cluster.stabilize()
    assert cluster.log(learner)[-1][1] == b"alone"
    assert cluster["n0"].state.log.commit_index < cluster["n0"].state.log.last_index


def test_learner_does_not_keep_a_leader_in_power():
    cluster, _ = with_learner()
    cluster.crash("n1")
    cluster.crash("n2")
    for _ in range(25):
        cluster.tick_all()
        cluster.stabilize()
    assert cluster["n0"].state.role is Role.FOLLOWER


def test_learner_never_campaigns():
    cluster, learner = with_learner()
    cluster.forget_leader()
    cluster.tick(learner, 200)
    assert not sent(cluster, PreVoteRequest)
    assert cluster[learner].state.role is Role.FOLLOWER


def test_learner_is_not_asked_for_its_vote_and_would_not_be_counted():
    cluster, learner = with_learner()
    cluster.crash("n0")
    cluster.forget_leader()
    cluster.campaign("n1")
    assert {message.receiver for message in sent(cluster, PreVoteRequest)} == {"n0", "n2"}
    cluster.step(PreVoteReply(learner, "n1", 2, granted=True))
    assert cluster["n1"].state.role is Role.PRE_CANDIDATE


def test_learner_is_promoted_only_when_it_has_caught_up():
    cluster = elected()
    cluster.join("n3")
    cluster.change("n0", ADD, "n3")
    cluster.network = [message for message in cluster.network if message.receiver != "n3"]
    cluster.stabilize()
    assert "not caught up" in cluster.change("n0", PROMOTE, "n3")
    settle(cluster)
    assert cluster.change("n0", PROMOTE, "n3") is None


def test_learner_that_is_fresh_is_not_promoted():
    cluster, learner = with_learner()
    cluster.wipe(learner)
    cluster.restart(learner)
    cluster.tick("n0", 4)
    while learner not in cluster["n0"].state.rejoining:
        cluster.deliver()
    assert cluster[learner].state.fresh
    assert "not caught up" in cluster.change("n0", PROMOTE, learner)
    settle(cluster, 40)
    assert cluster.change("n0", PROMOTE, learner) is None


def test_learner_that_does_not_know_of_its_promotion_votes_when_asked():
    """4.2.1, and 4.1: the candidate counts by its own configuration; the voter need not know."""
    cluster, learner = with_learner()
    cluster.change("n0", PROMOTE, learner)
    cluster.network = [m for m in cluster.network if m.receiver != learner]
    cluster.stabilize()
    cluster.isolate("n0")
    cluster.network.clear()
    cluster.forget_leader()
    cluster.campaign("n1")
    cluster.stabilize()
    assert cluster["n1"].state.role is Role.LEADER
    assert cluster["n1"].state.quorum == 3  # of n0, which is cut off, n1, n2 and the learner


# Removal


def test_majority_is_that_of_the_latest_configuration():
    cluster = elected(4)
    cluster.change("n0", REMOVE, "n3")
    cluster.stabilize()
    cluster.crash("n3")
    cluster.crash("n2")
    cluster.propose("n0", b"two of three")
    cluster.stabilize()
    assert cluster.committed[-1][1] == b"two of three"


def test_removal_of_who_lags_commits_what_the_others_hold():
    cluster = elected(2)
    cluster.isolate("n1")
    cluster.propose("n0", b"alone")
    cluster.network.clear()
    assert cluster["n0"].state.log.commit_index == 0
    cluster.change("n0", REMOVE, "n1")
    assert cluster.committed[1][1] == b"alone"
    assert voters(cluster, "n0") == ["n0"]


def test_leader_that_removes_itself_does_not_count_itself():
    """4.2.2: it replicates entries but does not count itself in majorities."""
    cluster = elected()
    cluster.change("n0", REMOVE, "n0")
    cluster.cut |= {("n2", "n0"), ("n0", "n2")}
    cluster.network = [message for message in cluster.network if message.receiver != "n2"]
    cluster.stabilize()
    assert cluster.log("n1") == cluster.log("n0")
    assert cluster["n0"].state.log.commit_index == 0  # n0 and n1 are no majority of n1, n2
    assert cluster["n0"].state.role is Role.LEADER


@pytest.mark.parametrize(
    ("mutant", "rule"),
    [
        (BY_TESTS["cut-configuration-kept"], test_configuration_ends_when_it_is_truncated),
        (
            BY_TESTS["removed-leader-counts-itself"],
            test_leader_that_removes_itself_does_not_count_itself,
        ),
        (BY_TESTS["aborted-events-dropped"], test_that_a_configuration_is_rolled_back_is_told),
        (BY_TESTS["aborted-events-dropped"], test_a_vote_given_while_entries_find_no_space_is_told),
    ],
)
def test_planted_bug_breaks_its_rule(mutant, rule):
    with planted(mutant), pytest.raises(AssertionError):
        rule()


def test_leader_that_removed_itself_steps_down_once_that_is_committed():
    """4.2.2; it asks who has everything to take over."""
    cluster = elected()
    cluster.change("n0", REMOVE, "n0")
    while cluster["n0"].state.role is Role.LEADER:
        cluster.deliver()
    state = cluster["n0"].state
    assert state.log.commit_index == state.membership.latest.index
    assert sent(cluster, TimeoutNow)
    cluster.stabilize()
    assert cluster.leader() in ("n1", "n2")
    assert cluster[cluster.leader()].state.term == 2


def test_removed_server_does_not_campaign():
    """4.2.3: a server that is no member disturbs nobody."""
    cluster = elected()
    cluster.change("n0", REMOVE, "n0")
    cluster.stabilize()
    settle(cluster)
    assert cluster["n0"].state.role is Role.FOLLOWER
    cluster.tick("n0", 200)
    assert not sent(cluster, PreVoteRequest)


def test_removed_server_that_does_not_know_it_deposes_nobody():
    """4.2.3: servers that hear a leader ignore it."""
    cluster = elected()
    cluster.isolate("n2")
    cluster.change("n0", REMOVE, "n2")
    cluster.stabilize()
    cluster.heal()
    cluster.tick("n0", 4)
    cluster.stabilize()
    cluster.campaign("n2")
    cluster.stabilize()
    cluster.step(VoteRequest("n2", "n1", 9, 99, 8))
    assert cluster["n0"].state.role is Role.LEADER
    assert cluster["n1"].state.term == cluster["n0"].state.term == 1


def test_removed_server_campaigns_as_long_as_its_removal_may_depend_on_it():
    """4.2.2: it may be the only one that holds the entry which removes it."""
    cluster = elected(2)
    cluster.isolate("n0")
    cluster.change("n0", REMOVE, "n0")
    cluster.network.clear()
    cluster.crash("n0")
    cluster.restart("n0")
    cluster.heal()
    cluster.forget_leader()
    cluster.campaign("n1")
    cluster.stabilize()
    assert cluster["n1"].state.role is not Role.LEADER  # n0 has more than n1
    cluster.forget_leader()
    cluster.tick("n0", 41)
    cluster.stabilize()
    settle(cluster)
    assert cluster.leader() == "n1"
    assert voters(cluster, "n1") == ["n1"]


def test_server_takes_entries_from_a_leader_it_does_not_know():
    """4.1: whoever leads was elected; the receiver's configuration may be an old one."""
    cluster = elected()
    cluster.step(Append("n9", "n1", 5, -1, 0, -1, None))
    assert cluster["n1"].state.leader_id == "n9"


def test_server_votes_for_a_candidate_it_does_not_know():
    """4.1: a candidate may be a member that the voter has not heard of yet."""
    cluster = elected()
    cluster.forget_leader()
    cluster.step(VoteRequest("n9", "n1", 5, 9, 1))
    assert sent(cluster, VoteReply) == [VoteReply("n1", "n9", 5, granted=True)]


def test_acknowledgement_of_a_server_that_is_no_member_is_not_counted():
    cluster = elected()
    cluster.change("n0", REMOVE, "n2")
    cluster.stabilize()
    cluster.isolate("n1")
    cluster.propose("n0")
    last = cluster["n0"].state.log.last_index
    cluster.step(AppendReply("n2", "n0", 1, last))
    cluster.step(AppendReply("n9", "n0", 1, last))
    assert cluster["n0"].state.log.commit_index == last - 1


def test_replacement_is_add_promote_remove():
    cluster, learner = with_learner()
    assert cluster.change("n0", PROMOTE, learner) is None
    settle(cluster)
    assert cluster.change("n0", REMOVE, "n1") is None
    settle(cluster)
    assert voters(cluster, learner) == ["n0", "n2", learner]
    cluster.crash("n1")
    cluster.crash("n0")
    cluster.elect(learner)
    cluster.propose(learner, b"new")
    cluster.stabilize()
    assert cluster.committed[-1][1] == b"new"


# Lost directories


def wiped(size=3, node="n2"):
    cluster = elected(size)
    cluster.propose("n0", b"kept")
    cluster.stabilize()
    cluster.wipe(node)
    cluster.restart(node)
    return cluster


def test_fresh_replica_votes_for_no_candidate_that_has_a_log():
    cluster = wiped()
    cluster.step(PreVoteRequest("n1", "n2", 5, 1, 1))
    cluster.step(VoteRequest("n1", "n2", 5, 1, 1))
    granted = [m.granted for m in sent(cluster, PreVoteReply) + sent(cluster, VoteReply)]
    assert granted == [False, False]
    assert cluster["n2"].state.fresh


def test_new_group_elects_its_first_leader_with_a_bare_majority():
    cluster = Cluster(3, is_new=True)
    cluster.crash("n2")
    cluster.elect("n0")
    assert len(cluster.committed) == 1
    assert not cluster["n0"].state.fresh
    assert not cluster["n1"].state.fresh


def test_founder_that_fell_back_can_be_elected_although_it_has_a_log():
    """It took part in the first election; its vote is on disk, so it is fresh no more."""
    cluster = Cluster(3, is_new=True)
    cluster.crash("n2")
    cluster.campaign("n0")
    while cluster["n0"].state.role is not Role.LEADER:
        cluster.deliver()
    cluster.network.clear()
    cluster.crash("n0")
    cluster.restart("n0")
    cluster.elect("n0")
    assert len(cluster.committed) == 2


def test_fresh_replica_does_not_campaign_once_it_has_entries():
    cluster = wiped()
    cluster.tick("n0", 4)
    cluster.deliver()
    while cluster.network and not cluster.log("n2"):
        cluster.deliver()
    cluster.network.clear()
    assert cluster["n2"].state.fresh
    cluster.forget_leader()
    cluster.tick("n2", 200)
    assert not sent(cluster, PreVoteRequest)


def test_fresh_replica_is_not_counted_for_a_commit():
    cluster = wiped()
    cluster.crash("n1")
    cluster.propose("n0", b"not committed")
    settle(cluster, 10)
    assert cluster.log("n2") == cluster.log("n0")
    assert cluster.log("n2")[2][1] == b"not committed"
    assert cluster["n0"].state.log.commit_index == 1


def test_fresh_replica_does_not_confirm_that_a_leader_still_leads():
    """Neither a read, nor its leadership: its lost vote may have elected another leader."""
    cluster = wiped()
    cluster.tick("n0", 4)
    cluster.stabilize()
    cluster.crash("n1")
    cluster.do("n0", lambda raft: raft.read_index())
    cluster.stabilize()
    assert cluster["n0"].state.progress["n2"].contact_tick == cluster["n0"].state.tick
    assert cluster["n0"].state.reads.round is not None
    cluster.tick("n0", 25)
    assert cluster["n0"].state.role is not Role.LEADER


def test_fresh_replica_rejoins_behind_a_barrier_that_the_others_committed():
    cluster = wiped()
    settle(cluster, 30)
    state = cluster["n2"].state
    assert not state.fresh
    assert state.voted_for == "n0"
    assert cluster.replicas["n2"].state_file.saved == HardState(1, "n0")
    assert not cluster["n0"].state.rejoining
    assert [body for _, body in cluster.log("n2")] == [b"noop", b"kept", b"noop"]
    cluster.crash("n1")
    cluster.propose("n0", b"counted")
    cluster.stabilize()
    assert cluster.committed[-1][1] == b"counted"


def test_barrier_is_an_entry_of_a_client_where_clients_append():
    cluster = wiped()
    cluster.tick("n0", 4)
    while "n2" not in cluster["n0"].state.rejoining:
        cluster.deliver()
    cluster.propose("n0", b"traffic")
    settle(cluster, 30)
    assert not cluster["n2"].state.fresh
    assert [body for _, body in cluster.log("n2")] == [b"noop", b"kept", b"traffic"]


def test_replica_wiped_twice_waits_for_a_second_barrier():
    cluster = wiped()
    settle(cluster, 4)
    cluster.wipe("n2")
    cluster.restart("n2")
    settle(cluster, 30)
    assert not cluster["n2"].state.fresh
    assert cluster.log("n2") == cluster.log("n0")
    rejoined = [event for event in cluster.replicas["n0"].events if event.kind.value == "fresh"]
    assert len(rejoined) == 2


def test_rejoin_of_another_life_is_ignored():
    cluster = wiped()
    cluster.step(Heartbeat("n0", "n2", 1, -1, 1))
    cluster.step(RejoinGrant("n0", "n2", 1, 99))
    assert cluster["n2"].state.fresh


def test_acknowledgements_of_a_lost_directory_count_no_more():
    cluster = elected()
    cluster.isolate("n1")
    cluster.cut.add(("n0", "n2"))
    cluster.wipe("n2")
    cluster.restart("n2")
    cluster.heal()
    cluster.tick("n0", 4)
    while "n2" not in cluster["n0"].state.rejoining:
        cluster.deliver()
    assert cluster["n0"].state.progress["n2"].match_index <= cluster["n2"].state.log.last_index

"""Figure 3 of the Raft paper: the five properties, each by itself, over runs with random trouble.

`Cluster.check` asserts all of them after every step; here they are told apart and read from what is
left behind: events, logs, what was applied.
"""

from itertools import combinations

import pytest

from dledger.core.model import Role
from dledger.core.ready import EventKind
from tests.unit.dledger.trouble import run_trouble

SEEDS = range(500, 516)


@pytest.fixture(scope="module")
def clusters():
    return [run_trouble(seed) for seed in SEEDS]


def events(cluster, kind):
    return [
        (node_id, event)
        for node_id, replica in cluster.replicas.items()
        for event in replica.events
        if event.kind is kind
    ]


def test_election_safety(clusters):
    """Figure 3: at most one leader can be elected in a given term (5.2)."""
    elections = 0
    for cluster in clusters:
        leaders = {}
        for node_id, event in events(cluster, EventKind.ROLE):
            if event.role is Role.LEADER:
                elections += 1
                assert leaders.setdefault(event.term, node_id) == node_id
    assert elections > len(SEEDS), "the runs must elect"


def test_leader_append_only(clusters):
    """Figure 3: a leader never overwrites or deletes entries in its log (5.3)."""
    cuts = 0
    for cluster in clusters:
        for _, event in events(cluster, EventKind.TRUNCATE):
            cuts += 1
            assert event.role is Role.FOLLOWER
        for (node_id, term), log in cluster.leader_logs.items():
            if cluster.replicas[node_id].raft is not None:
                state = cluster[node_id].state
                if (state.role, state.term) == (Role.LEADER, term):
                    assert cluster.log(node_id)[: len(log)] == log
    assert cuts > 0, "the runs must make followers cut"


def test_log_matching(clusters):
    """Figure 3: same index and term in two logs: identical in all entries up to there (5.3)."""
    for cluster in clusters:
        for one, other in combinations(cluster.ids, 2):
            pairs = list(zip(cluster.log(one), cluster.log(other), strict=False))
            equal = [index for index, (a, b) in enumerate(pairs) if a[0] == b[0]]
            for a, b in pairs[: max(equal, default=-1) + 1]:
                assert a == b


def test_leader_completeness(clusters):
    """Figure 3: what is committed in a term is in the logs of the leaders of higher terms (5.4)."""
    compared = 0
    for cluster in clusters:
        for (_, term), log in cluster.leader_logs.items():
            for index, entry in enumerate(cluster.committed):
                if cluster.commit_terms[index] < term:
                    compared += 1
                    assert log[index] == entry
    assert compared > 50, "the runs must commit, and then elect"


def test_state_machine_safety(clusters):
    """Figure 3: no other server ever applies a different entry for the same index (5.4.3)."""
    applied = 0
    for cluster in clusters:
        for node_id in cluster.up:
            last = cluster.replicas[node_id].applied
            applied += last + 1
            assert cluster.log(node_id)[: last + 1] == cluster.committed[: last + 1]
    assert applied > 50, "the runs must apply"

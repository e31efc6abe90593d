"""Planted bugs in cores and drivers over memory: each must be caught by the checks of a cluster.

Most are caught by random trouble within a few seeds; some need a schedule of their own, one that
of the paper's Figure 8. The same run passes without the bug: it is the bug that is caught. The bugs
that need disks, messages or clients are the simulator's to find (docs/simulation.md).
"""

import pytest

from dledger.core import replication
from dledger.core.messages import Append, PreVoteReply, VoteReply
from mutants.patches import ALL, BY_TESTS
from mutants.planting import planted
from tests.golden.datadriven import parse_file, parse_line
from tests.golden.test_raft import TESTDATA, Story
from tests.unit.dledger.cluster import Cluster, MemoryStateFile
from tests.unit.dledger.trouble import run_trouble

SEEDS = range(300)
BY_TROUBLE = (
    "vote-given-twice", "candidate-log-not-compared", "no-truncate-on-conflict",
    "no-consistency-check", "one-short-of-a-majority", "heartbeat-commits-unmatched",
    "commit-index-overwritten", "reply-before-sync", "leader-counts-itself-unsynced",
)  # fmt: skip


def find(seeds=SEEDS):
    """The first seed whose run fails, and what failed."""
    for seed in seeds:
        try:
            run_trouble(seed)
        except AssertionError as error:
            return seed, str(error)
    return None


def test_sound_build_survives():
    assert find(range(40)) is None


@pytest.mark.parametrize("name", BY_TROUBLE)
def test_planted_bug_is_caught(name):
    with planted(ALL[name]):
        found = find()
    assert found is not None, f"{name}: not caught in {len(SEEDS)} runs"
    run_trouble(found[0])


@pytest.mark.parametrize(
    ("owner", "method", "wrong"),
    [
        (MemoryStateFile, "save", lambda self, state: None),
        (replication, "reject_append", lambda state, append: replication.acknowledge(
            state, append.prev_index)),
    ],
    ids=["forgets its vote", "acknowledges what does not match"],
)  # fmt: skip
def test_bug_of_a_replica_over_memory_is_caught(owner, method, wrong, monkeypatch):
    monkeypatch.setattr(owner, method, wrong)
    found = find()
    assert found is not None
    monkeypatch.undo()
    run_trouble(found[0])


def repeat_votes():
    """Two candidates of one term, each with its own vote and one other, twice."""
    cluster = Cluster(5)
    for candidate, voter in (("n0", "n1"), ("n4", "n3")):
        cluster.campaign(candidate)
        for friend in ("n1", "n2", "n3"):
            cluster.step(PreVoteReply(friend, candidate, 1, granted=True))
        for _ in range(2):
            cluster.step(VoteReply(voter, candidate, 1, granted=True))


def repeat_append():
    """An append that arrives again after the next one was acknowledged, and committed."""
    cluster = Cluster(3)
    cluster.elect("n0")
    cluster.isolate("n2")
    cluster.propose("n0")
    late = cluster.network[0]
    cluster.propose("n0")
    cluster.stabilize()
    assert len(cluster.committed) == 3
    cluster.step(late)
    cluster.crash("n0")
    cluster.heal()
    cluster.elect("n1")


def hear_commit_index_beyond_match():
    """A deposed leader with an entry of its own hears how far its successor has committed."""
    cluster = Cluster(3)
    cluster.elect("n0")
    cluster.isolate("n0")
    cluster.propose("n0")
    cluster.elect("n1")
    cluster.propose("n1")
    cluster.stabilize()
    cluster.step(Append("n1", "n0", 2, 0, 1, 2, None))


def tell_figure_8():
    teller = Story()
    for block in parse_file((TESTDATA / "figure_8.txt").read_text()):
        teller.run(parse_line(block.line))


@pytest.mark.parametrize(
    ("name", "story", "match"),
    [
        ("commit-beyond-end", hear_commit_index_beyond_match, "State Machine Safety"),
        ("votes-counted-not-voters", repeat_votes, "Election Safety"),
        (BY_TESTS["equal-tail-deleted"].name, repeat_append, "Leader Completeness"),
        ("old-term-commit", tell_figure_8, "State Machine Safety|Leader Completeness"),
    ],
)
def test_planted_bug_is_caught_by_its_story(name, story, match):
    story()
    with planted(ALL[name]), pytest.raises(AssertionError, match=match):
        story()

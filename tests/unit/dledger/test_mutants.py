"""Planted bugs: each breaks one rule of Raft, and each must be caught by the checks of a cluster.

Most are caught by random trouble within a few seeds; some need a schedule of their own, one that
of the paper's Figure 8. The same run passes without the bug: it is the bug that is caught.
"""

import pytest

from dledger.core import election, replication
from dledger.core.log import RaftLog
from dledger.core.messages import Append, PreVoteReply, VoteReply
from dledger.core.model import Role
from dledger.core.quorum import majority_index
from dledger.driver import Driver
from tests.golden.datadriven import parse_file, parse_line
from tests.golden.test_raft import TESTDATA, Story
from tests.unit.dledger.cluster import Cluster, MemoryStateFile
from tests.unit.dledger.trouble import run_trouble

SEEDS = range(300)


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


def commit_old_term(state):
    log = state.log
    matches = [progress.match_index for progress in state.progress.values()]
    log.commit_index = max(log.commit_index, majority_index([*matches, log.persisted_index]))


def vote_twice(state, request):
    granted = state.log.is_up_to_date(request.last_index, request.last_term)
    if granted:
        state.voted_for = request.sender
    state.replies.append(VoteReply(state.node_id, request.sender, state.term, granted))


def count_votes(state, voter, *, granted):
    state.votes[f"{voter} {len(state.votes)}"] = granted
    if sum(state.votes.values()) >= state.quorum:
        if state.role is Role.PRE_CANDIDATE:
            election.become_candidate(state)
        elif state.role is Role.CANDIDATE:
            election.become_leader(state)


def no_truncation(self, span):
    return None if span.last_index <= self.last_index else self.last_index + 1


def commit_beyond_match(state, append):
    on_append(state, append)
    if state.role is Role.FOLLOWER and append.term == state.term:
        state.log.commit_index = max(
            state.log.commit_index, min(append.commit_index, state.log.last_index)
        )


on_append = replication.on_append
init_driver = Driver.__init__


def init_driver_as_async(self, *args, **options):
    init_driver(self, *args, **options)
    self._is_sync = False


MUTANTS = {
    "votes twice in a term": (election, "on_vote_request", vote_twice),
    "forgets its vote": (MemoryStateFile, "save", lambda self, state: None),
    "votes for any log": (RaftLog, "is_up_to_date", lambda self, index, term: True),
    "keeps conflicting entries": (RaftLog, "find_conflict", no_truncation),
    "a minority commits": (replication, "majority_index", max),
    "acknowledges before its disk has it": (Driver, "__init__", init_driver_as_async),
    "acknowledges what does not match": (
        replication, "reject_append", lambda state, append: replication.acknowledge(
            state, append.prev_index)),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_planted_bug_is_caught(name, monkeypatch):
    monkeypatch.setattr(*MUTANTS[name])
    found = find()
    assert found is not None, f"{name}: not caught in {len(SEEDS)} runs"
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


def test_committing_what_is_not_known_to_match_is_caught(monkeypatch):
    hear_commit_index_beyond_match()
    monkeypatch.setattr(replication, "on_append", commit_beyond_match)
    with pytest.raises(AssertionError, match="State Machine Safety"):
        hear_commit_index_beyond_match()


def test_counting_votes_instead_of_voters_is_caught(monkeypatch):
    repeat_votes()
    monkeypatch.setattr(election, "count_vote", count_votes)
    with pytest.raises(AssertionError, match="Election Safety"):
        repeat_votes()


def test_cutting_an_equal_tail_is_caught(monkeypatch):
    repeat_append()
    monkeypatch.setattr(RaftLog, "find_conflict", lambda self, span: span.first_index)
    with pytest.raises(AssertionError, match="Leader Completeness"):
        repeat_append()


def tell(story):
    teller = Story()
    for block in parse_file((TESTDATA / story).read_text()):
        teller.run(parse_line(block.line))


def test_committing_entries_of_earlier_terms_by_counting_is_caught(monkeypatch):
    tell("figure_8.txt")
    monkeypatch.setattr(replication, "maybe_commit", commit_old_term)
    with pytest.raises(AssertionError, match=r"State Machine Safety|Leader Completeness"):
        tell("figure_8.txt")

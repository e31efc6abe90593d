"""Which entry begins at a place is told of the log as it is, also where a new leader cut it off."""

from dledger.replicated_log import ReplicatedLog
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.store.fakes import FakeNode


def append(node, *sizes):
    """Append entries of so many bytes."""
    for size in sizes:
        node.add(node.end, node.term, bytes(size - ReplicatedLog.header_bytes))


def asked_before_and_after_a_cut():
    """Which entry ends where two long ones did, once three shorter ones took their place."""
    node = FakeNode()
    log = ReplicatedLog(node)
    append(node, 100, 300, 300)
    node.commit_index = 0
    assert log.position_after(2) == 700
    node.truncate(1)
    append(node, 200, 200, 200, 100)
    node.commit_index = 4
    assert node.position_after(3) == 700
    return log.index_before(700), log.feed.following(700)


def test_a_place_that_was_not_committed_is_looked_up_again():
    assert asked_before_and_after_a_cut() == (3, 700)
    with planted(BY_TESTS["place-known-of-what-may-be-cut"]):
        assert asked_before_and_after_a_cut() == (2, 500)

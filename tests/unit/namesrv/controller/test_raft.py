"""PySyncObj as the controllers' Raft: what was decided survives kills, cuts and losses of power."""

import pytest

from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv.controller.journal import to_entry, to_raw
from namesrv.controller.raft import from_library, to_library
from namesrv.controller.wire import (
    Append,
    AskVote,
    Beat,
    Entry,
    GiveVote,
    Install,
    NextIndex,
)
from sim.inode import PowerLossMode
from tests.unit.namesrv.controller.raft_world import World, campaigns, command

SEEDS = 15


def test_what_is_decided_is_kept(monkeypatch):
    assert campaigns(SEEDS, monkeypatch) > 10 * SEEDS


@pytest.mark.parametrize("name", ["controller-entry-not-synced", "controller-vote-not-kept"])
def test_the_same_groups_lose_decisions_by_a_planted_bug(monkeypatch, name):
    with planted(BY_TESTS[name]), pytest.raises((AssertionError, FatalError)):
        campaigns(8 * SEEDS, monkeypatch)


@pytest.mark.parametrize(
    "message",
    [
        AskVote(3, 7, 2), GiveVote(3), Beat(3, 6), NextIndex(3, 8, False, True),
        Append(3, 6, 5, 2, (Entry(6, 2, None), Entry(7, 3, b"x"))), Append(3, 6, 5, 2),
        Install(3, 6, b"data", True, False), Install(3, 6, b"", False, True),
    ],
)  # fmt: skip
def test_messages_are_the_same_as_the_librarys(message):
    assert from_library(to_library(message), 3) == message


def test_an_entry_is_what_the_library_makes_of_a_command(monkeypatch):
    world = World(1, monkeypatch)
    leader = world.settle()
    number = world.propose()
    world.turn(0.02)
    raw = leader.journal[-1]
    assert to_entry(raw).payload == command(number)
    assert to_raw(to_entry(raw)) == raw


def test_a_leader_without_a_majority_leads_no_more(monkeypatch):
    world = World(2, monkeypatch)
    leader = world.settle()
    for other in world.others(leader.own):
        world.cut.add(frozenset((leader.own, other)))
        world.disconnect(leader.own, other)
    assert not leader.leads
    world.propose()
    for _ in range(150):
        world.turn(0.02)
    assert not world.decided
    assert not leader._isLeader()
    assert world.leader() is not leader


def test_a_leader_answers_once_it_has_applied_all_that_was_decided_before_it(monkeypatch):
    world = World(3, monkeypatch)
    first = world.settle()
    for _ in range(5):
        world.propose()
        world.turn(0.06)
    for _ in range(10):
        world.turn(0.02)
    assert world.decided == [1, 2, 3, 4, 5]
    world.kill(first.own, None)
    for _ in range(200):
        world.turn(0.02)
        found = world.leader()
        assert found is None or found.machine.applied[:5] == [1, 2, 3, 4, 5]
    assert world.leader() is not None


def settled(monkeypatch, seed=4):
    """Return a world with a leader, a follower of it, and three decisions."""
    world = World(seed, monkeypatch)
    leader = world.settle()
    for _ in range(3):
        world.propose()
        for _ in range(10):
            world.turn(0.02)
    follower = world.nodes[world.others(leader.own)[0]]
    assert follower.journal.last == leader.journal.last
    return world, leader, follower


def test_a_message_that_was_overtaken_cuts_nothing(monkeypatch):
    def overtaken():
        _, leader, follower = settled(monkeypatch)
        index, term = follower.journal.last
        late = Append(term, index, index - 2, term, (to_entry(follower.journal[-2]),))
        follower.receive(leader.own, late)
        return follower.journal.last == (index, term)

    assert overtaken()
    with planted(BY_TESTS["controller-cut-by-a-late-message"]):
        assert not overtaken()


def test_an_answer_of_an_earlier_term_is_not_counted(monkeypatch):
    def counted():
        world, leader, follower = settled(monkeypatch, seed=5)
        world.kill(world.others(leader.own)[1], None)
        world.disconnect(leader.own, follower.own)
        number = world.propose()
        world.turn(0.02)
        index, term = leader.journal.last
        leader.receive(follower.own, NextIndex(term - 1, index + 1, False, True))
        world.turn(0.02)
        return number in world.decided

    assert not counted()
    with planted(BY_TESTS["controller-counts-old-answers"]):
        assert counted()


def test_a_snapshot_that_is_none_replaces_nothing(monkeypatch):
    _, leader, follower = settled(monkeypatch)
    before = list(follower.journal)
    follower.receive(leader.own, Install(leader.term, 9, b"LMQC no snapshot", True, False))
    follower.receive(leader.own, Install(leader.term, 9, b"", False, True))
    assert list(follower.journal) == before


def test_strangers_are_not_heard(monkeypatch):
    _, leader, _ = settled(monkeypatch)
    term = leader.term
    leader.receive("stranger", AskVote(term + 5, 100, term + 4))
    assert leader.term == term


def test_a_group_that_loses_its_power_as_a_whole_keeps_its_decisions(monkeypatch):
    world, _, _ = settled(monkeypatch)
    for mode in PowerLossMode:
        for name in world.names:
            world.kill(name, mode)
        world.settle()
        world.check()
        assert world.nodes["n0"].machine.applied[:3] == [1, 2, 3]

"""PySyncObj as the controllers' Raft: what was decided survives kills, cuts and losses of power."""

import pysyncobj.syncobj
import pytest

from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv.controller.journal import to_entry, to_raw
from namesrv.controller.limits import AHEAD_MAX
from namesrv.controller.prevote import Poll
from namesrv.controller.raft import from_library, to_library
from namesrv.controller.snapshot import encode_snapshot
from namesrv.controller.wire import (
    Append,
    AskPreVote,
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
        AskVote(3, 7, 2), GiveVote(3), Beat(3, 0), NextIndex(3, 8, False, True),
        Append(3, 6, 5, 2, (Entry(6, 2, None), Entry(7, 3, b"x"))), Append(3, 6, 5, 2),
        Install(3, 0, b"data", True, False), Install(3, 0, b"", False, True),
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


def cut_off(world, name, seconds=5.0):
    """Cut one off from all others for so long, and heal that."""
    for other in world.others(name):
        world.cut.add(frozenset((name, other)))
        world.disconnect(name, other)
    for _ in range(int(seconds / 0.02)):
        world.turn(0.02)
    world.settle(3.0)


def test_who_was_cut_off_comes_back_without_an_election(monkeypatch):
    def leader_stays(seed):
        world, leader, follower = settled(monkeypatch, seed)
        term = leader.term
        cut_off(world, follower.own)
        return leader.leads and leader.term == follower.term == term

    assert all(map(leader_stays, range(4)))
    with planted(BY_TESTS["controller-asks-nobody-first"]):
        assert not all(map(leader_stays, range(4)))


def test_who_alone_hears_no_leader_is_not_elected(monkeypatch):
    def leader_stays(seed):
        world, leader, follower = settled(monkeypatch, seed)
        pair = frozenset((leader.own, follower.own))
        world.cut.add(pair)
        world.disconnect(leader.own, follower.own)
        for _ in range(250):
            world.turn(0.02)
        return leader.leads and follower.term == leader.term

    assert all(map(leader_stays, range(4)))
    with planted(BY_TESTS["controller-votes-beside-a-leader"]):
        assert not all(map(leader_stays, range(4)))


def test_who_has_a_later_term_is_not_left_behind(monkeypatch):
    """Its questions for votes were lost, or it asked for none before, as earlier versions did."""

    def follows(seed):
        world, leader, follower = settled(monkeypatch, seed)
        follower._SyncObj__setCurrentTerm(leader.term + 50, follower.own)
        leader = world.settle(3.0)
        number = world.propose()
        for _ in range(20):
            world.turn(0.02)
        return number in world.decided and follower.journal.last == leader.journal.last

    def leads_without_the_leader(seed):
        world, leader, follower = settled(monkeypatch, seed)
        world.kill(leader.own, None)
        follower._SyncObj__setCurrentTerm(leader.term + 50, follower.own)
        for _ in range(250):
            world.turn(0.02)
        return world.leader() is not None

    def all_is_well():
        return all(map(follows, range(4))) and all(map(leads_without_the_leader, range(4)))

    assert all_is_well()
    with planted(BY_TESTS["controller-left-behind-by-its-term"]):
        assert not any(map(follows, range(4)))


def test_a_shorter_log_gets_no_pre_vote(monkeypatch):
    world, leader, follower = settled(monkeypatch)
    third = world.nodes[world.others(leader.own)[1]]
    world.now += 2.0  # nobody has heard anybody
    index, term = follower.journal.last
    ends = ((index, term), (index - 1, term), (index + 9, term - 1), (0, term + 1))

    def asked():
        return [third._would_vote(AskPreVote(term, 1, at, of)) for at, of in ends]

    assert asked() == [True, False, False, True]
    with planted(BY_TESTS["controller-votes-for-the-longer-log"]):
        assert asked() == [True, False, True, False]


def test_an_answer_to_an_earlier_question_is_not_counted():
    poll = Poll(3)
    first = poll.begin()
    second = poll.begin()
    assert not poll.take("n1", first)
    assert poll.take("n1", second)
    assert not Poll(5).take("n1", 0), "two of five"


def test_one_poll_begins_one_election():
    poll = Poll(3)
    number = poll.begin()
    assert poll.take("n1", number)
    assert not poll.take("n2", number)


def test_an_election_that_was_due_when_the_links_went_is_asked_for_anew(monkeypatch):
    world, leader, follower = settled(monkeypatch)
    term = leader.term
    for other in world.others(follower.own):
        world.cut.add(frozenset((follower.own, other)))
        world.disconnect(follower.own, other)
    follower._SyncObj__raftElectionDeadline = 0  # a majority had just said that it would vote
    world.turn(0.02)
    world.settle(3.0)
    assert leader.leads
    assert follower.term == leader.term == term


def test_a_snapshot_that_is_none_replaces_nothing(monkeypatch):
    _, leader, follower = settled(monkeypatch)
    before = list(follower.journal)
    follower.receive(leader.own, Install(leader.term, 9, b"LMQC no snapshot", True, False))
    follower.receive(leader.own, Install(leader.term, 9, b"", False, True))
    assert list(follower.journal) == before


def test_a_term_that_no_peer_can_have_is_not_taken(monkeypatch):
    def taken(ahead):
        _, leader, follower = settled(monkeypatch)
        begun = follower._term_max - AHEAD_MAX
        assert begun == 0, "that of its start"
        follower.receive(leader.own, AskVote(begun + ahead, 99, begun + ahead))
        return follower.term > leader.term

    assert taken(AHEAD_MAX)
    assert not taken(AHEAD_MAX + 1)
    with planted(BY_TESTS["controller-term-leaps-again-and-again"]):
        assert taken(AHEAD_MAX + 1)
    assert not taken(2**61)
    with planted(BY_TESTS["controller-takes-any-term"]):
        assert taken(2**61)


@pytest.mark.parametrize("wanted", [0, 1, 2**53])
def test_an_entry_that_cannot_be_is_wished_in_vain(monkeypatch, caplog, wanted):
    world, leader, follower = settled(monkeypatch)
    wish = NextIndex(leader.term, wanted, True, False)
    with planted(BY_TESTS["controller-grants-any-wish"]):  # a leader that took it would never end
        assert not leader._is_refused(follower.own, wish)
    assert leader._is_refused(follower.own, wish)
    leader.receive(follower.own, wish)
    world.settle(1.0)
    assert leader.leads
    assert "Traceback" not in caplog.text


def test_nobody_replaces_what_is_committed_and_who_tries_ends_nobody(monkeypatch, caplog):
    world, leader, follower = settled(monkeypatch)
    world.propose()
    world.settle(1.0)
    before, committed = list(follower.journal), follower.raftCommitIndex
    term = leader.term + 1
    other = Entry(committed, term, command(66))
    prev = follower.journal.term_of(committed - 1)
    for message in (
        Append(term - 2, committed, committed - 1, prev, (other,)),  # a leader of before
        Append(term, committed, committed - 1, prev, (other,)),
        Append(term, committed, committed, term, ()),
    ):
        follower.receive(leader.own, message)
        follower.turn()
    assert list(follower.journal) == before
    assert caplog.text.count("event=append_refused") == 1, "once"
    replaces = Append(term, committed, committed - 1, prev, (other,))
    with planted(BY_TESTS["controller-ends-for-other-entries"]), pytest.raises(FatalError):
        follower.receive(leader.own, replaces)


def test_a_command_of_a_newer_build_is_said_to_be_one(monkeypatch):
    _, leader, _ = settled(monkeypatch)
    with pytest.raises(FatalError, match=r"does not know \(version 9, .*the build that wrote"):
        leader.apply_command(b'{"version":9,"command":{}}', _doApply=True)


def with_a_tail(monkeypatch):
    """Return a former leader with an entry that nobody else has, and what its asker was told."""
    world, leader, _ = settled(monkeypatch)
    for other in world.others(leader.own):
        world.disconnect(leader.own, other)
    told = []
    leader.propose(command(99), lambda outcome, why: told.append((outcome, why)))
    leader.turn()
    return leader, world.others(leader.own)[0], told


def test_a_commit_counts_only_behind_a_comparison_of_the_logs(monkeypatch):
    def decided():
        old, peer, told = with_a_tail(monkeypatch)
        old.receive(peer, Beat(old.term + 1, old.journal.last[0]))
        old.turn()
        return 99 in old.machine.applied, told

    assert decided() == (False, [])
    with planted(BY_TESTS["controller-takes-a-commit-uncompared"]):
        is_applied, told = decided()
        assert is_applied
        assert told[0][0] is not None


def test_the_rest_of_a_snapshot_counts_only_behind_its_beginning(monkeypatch):
    old, peer, told = with_a_tail(monkeypatch)
    before, term = list(old.journal), old.term + 1
    entries = Entry(40, term, None), Entry(41, term, command(1))
    for message in (
        Install(term, 41, b"", False, True),
        Install(term, 41, b"LMQC no snapshot", True, False),
        Install(term, 41, encode_snapshot(*entries, {}), False, False),
        Install(term, 41, b"", False, True),
    ):
        assert old._is_refused(peer, message)
        old.receive(peer, message)
        old.turn()
    assert list(old.journal) == before
    assert not told


def test_a_snapshot_of_what_is_committed_is_not_taken(monkeypatch):
    _, leader, follower = settled(monkeypatch)
    index = follower.raftCommitIndex

    def is_late(last):
        entries = Entry(last - 1, 0, None), Entry(last, 0, None)
        data = encode_snapshot(*entries, {})
        return follower._is_refused(leader.own, Install(leader.term, last, data, True, False))

    assert [is_late(last) for last in (index - 1, index, index + 1)] == [True, True, False]


def test_a_snapshot_that_no_peer_can_have_is_not_taken(monkeypatch):
    _, leader, follower = settled(monkeypatch)
    first = follower._index_max - AHEAD_MAX
    assert first == 1, "that of its start"

    def is_refused(last):
        data = encode_snapshot(Entry(last - 1, 0, None), Entry(last, 0, None), {})
        return follower._is_refused(leader.own, Install(leader.term, last, data, True, False))

    assert [is_refused(first + ahead) for ahead in (AHEAD_MAX, AHEAD_MAX + 1)] == [False, True]
    own = follower.journal.last[0]
    with planted(BY_TESTS["controller-leaps-again-and-again"]):
        assert not is_refused(own + AHEAD_MAX)
    assert is_refused(own + AHEAD_MAX)
    with planted(BY_TESTS["controller-takes-any-place"]):
        assert not is_refused(own + AHEAD_MAX + 1)


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


def test_the_library_does_not_cry_wolf(caplog):
    """Entries come again, and are the same: it finds that logs may have diverged."""
    logger = pysyncobj.syncobj.logger
    logger.critical("truncating already-applied log entries from index %d (last: %d)", 3, 4)
    logger.critical("something else")
    assert [record.getMessage() for record in caplog.records] == ["something else"]

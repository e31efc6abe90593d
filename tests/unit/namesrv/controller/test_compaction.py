"""Snapshots of a controller: its log stays short, and who was away takes one over, checked."""

import random

import pytest

import namesrv.controller.raft
from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv.controller.commands import ApplyId, Register, encode_command
from namesrv.controller.machine import Machine
from tests.unit.namesrv.controller.raft_world import World, unpack

# PySyncObj leaves the snapshot that it has sent for the interpreter to close.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

SHORT = 16


class RealWorld(World):
    """Controllers over real files, with a machine that is their own."""

    def start(self, name):
        super().start(name)
        self.nodes[name].machine = Machine()

    def decide(self, number):
        """Have one command decided."""
        if number == 0:
            found = ApplyId(group="g", cluster="C", id=1, check_code="c")
        else:
            found = Register(group="g", cluster="C", id=1, address=f"h:{number}")
        outcomes = []

        def done(outcome, _why):
            outcomes.append(outcome)

        for _ in range(400):
            leader = self.leader()
            if leader is not None and not outcomes:
                leader.propose(encode_command(found), done)
            self.turn(0.06)
            if any(outcomes):
                return
            outcomes.clear()
        raise AssertionError(f"command {number} was not decided")

    def addresses(self):
        """Return the address that each controller has in its state."""
        return [
            self.nodes[name].machine.groups["g"].replicas[1].address
            for name in self.names
            if name in self.nodes
        ]


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(namesrv.controller.raft, "ENTRIES_MAX", SHORT)
    made = RealWorld(1, monkeypatch, str(tmp_path))
    made.settle()
    yield made
    for name in list(made.nodes):
        made.kill(name, None)


def test_a_log_stays_short_and_its_state_survives_a_restart_of_all(world):
    for number in range(3 * SHORT):
        world.decide(number)
    world.settle(1)
    assert {len(world.nodes[name].journal) <= 2 * SHORT for name in world.names} == {True}
    assert world.addresses() == [f"h:{3 * SHORT - 1}"] * 3
    for name in world.names:
        world.kill(name, None)
    world.settle()
    assert world.addresses() == [f"h:{3 * SHORT - 1}"] * 3


def test_who_was_away_for_longer_than_the_log_takes_a_snapshot(world):
    world.decide(0)
    leader = world.leader()
    away = world.others(leader.own)[0]
    world.kill(away, None)
    for number in range(1, 3 * SHORT):
        world.decide(number)
    assert leader.journal[0][1] > 2
    world.settle()
    assert world.addresses() == [f"h:{3 * SHORT - 1}"] * 3
    assert world.nodes[away].journal.last == world.leader().journal.last
    world.kill(away, None)
    world.settle()
    assert world.addresses() == [f"h:{3 * SHORT - 1}"] * 3


def deliver_slowly(world):
    """Deliver what waits, with a turn of whoever takes it after each message."""
    for (source, target), queue in sorted(world.queues.items()):
        while queue:
            world.nodes[target].receive(source, unpack(queue.pop(0)).message)
            world.nodes[target].turn()


def told_after_return(world):
    """Have a leader come back with a tail of its own; return what those were told who asked it."""
    world.decide(0)
    old = world.settle(3)
    for other in world.others(old.own):
        world.cut.add(frozenset((old.own, other)))
        world.disconnect(old.own, other)
    tail = encode_command(ApplyId(group="tail", cluster="C", id=1, check_code="c"))
    told = []
    for _ in range(SHORT):
        old.propose(tail, lambda outcome, _why: told.append(outcome))
    old.turn()
    for number in range(1, 3 * SHORT):
        world.decide(number)
    world.cut.clear()
    world.connect(old.own)
    for _ in range(20):
        world.turn(0.02, share=0)
        deliver_slowly(world)
    return [outcome for outcome in told if outcome is not None]


def test_a_snapshot_does_not_decide_what_its_leader_does_not_have(world):
    assert told_after_return(world) == []
    world.settle()
    assert [list(node.machine.groups) for node in world.nodes.values()] == [["g"]] * 3
    assert world.addresses() == [f"h:{3 * SHORT - 1}"] * 3


def test_a_planted_bug_decides_it(world):
    with planted(BY_TESTS["controller-takes-a-commit-uncompared"]):
        assert told_after_return(world)


@pytest.mark.parametrize("seed", range(2))
def test_kills_at_any_time_lose_nothing(world, seed):
    rng = random.Random(seed)
    for number in range(5 * SHORT):
        world.decide(number)
        if rng.random() < 0.15 and len(world.nodes) == 3:
            world.kill(rng.choice(world.names), None)
        elif rng.random() < 0.3:
            for name in world.names:
                if name not in world.nodes:
                    world.start(name)
    world.settle()
    assert world.addresses() == [f"h:{5 * SHORT - 1}"] * 3

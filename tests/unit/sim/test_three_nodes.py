"""The first world: production replicas in virtual time, from one seed, bit for bit."""

import gc
import os
import subprocess
import sys
import weakref

import pytest

from dledger.core.model import Role
from sim.rules import Action, FrameRule, peer_codes
from tests.architecture.tree import ROOT
from tests.unit.sim.three_nodes import NAMES, Group, run

ADDRESSES = [f"10.0.0.{number}" for number in (1, 2, 3)]


@pytest.fixture
def group():
    group = Group(7)
    yield group
    assert not group.loop.uncaught
    group.loop.close()


def isolate(group, name, *, whole=True):
    own = group.hosts[name].address
    for other in ADDRESSES:
        if other != own:
            group.loop.network.cut(own, other)
            if whole:
                group.loop.network.cut(other, own)


def test_a_group_elects_replicates_and_survives_the_death_of_its_leader():
    group = run(11)
    leader = group.elect()
    assert leader.term >= 2
    assert {node.commit_index for node in group.live()} == {leader.end_index}
    assert leader.commit_index > 85
    bodies = [group.bodies(node) for node in group.live()]
    assert bodies[0] == bodies[1] == bodies[2]
    assert not group.loop.uncaught
    group.loop.close()


def test_one_seed_is_one_run_and_another_is_another():
    digests = []
    for seed in (1, 1, 2):
        group = run(seed)
        digests.append(group.loop.trace.digest())
        group.loop.close()
    assert digests[0] == digests[1] != digests[2]


def test_the_order_of_hashes_has_no_influence():
    outputs = set()
    for hash_seed in ("0", "1", "4242"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.unit.sim.three_nodes", "5"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        # These members show each other no key, and say so; there is nothing else to say.
        said = done.stderr.splitlines()
        assert all(line.startswith("event=peers_not_authenticated ") for line in said), said
        outputs.add((done.stdout, done.stderr))
    assert len(outputs) == 1, outputs


def test_a_leader_cut_off_steps_down_and_comes_back_as_a_follower(group):
    old = group.elect()
    group.load(5)
    isolate(group, old.self_id)
    group.loop.run_for(3_000)
    assert old.role is not Role.LEADER
    leader = group.elect()
    assert leader is not old
    group.load(5)
    group.loop.network.heal_all()
    group.loop.run_for(5_000)
    assert {node.commit_index for node in group.live()} == {leader.end_index}
    assert group.loop.network.link(ADDRESSES[0], ADDRESSES[1]).chunks > 0


def test_a_paused_leader_is_replaced_and_learns_of_it(group):
    old = group.elect()
    group.loop.pause(group.hosts[old.self_id])
    group.loop.run_for(5_000)
    others = [node for node in group.live() if node is not old]
    assert any(node.is_leader for node in others)
    group.loop.resume(group.hosts[old.self_id])
    group.loop.run_for(1_000)
    assert not old.is_leader
    assert old.leader_id == group.elect().self_id


def test_replicas_take_messages_lost_doubled_late_and_replayed(group):
    network = group.loop.network
    group.elect()
    rules = [
        FrameRule(Action.DROP, probability=0.05),
        FrameRule(Action.DUPLICATE, probability=0.1),
        FrameRule(Action.DELAY, probability=0.1, delay_ms=(1, 150)),
        FrameRule(Action.REPLAY, codes=peer_codes("Append"), probability=0.1),
    ]
    for rule in rules:
        network.add_rule(rule)
    group.load(150)
    network.heal_all()
    group.loop.run_for(3_000)
    assert all(rule.applied for rule in rules)
    leader = group.elect()
    assert {node.commit_index for node in group.live()} == {leader.end_index}
    assert leader.end_index > 100


def test_a_spoilt_frame_ends_a_connection_and_nothing_else(group):
    group.elect()
    rule = FrameRule(Action.CORRUPT, codes=peer_codes("Append"), probability=0.2, limit=10)
    group.loop.network.add_rule(rule)
    taken = group.load(100)
    group.loop.network.heal_all()
    group.loop.run_for(3_000)
    assert rule.applied == 10
    leader = group.elect()
    assert leader.commit_index == leader.end_index > taken - 10
    assert all(group.hosts[name].alive for name in NAMES)


def test_nothing_is_left_of_a_closed_world():
    group = run(3)
    loop = weakref.ref(group.loop)
    group.loop.kill(group.hosts["n0"].process)
    group.loop.close()
    del group
    gc.collect()
    assert loop() is None


def test_an_idle_group_wakes_up_for_ticks_and_heartbeats_alone(group):
    leader = group.elect()
    group.loop.run_for(2_000)
    before = group.loop.events
    group.loop.run_for(10_000)
    config = leader.config
    ticks = 10_000 // config.tick_ms
    # The leader wakes up at every tick, who hears it at every second one.
    # A round: two heartbeats that arrive, two turns that answer, two answers, the leader's turn.
    rounds = ticks // config.heartbeat_ticks
    # Each tells each other one what its clock shows, which may cost a turn of its own.
    told = 6 * 10_000 // config.tell_clock_ms
    events = group.loop.events - before
    assert 2 * ticks + 7 * rounds + told <= events < 2.2 * ticks + 7.2 * rounds + 2 * told

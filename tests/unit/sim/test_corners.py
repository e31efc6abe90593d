"""Moments that are brought about: drawn in some plans, and a sound group stands them."""

import errno

from sim.faults.corners import ALONE_P, MEMBERS_P, with_corners
from sim.faults.plan import FaultKind, Options, Package
from sim.rng import SplitRng
from tests.unit.sim.fault_world import FaultWorld, event

SEEDS = 400


def drawn(on):
    return [with_corners(SplitRng(seed), [], Options(), on) for seed in range(SEEDS)]


def test_members_are_added_at_bad_moments_where_they_come_and_go():
    found = [events[0] for events in drawn((Package.MEMBERS,)) if events]
    assert abs(len(found) / SEEDS - MEMBERS_P) < 0.1
    assert {one.kind for one in found} == {FaultKind.ADD}
    ways = {tuple(sorted(one.params)) for one in found}
    assert ways == {("held_back",), ("no_room",), ("held_back", "no_room")}


def test_a_broker_alone_ends_while_its_disk_is_full():
    found = [events for events in drawn((Package.ALONE,)) if events]
    assert abs(len(found) / SEEDS - ALONE_P) < 0.1
    for full, ends in found:
        assert full.kind is FaultKind.DISK_FULL
        assert ends.kind in {FaultKind.CRASH, FaultKind.STOP}
        assert full.at_ms < ends.at_ms < full.end_ms


def test_other_plans_have_none():
    assert not any(drawn((Package.CRASH,)))


def test_what_there_was_stays_and_the_times_rise():
    others = [event("crash", at_ms=at) for at in (2_000, 9_000)]
    for seed in range(20):
        found = with_corners(SplitRng(seed), others, Options(), (Package.MEMBERS, Package.ALONE))
        assert [one for one in found if one in others] == others
        assert [one.at_ms for one in found] == sorted(one.at_ms for one in found)


def test_what_a_newcomer_is_sent_is_lost_until_the_order_ends():
    world = FaultWorld(event("add", held_back=1), spares=1)
    world.nemesis.start()
    world.run(1_500)
    (rule,) = world.network._rules
    assert rule.target == world.hosts["n3"].address
    world.run(3_000)
    assert not world.network._rules


def test_the_first_write_of_each_step_finds_no_room_and_the_next_one_does():
    world = FaultWorld(event("add", for_ms=3_000, no_room=1), spares=1)
    disk = world.hosts["n0"].disk
    node = world.node("n0")
    asked, refused = node.change_membership, []

    async def write(change):
        try:
            file.pwrite(0, [b"entry"])
        except OSError as error:
            refused.append((change.kind.value, error.errno))
            raise
        return await asked(change)

    node.change_membership = write
    disk.make_directories("/s/data")
    file = disk.open("/s/data/0", size=4096)
    world.nemesis.start()
    world.run(5_000)
    assert refused == [(kind, errno.ENOSPC) for kind in ("add_learner", "promote")]
    assert [one[0] for one in node.asked] == ["add_learner", "promote"]
    assert not disk.failures
    assert not disk.is_watched

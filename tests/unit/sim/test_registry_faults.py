"""Faults between brokers and name servers, and what meets a process after a clean stop."""

import pytest

from tests.unit.sim.fault_world import event


@pytest.mark.parametrize(
    ("side", "cut"), [("both", {"to", "from"}), ("to", {"to"}), ("from", {"from"})]
)
def test_a_broker_and_a_name_server_are_cut_off_for_a_while(make, side, cut):
    world = make(event("namesrv_cut", target="n1", side=side))
    for until_ms, expected in ((1_500, cut), (2_500, set())):
        world.run(until_ms)
        found = {
            name
            for name, pair in {"to": ("n1", "ns0"), "from": ("ns0", "n1")}.items()
            if world.is_cut(*pair)
        }
        assert found == expected
        assert not world.is_cut("n0", "ns0")


def test_a_cut_that_nothing_meets_has_no_effect(make):
    world = make(event("namesrv_cut", target="n1"))
    world.run(3_000)
    assert not world.nemesis.applied[0].effective


def test_a_delay_ends_with_its_fault(make):
    world = make(event("namesrv_delay", target="n1", base_ms=700))
    link = world.network.link(world.hosts["n1"].address, world.hosts["ns0"].address)
    usual = link.delay
    world.run(1_500)
    assert link.delay != usual
    world.run(2_500)
    assert link.delay == usual


@pytest.mark.parametrize("how", ["crash", "pause", "cut"])
def test_a_name_server_cannot_be_told_who_leads_after_a_kill(make, how):
    world = make(event("namesrv_turn", target="n0", how=how, after_ms=200, down_ms=400))
    server = world.hosts["ns0"]
    world.run(1_100)
    assert (world.hosts["n0"].alive, server.alive, server.stopped) == (False, True, False)
    world.run(1_400)
    told = server.alive, bool(server.stopped), world.is_cut("n1", "ns0")
    assert told == {
        "crash": (False, False, False), "pause": (True, True, False), "cut": (True, False, True)
    }[how]  # fmt: skip
    world.run(2_500)
    assert (world.hosts["n0"].alive, server.alive, bool(server.stopped)) == (True, True, False)
    assert not world.is_cut("n1", "ns0")


def test_nothing_of_it_comes_after_all_is_healed(make):
    world = make(event("namesrv_turn", target="n0", after_ms=900))
    world.run(1_500)
    world.nemesis.heal_all()
    world.run(4_000)
    assert world.hosts["ns0"].alive
    assert "end ns0" not in world.log


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ("crash", ["end n1", "start n1"] * 2),
        ("trim", ["end n1", "start n1", "compact n1", "end n1", "start n1"]),
        ("trim crash", ["end n1", "start n1", "compact n1", "end n1", "start n1"]),
    ],
)
def test_a_clean_stop_is_followed_by_what_was_drawn(make, then, expected):
    world = make(event("stop_and", target="n1", for_ms=3_000, then=then, down_ms=50, after_ms=50))
    world.run(5_000)
    assert world.log == expected
    assert world.hosts["n1"].alive


def test_rounds_end_with_the_fault(make):
    world = make(
        event("stop_and", target="n1", for_ms=600, then="crash", down_ms=100, after_ms=100, count=9)
    )
    world.run(6_000)
    assert world.log.count("end n1") <= 4
    assert world.hosts["n1"].alive

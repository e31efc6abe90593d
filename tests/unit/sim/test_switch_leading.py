"""Of controllers that nothing hinders one leads; who is hindered is not judged."""

from types import SimpleNamespace

import pytest

from sim.oracles.base import Violation
from sim.switch.leading import ELECTED_MS, NS_PER_MS, Leading
from sim.switch.world import SwitchWorld

NAMES = ("ns0", "ns1", "ns2")
STEP_MS = 250


class World:
    """Three controllers, nobody of whom leads."""

    def __init__(self):
        self.loop = SimpleNamespace(now_ns=1_000 * NS_PER_MS)
        self.hosts = {name: SimpleNamespace(alive=True, paused=False) for name in NAMES}
        self.record = SimpleNamespace(count=lambda _name: None)
        self.leader = None
        self.touched = dict.fromkeys(NAMES, 0)
        self.leading = Leading(self, self.touched_ms)

    def namesrvs(self):
        return NAMES

    def controller(self):
        return self.leader

    def touched_ms(self, names, _now_ms):
        return max(self.touched[name] for name in names)

    @property
    def now_ms(self):
        return self.loop.now_ns // NS_PER_MS

    def go_on(self, for_ms=ELECTED_MS, *, each=lambda: None):
        """Let time pass and look."""
        for _ in range(0, for_ms, STEP_MS):
            each()
            self.leading.look()
            self.loop.now_ns += STEP_MS * NS_PER_MS


def judge(world, **options):
    """Return what is said when it has gone on so long that somebody has to lead."""
    with pytest.raises(Violation) as told:
        world.go_on(3 * ELECTED_MS, **options)
    return told.value


def test_all_that_run_have_one_that_leads_in_time():
    world = World()
    world.go_on()
    world.leader = "ns1"
    world.go_on()
    world.leader = None
    world.go_on()  # the next one has its time as well
    assert "ns0, ns1, ns2" in str(judge(World()))


@pytest.mark.parametrize("how", [{"alive": False}, {"paused": True}], ids=["down", "still"])
def test_two_of_three_have_one_while_the_third_is_gone(how):
    world = World()
    vars(world.hosts["ns0"]).update(how)
    world.touched["ns0"] = 1_000_000  # its own fault is no excuse of the others
    told = judge(world)
    assert "of ns1, ns2, which" in str(told)
    assert told.evidence["node"] == "ns1"


def test_of_two_that_lead_the_one_of_the_later_term_counts():
    """A leader that is cut off goes on for a while and hears nothing of its successor."""

    def node(term, *, leads):
        return SimpleNamespace(leads=leads, raft=SimpleNamespace(term=term))

    def leader(*nodes):
        by_name = dict(zip(NAMES, nodes, strict=True))
        world = SimpleNamespace(namesrvs=lambda: NAMES, _node=by_name.__getitem__)
        return SwitchWorld.controller(world)

    assert leader(node(1, leads=True), node(2, leads=True), None) == "ns1"
    assert leader(node(1, leads=True), node(2, leads=False), None) == "ns0"
    assert leader(node(1, leads=False), None, None) is None


def test_fewer_than_a_majority_are_not_judged():
    for names in (NAMES[:1], NAMES[:2]):
        world = World()
        world.namesrvs = lambda names=names: names
        world.hosts["ns0"].alive = False
        world.go_on(3 * ELECTED_MS)


def test_who_is_alone_elects_nobody():
    world = World()
    world.hosts["ns0"].alive, world.hosts["ns2"].paused = False, True
    world.go_on(3 * ELECTED_MS)


def test_a_fault_of_one_of_them_gives_them_time_again():
    world = World()
    world.hosts["ns2"].alive = False

    def disturb():
        if world.now_ms % 2_000 == 0:
            world.touched["ns1"] = world.now_ms

    world.go_on(3 * ELECTED_MS, each=disturb)
    judge(world)


def test_a_third_that_says_something_may_be_why():
    """It may be cut off from one of them alone: only without any fault all three are judged."""
    world = World()

    def cut_off():
        world.touched["ns0"] = world.now_ms

    world.go_on(3 * ELECTED_MS, each=cut_off)

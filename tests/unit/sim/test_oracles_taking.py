"""A leader that nothing hinders sends no client away; what clients are told of can be found."""

from types import SimpleNamespace

import pytest

from dledger.core import transfer
from dledger.core.model import Role
from mutants.patches import MUTANTS
from mutants.planting import planted
from sim.faults.plan import Options, Plan
from sim.health import CALM_NS, NS_PER_S, Health
from sim.layout import GROUP
from sim.oracles.base import Violation
from sim.oracles.taking import FREE_TICKS, NAME, Taking

TIMEOUT = 20
REMARK = "service not available now"


class Leader:
    """A leader of term 2 whose first entry is committed."""

    name = "n0"

    def __init__(self):
        self.incarnation = 1
        self.is_leaving = False
        self.hung = False
        self.committed_term = 2
        self.disk = SimpleNamespace(is_watched=False, told_used=None, capacity_bytes=None)
        log = SimpleNamespace(commit_index=5, term_at=lambda _index: self.committed_term)
        self.state = SimpleNamespace(
            role=Role.LEADER, term=2, tick=0, transfer=None, blocked=None, log=log,
            config=SimpleNamespace(election_ticks_max=TIMEOUT),
        )  # fmt: skip
        self.taking = Taking()

    def hangs(self):
        return self.hung

    def tick(self, count):
        """Let so many ticks pass."""
        for _ in range(count):
            self.state.tick += 1
            self.taking.on_tick(self)

    def refuse(self, remark=REMARK):
        """Send a client away."""
        self.taking.on_refused(self, remark)


def test_a_leader_that_nothing_hinders_sends_nobody_away():
    leader = Leader()
    leader.tick(FREE_TICKS + 2)
    with pytest.raises(Violation, match=NAME):
        leader.refuse()


@pytest.mark.parametrize(
    "hinder",
    [
        lambda leader: setattr(leader.state, "blocked", "disk_full"),
        lambda leader: setattr(leader.state, "role", Role.FOLLOWER),
        lambda leader: setattr(leader.state, "transfer", object()),
        lambda leader: setattr(leader.disk, "is_watched", True),
        lambda leader: setattr(leader, "hung", True),
        lambda leader: setattr(leader, "is_leaving", True),
        lambda leader: setattr(leader, "committed_term", 1),
        lambda leader: setattr(leader, "incarnation", 2),
        lambda leader: setattr(leader.state, "term", 3),
    ],
)
def test_a_leader_that_something_hinders_may_do_so(hinder):
    leader = Leader()
    leader.tick(FREE_TICKS + 2)
    hinder(leader)
    leader.refuse()


def test_a_leader_has_some_time_before_and_behind_what_hinders_it():
    leader = Leader()
    leader.tick(FREE_TICKS)
    leader.refuse()
    leader.disk.is_watched = True
    leader.tick(1)
    leader.disk.is_watched = False
    leader.tick(FREE_TICKS)
    leader.refuse()


def test_a_transfer_hinders_it_as_long_as_one_may_take():
    leader = Leader()
    leader.state.transfer = object()
    leader.tick(FREE_TICKS + TIMEOUT)
    leader.refuse()
    leader.tick(2 * FREE_TICKS)
    with pytest.raises(Violation, match=NAME):
        leader.refuse()


def test_a_topic_of_which_nobody_knows_is_no_reason():
    leader = Leader()
    leader.tick(FREE_TICKS + 2)
    leader.refuse("service not available now: topic not created")


class Routed:
    """A name server that knows topics of groups, and a broker that has told of one."""

    def __init__(self, groups=(), is_alive=True, is_paused=False, is_clear=True):
        self.plan = Plan(seed=1, options=Options())
        self.loop = SimpleNamespace(now_ns=20 * NS_PER_S)
        self.hosts = {"ns0": SimpleNamespace(alive=is_alive, paused=is_paused, address="a")}
        self.fault_ms, self.of = 1_000, "n0"
        self.health = Health(self)
        self.health.touched_ms = lambda names, _: self.fault_ms if self.of in names else 0
        self.health._is_clear = lambda *_: is_clear
        rows = [(SimpleNamespace(name=name), None) for name in groups]
        table = SimpleNamespace(rows=SimpleNamespace(find=lambda _topic: rows))
        self.health.servers["ns0"] = SimpleNamespace(table=table)

    def tell(self):
        """Tell somebody that the topic is there."""
        self.health.check_made("n0", "orders")


@pytest.mark.parametrize("groups", [(), ("another",)])
def test_a_topic_is_in_the_routes_before_somebody_is_told_of_it(groups):
    with pytest.raises(Violation, match="A45 topic told before it is routed: n0"):
        Routed(groups).tell()


@pytest.mark.parametrize(
    "said", [{"groups": (GROUP,)}, {"is_alive": False}, {"is_paused": True}, {"is_clear": False}]
)
def test_a_name_server_that_knows_or_cannot_be_reached_is_no_failure(said):
    Routed(**said).tell()


@pytest.mark.parametrize("of", ["n0", "ns0"])
def test_a_fault_of_the_two_a_moment_ago_excuses(of):
    routed = Routed()
    routed.fault_ms, routed.of = (routed.loop.now_ns - CALM_NS // 2) // 1_000_000, of
    routed.tell()
    routed.of = "n1"
    with pytest.raises(Violation):
        routed.tell()


def begun():
    """For how many ticks a transfer may last that has begun."""
    state = SimpleNamespace(
        role=Role.LEADER, node_id="n0", term=2, tick=100, transfer=None, events=[],
        voters=("n0", "n1"), rejoining={}, log=SimpleNamespace(last_index=5),
        progress={"n1": SimpleNamespace(contact_tick=99)},
        config=SimpleNamespace(election_ticks_min=10),
    )  # fmt: skip
    return transfer.start(state, "n1").deadline_tick - state.tick


def test_a_transfer_ends_within_an_election_timeout():
    assert begun() == 10
    with planted(MUTANTS["transfer-without-end"]):
        assert begun() == 10_000

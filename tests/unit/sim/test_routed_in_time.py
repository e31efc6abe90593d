"""The leader is in all routes some seconds after the last fault."""

from types import SimpleNamespace

import pytest

from sim.faults.plan import Options, Plan
from sim.health import NS_PER_S, ROUTED_NS, TOLD_NS, Health
from sim.link import Delay
from sim.loop import SimLoop
from sim.oracles.base import Violation


class World:
    def __init__(self, **options):
        self.plan = Plan(seed=1, options=Options(**options))
        self.loop = SimpleNamespace(now_ns=0)
        self.who_leads = "n0"
        self.health = Health(self)
        self.health.wrong_route = lambda *, also_unheard: self.wrong
        self.health.faults_ms = lambda _now_ms: self.fault_ms
        self.wrong = "orders has no route"
        self.fault_ms = 1_000

    def leader(self):
        return self.who_leads

    def look(self, seconds):
        for _ in range(2 * seconds):
            self.loop.now_ns += NS_PER_S // 2
            self.health.check_registered()


def test_a_leader_that_is_in_no_route_for_long_is_a_violation():
    world = World()
    world.look(2 * ROUTED_NS // NS_PER_S)
    with pytest.raises(Violation, match="A45 not routed in time: n0 leads"):
        world.look(3)


@pytest.mark.parametrize("why", ["right", "fault", "nobody", "preferred"])
def test_nothing_is_said_while_something_else_may_be_the_cause(why):
    world = World(preferred="n0" if why == "preferred" else "")
    if why == "right":
        world.wrong = ""
    elif why == "fault":
        world.health.faults_ms = lambda now_ms: now_ms
    elif why == "nobody":
        world.who_leads = None
    world.look(60)


def test_a_name_server_whose_end_was_not_heard_is_told_later(monkeypatch):
    """It has ended while the leader was cut off from it, and lost all."""
    monkeypatch.setattr("sim.health.missing", lambda table, *_: table)
    world = World()
    health = Health(world)
    world.hosts = {name: SimpleNamespace(address=name, alive=True) for name in ("n0", "ns0", "ns1")}
    world.network = SimpleNamespace(has_half_open=lambda *ends: ends == ("n0", "ns0"))
    world.layout = SimpleNamespace(broker_address=lambda name: name)
    tables = SimpleNamespace(model_of=lambda _replica: None)
    world.watch = SimpleNamespace(tables=tables, replicas={"n0": None})
    health.servers = {"ns0": SimpleNamespace(table="ns0 lacks it")}
    assert health.wrong_route(also_unheard=False) == ""
    assert health.wrong_route() == "ns0 lacks it"
    health.servers["ns1"] = SimpleNamespace(table="ns1 lacks it")
    assert health.wrong_route(also_unheard=False) == "ns1 lacks it"


def test_a_new_leader_has_the_same_time():
    world = World()
    world.look(12)
    world.who_leads = "n1"
    world.look(8)
    with pytest.raises(Violation, match="n1 leads"):
        world.look(3)


@pytest.mark.parametrize("what", ["nothing", "cut", "healed", "slow"])
def test_a_link_is_clear_that_has_worked_as_usual_since_a_broker_ended(what):
    """What its kernel said, as the process ended, is lost where the link was cut."""
    loop = SimLoop(1)
    network = loop.network
    loop.run_until(2 * NS_PER_S)
    if what in {"cut", "healed"}:
        network.cut("a", "b")
    elif what == "slow":
        network.delay("a", "b", Delay(base_us=700_000, spread_us=0))
    loop.run_until(5 * NS_PER_S)
    ended_ns = loop.now_ns
    loop.run_until(6 * NS_PER_S)
    if what == "healed":
        network.heal("a", "b")
    loop.run_until(20 * NS_PER_S)
    health = Health(SimpleNamespace(network=network, hosts={"n1": SimpleNamespace(address="a")}))
    assert health._is_clear("n1", "b", ended_ns) == (what == "nothing")
    loop.close()


class Lacking:
    """A leader that can be reached, and a name server that lacks what ``wrong`` says."""

    def __init__(self):
        self.now_ns = 10 * NS_PER_S
        self.wrong = "orders has no route"
        self.is_clear = self.writable = True
        host = SimpleNamespace(alive=True, paused=False, address="a")
        self.replica = SimpleNamespace(
            is_up=True, is_corrupt=False, hangs=lambda: False, state=SimpleNamespace(term=1),
            controller=SimpleNamespace(store=SimpleNamespace(writer=self)),
        )  # fmt: skip
        self.leads = "n0"
        self.host = host
        watch = SimpleNamespace(
            replicas={"n0": self.replica}, tables=SimpleNamespace(model_of=lambda _replica: None)
        )
        self.health = Health(SimpleNamespace(
            loop=self, watch=watch, hosts={"n0": host, "ns0": host}, explains=lambda _name: False,
            leader=lambda: self.leads, network=SimpleNamespace(has_rules=False),
            plan=Plan(seed=1, options=Options()),
            layout=SimpleNamespace(broker_address=lambda _name: "a:1"),
            disk=lambda _name: SimpleNamespace(is_watched=False, failures=[]),
        ))  # fmt: skip
        self.health._is_clear = lambda *_: self.is_clear
        table = SimpleNamespace(cluster_info=self.cluster_info)
        self.health.servers["ns0"] = SimpleNamespace(table=table)

    def cluster_info(self):
        addrs = {} if self.wrong else {"RaftGroup0": SimpleNamespace(broker_addrs={0: "a:1"})}
        return SimpleNamespace(broker_addr_table=addrs)

    def look(self, seconds):
        for _ in range(2 * seconds):
            self.now_ns += NS_PER_S // 2
            self.health.check_changes()


def test_a_name_server_that_can_be_reached_hears_of_a_change():
    lacking = Lacking()
    lacking.look(TOLD_NS // NS_PER_S)
    with pytest.raises(Violation, match="A45 not routed in time: ns0 can be reached by n0"):
        lacking.look(2)


@pytest.mark.parametrize("why", ["right", "cut", "paused", "not in office", "new term", "nobody"])
def test_what_cannot_be_told_yet_is_waited_for(why):
    lacking = Lacking()
    lacking.look(5)
    if why == "right":
        lacking.wrong = ""
    elif why == "cut":
        lacking.is_clear = False
    elif why == "paused":
        lacking.host.paused = True
    elif why == "not in office":
        lacking.writable = False
    elif why == "new term":
        lacking.replica.state.term += 1
    else:
        lacking.leads = None
    lacking.look(5)

"""Brokers with controllers in the harness: settings, what controllers say, faults of them."""

import asyncio
import contextlib
import json
from dataclasses import dataclass, field

import pytest

from chaos.backends.base import ClusterFailed, ClusterSpec
from chaos.backends.controlled import LocalControlled
from chaos.catalogue.contracts import CONTROLLER, IN_SYNC, MODES, allowance, copies
from chaos.decisions import (
    Decision,
    DecisionProbe,
    ask_controller,
    in_sync_nodes,
    leading_controller,
)
from chaos.demo import demo_of, parser
from chaos.nemesis import alone
from chaos.nemesis.controllers import Isolation, cut_controllers
from chaos.nemesis.journal import lift
from chaos.nemesis.servers import of_servers
from chaos.net.control import ProxyControl
from chaos.net.wire import PREFIX, StatusConnection
from chaos.probe import NodeStatus, Probe, _of_replication
from chaos.run import make_cluster
from chaos.scenario import planned_faults
from chaos.switch_scenarios import switch_demo, switch_disks
from ledgermq.runtime.clock import SystemClock
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.unit.chaos.world import Node, World, lives, setting_of

SPEC = {"nodes": ("n0", "n1"), "group": "broker-a", "mode": CONTROLLER, "name_servers": 3}


AMONG = ("c0>c1", "c0>c2", "c1>c0", "c1>c2", "c2>c0", "c2>c1")


def settings_of(path):
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


@pytest.fixture
def cluster(tmp_path):
    made = make_cluster(ClusterSpec(run=tmp_path, **SPEC), "local")
    assert isinstance(made, LocalControlled)
    links = (f"{node}>c{at}" for node in made.nodes for at in range(3))
    made._link_ports |= {name: 20_000 + at for at, name in enumerate(links)}
    made._link_ports |= {name: 20_100 + at for at, name in enumerate(AMONG)}
    for node in made._nodes.values():
        made._write_config(node)
    return made


def test_no_broker_is_told_what_it_is_and_each_has_links_of_its_own_to_controllers(cluster):
    found = [settings_of(cluster._spec.run / "config" / f"{node}.conf") for node in cluster.nodes]
    assert all(one["enableControllerMode"] == "true" for one in found)
    assert not any("brokerRole" in one or "brokerId" in one for one in found)
    addresses = [address for one in found for address in one["controllerAddr"].split(";")]
    assert addresses == [f"127.0.0.1:{20_000 + at}" for at in range(6)]
    links = {one["name"]: one for one in cluster._links_of_the_proxy()}
    assert links["n0>c2"]["port"] == cluster.controllers["c2"][1]
    assert {"n0>n1", "n1>n0"} < set(links)
    assert cluster.node_at(f"127.0.0.2:{cluster._nodes['n1'].port}") == "n1"
    assert cluster.node_at("127.0.0.1:1") is None


def test_each_name_server_is_told_who_the_other_controllers_are(cluster):
    one = cluster._name_server_settings(1)
    assert one["controllerDLegerSelfId"] == "c1"
    peers = dict(part.split("-") for part in one["controllerDLegerPeers"].split(";"))
    assert list(peers) == ["c0", "c1", "c2"]
    own = cluster.controllers["c1"][1]
    assert peers["c1"] == f"127.0.0.1:{own}", "it listens there itself"
    assert [peers[name] for name in ("c0", "c2")] == ["127.0.0.1:20102", "127.0.0.1:20103"]
    links = {link["name"]: link for link in cluster._links_of_the_proxy()}
    assert links["c0>c1"]["port"] == own


@pytest.mark.parametrize(
    ("text", "node"),
    [('{"brokerId": 7}', "n1"), ('{"brokerId": 8}', None), ("{", None), ("[]", None)],
)
def test_a_replica_is_known_by_its_directory(cluster, text, node):
    directory = cluster._nodes["n1"].directory
    directory.mkdir(parents=True)
    (directory / "brokerIdentity.json").write_text(text)
    assert cluster.node_of(7) == node


def test_nobody_switches_by_hand(cluster):
    with pytest.raises(ClusterFailed, match="controllers say"):
        asyncio.run(cluster.make_master("n1"))


@dataclass
class Overseers(World):
    """Controllers as servers of this process: each answers, unless it was paused or killed."""

    leads: str = "c1"
    epoch: int = 3
    in_sync: tuple[int, ...] = (1, 2)
    silent: set[str] = field(default_factory=set)
    group: str = "broker-a"
    known: int = 3
    """Brokers that a name server tells of."""
    controllers: dict[str, tuple[str, int]] = field(default_factory=dict)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    serves: list[asyncio.Task] = field(default_factory=list)
    patch: pytest.MonkeyPatch = field(default_factory=pytest.MonkeyPatch)

    @contextlib.asynccontextmanager
    async def serving(self):
        servers = []
        for name in ("c0", "c1", "c2"):
            server = await asyncio.start_server(self._serve(name), "127.0.0.1", 0)
            servers.append(server)
            self.controllers[name] = server.sockets[0].getsockname()[:2]
        self._is_asked()
        try:
            yield self
        finally:
            self.patch.undo()
            for server in servers:
                server.close()
            await asyncio.sleep(0.01)  # who was accepted in the last moment is among the writers
            for writer in self.writers:
                writer.transport.abort()
            await asyncio.gather(*self.serves)

    def _is_asked(self):
        """Have answers waited for briefly only while one is silent: others come, however late."""
        for module in ("chaos.nemesis.servers", "chaos.decisions"):
            self.patch.setattr(f"{module}.ASK_S", 0.2 if self.silent else 10.0)

    def _serve(self, name):
        async def serve(reader, writer):
            with contextlib.suppress(asyncio.IncompleteReadError, OSError):
                while True:
                    total = int.from_bytes(await reader.readexactly(4), "big")
                    frame = await reader.readexactly(total)
                    if name not in self.silent:
                        writer.write(self._answer(name, frame))

        def accept(reader, writer):
            self.writers.append(writer)
            self.serves.append(asyncio.create_task(serve(reader, writer)))

        return accept

    def _answer(self, name, frame):
        code = json.loads(frame[4 : 4 + int.from_bytes(frame[1:4], "big")])["code"]
        answered = code in {106, 1005} or name == self.leads
        answer = {"code": 0 if answered else 2007, "opaque": 1}
        body = b""
        if code == 106:
            addrs = {str(at): f"a:{at}" for at in range(self.known)}
            body = json.dumps({"brokerAddrTable": {"g": {"brokerAddrs": addrs}}}).encode()
        if code == 1004:
            answer["extFields"] = {
                "masterBrokerId": "1", "masterEpoch": str(self.epoch), "masterAddress": "a:1",
                "syncStateSetEpoch": "4",
            }  # fmt: skip
            body = json.dumps({"syncStateSet": self.in_sync}).encode()
        header = json.dumps(answer).encode()
        return PREFIX.pack(4 + len(header) + len(body), len(header)) + header + body

    def node_at(self, address):
        return "n0" if address == "a:1" else None

    def node_of(self, replica):
        return {1: "n0", 2: "n1"}.get(replica)

    @property
    def name_servers(self):
        return {f"ns{name[1:]}": address for name, address in self.controllers.items()}

    def server_of(self, controller):
        return f"ns{controller[1:]}"

    async def kill_name_server(self, name):
        if "kill" not in self.broken:
            self.silent.add(f"c{name[2:]}")
            self._is_asked()

    async def start_name_server(self, name):
        if "start" not in self.broken:
            self.silent.discard(f"c{name[2:]}")
            self._is_asked()
            self.known = self.known if "forget" not in self.broken else 0

    async def pause_name_server(self, name):
        if "pause" not in self.broken:
            self.silent.add(f"c{name[2:]}")
            self._is_asked()

    async def resume_name_server(self, name):
        pass


def with_controllers(body, **about):
    async def run():
        async with Overseers(**about).serving() as world:
            return await body(world)

    return asyncio.run(run())


def test_the_controller_that_leads_says_who_is_master():
    async def body(world):
        found = {}
        for name, address in world.controllers.items():
            connection = StatusConnection(*address)
            found[name] = await ask_controller(world, connection)
            connection.close()
        assert await leading_controller(world) == "c1"
        assert await in_sync_nodes(world) == {"n0", "n1"}
        return found

    found = with_controllers(body)
    assert found == {
        "c0": None,
        "c1": Decision(epoch=3, master="n0", in_sync=(1, 2), set_epoch=4),
        "c2": None,
    }


def test_what_they_say_is_written_down():
    rows = []

    class Recorder:
        def write(self, table, row):
            rows.append((table, row))

    async def body(world):
        probe = DecisionProbe(world, Recorder(), SystemClock())
        probe.start()
        async with asyncio.timeout(30):
            while not rows:
                await asyncio.sleep(0.01)
        await probe.stop()

    with_controllers(body)
    table, row = rows[0]
    assert (table, row["controller"], row["node"], row["epoch"]) == ("masters", "c1", "n0", 3)
    assert row["in_sync"] == [1, 2]
    assert row["t0"] <= row["t1"]


def fault_of(kind, count, **about):
    """Return whether a fault of so many controllers took effect, and whom it hit."""

    async def body(world):
        fault = of_servers(kind)(setting_of(world), count=count)
        await fault.probe_before()
        await fault.apply()
        await fault.probe_during()
        await fault.undo()
        await fault.probe_after()
        return fault.witness.effective, fault.targets

    return with_controllers(body, **about)


@pytest.fixture
def short(monkeypatch):
    """For those that do not come back: it is not waited for long that they do."""
    monkeypatch.setattr("chaos.nemesis.servers.BACK_S", 0.5)
    monkeypatch.setattr("chaos.nemesis.servers.KNOWS_S", 0.5)


def test_the_controller_that_leads_is_hit_first():
    assert fault_of("controller_kill", 1) == (True, ("c1",))
    assert fault_of("controller_pause", 2) == (True, ("c1", "c0"))


@pytest.mark.parametrize(
    ("kind", "broken"),
    [("controller_kill", "kill"), ("controller_pause", "pause"), ("controller_kill", "start")],
)
def test_controllers_that_go_on_or_do_not_come_back_do_not_count(short, kind, broken):
    assert not fault_of(kind, 2, broken={broken})[0]


@pytest.mark.parametrize("kind", ["namesrv_kill", "namesrv_pause"])
def test_name_servers_that_were_silent_and_know_the_brokers_again_count(kind):
    assert fault_of(kind, 1) == (True, ("ns0",))
    assert fault_of(kind, 3) == (True, ("ns0", "ns1", "ns2"))


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        ("namesrv_kill", "kill"), ("namesrv_pause", "pause"), ("namesrv_kill", "start"),
        ("namesrv_kill", "forget"),
    ],
)  # fmt: skip
def test_name_servers_that_go_on_or_come_back_and_know_nobody_do_not_count(short, kind, broken):
    assert not fault_of(kind, 2, broken={broken})[0]


def test_a_witness_that_asks_for_no_broker_is_found_out():
    with planted(HARNESS_BUGS["name-server-back-without-brokers"]):
        assert fault_of("namesrv_kill", 2, broken={"forget"})[0]


def test_name_servers_that_are_no_processes_of_ours_are_skipped():
    with pytest.raises(ClusterFailed, match="no processes of ours"):
        of_servers("namesrv_kill")(setting_of(World()), count=1)


def test_controllers_that_did_not_answer_before_do_not_count():
    assert not fault_of("controller_pause", 1, silent={"c0", "c1", "c2"})[0]


def test_what_the_journal_has_of_controllers_is_lifted():
    async def body(world):
        world.silent |= {"c0", "c2"}
        await lift(world, {"do": "name_servers", "nodes": ["ns0", "ns1", "ns2"]})
        return world.silent

    assert with_controllers(body) == set()


@pytest.mark.parametrize("make", [cut_controllers, Isolation, of_servers("controller_kill")])
def test_without_controllers_such_faults_are_skipped(make):
    with pytest.raises(ClusterFailed, match="no controllers"):
        make(setting_of(World()), **({} if make is cut_controllers else {"count": 1}))


def test_a_broker_that_is_cut_off_from_controllers_withheld_what_it_said(monkeypatch):
    world = Overseers(controllers={"c0": ("h", 1), "c1": ("h", 2)})
    names = ("n0>c0", "n0>c1")
    world.counts |= {
        name: {way: {"bytes": 9, "withheld_bytes": 0} for way in ("forward", "backward")}
        for name in names
    }
    world.nodes |= dict.fromkeys(("c0", "c1"), world.nodes["n0"])
    fault = cut_controllers(setting_of(world), "n0")
    assert fault.links == names
    assert lives(world, fault)


def among_controllers(**about):
    """Three controllers that talk to each other; the second one leads."""
    world = Overseers(controllers={f"c{at}": ("h", at) for at in range(3)}, **about)
    world.counts = {
        name: {way: {"bytes": 9, "withheld_bytes": 0} for way in ("forward", "backward")}
        for name in AMONG
    }
    world.nodes |= {name: Node() for name in world.controllers}
    return world


@pytest.fixture
def second_leads(monkeypatch):
    async def leads(cluster):
        return "c1"

    monkeypatch.setattr("chaos.nemesis.servers.leading_controller", leads)


def test_controllers_that_are_cut_off_hear_no_other_one_and_the_leader_is_hit(second_leads):
    world = among_controllers()
    fault = Isolation(setting_of(world), count=1)
    assert set(fault.undo_entry()["links"]) == set(AMONG)
    assert lives(world, fault)
    assert fault.targets == ("c1",)
    assert set(fault.links) == {"c0>c1", "c1>c0", "c1>c2", "c2>c1"}
    assert set(fault.undo_entry()["links"]) == set(fault.links)  # the others may be another's
    both = Isolation(setting_of(among_controllers()), count=2)
    assert lives(both._setting.cluster, both)
    assert (both.targets, set(both.links)) == (("c1", "c0"), set(AMONG))


@pytest.mark.parametrize("broken", ["cut", "heal"])
def test_controllers_that_still_hear_each_other_or_do_not_again_do_not_count(second_leads, broken):
    world = among_controllers(broken={broken})
    if broken == "cut":
        assert not lives(world, Isolation(setting_of(world), count=2))
        return
    with pytest.raises(ClusterFailed, match="nothing passes between c1 and c0 again"):
        lives(world, Isolation(setting_of(world), count=2))


def test_a_leader_that_hears_the_others_is_found_out(second_leads):
    """One link is left open: what passes there is seen."""
    world = among_controllers()
    fault = Isolation(setting_of(world), count=1)

    def opened(world):
        del world.is_cut["c1>c2"]
        world.wait()

    assert not lives(world, fault, opened)


@pytest.mark.parametrize(("in_sync", "count"), [((1, 2), 0), ((2,), 0), ((1,), 5), ((9,), 5)])
def test_a_disk_held_alone_what_was_acknowledged_only_if_nobody_else_was_in_sync(
    monkeypatch, in_sync, count
):
    """n0 is wiped; replica 2 is n1, and whose directory is gone is nobody."""

    async def body(world):
        world.log_format = "plain"

        async def collect(node, target):
            (target / "x").parent.mkdir(parents=True, exist_ok=True)

        world.collect = collect
        return await alone.count_alone(world, "n0")

    monkeypatch.setattr(alone, "ARRIVES_S", 0)
    rows = {"n0": [entry(at) for at in range(5)]}
    monkeypatch.setattr(alone, "read_plain_log", lambda path: rows.get(path.name, []))
    assert with_controllers(body, in_sync=in_sync) == count


def entry(index):
    class Row:
        entry_index = index
        type = "message"

    return Row()


def test_the_contract_is_kept_while_one_in_sync_replica_is_whole():
    mode = MODES[CONTROLLER]
    promised = copies(mode.durability, mode.nodes)
    assert (mode.durability, promised) == (IN_SYNC, 1)
    nothing = allowance(IN_SYNC, "async", promised, {"n0": 0, "n1": 0})
    assert not nothing.why
    some = allowance(IN_SYNC, "async", promised, {"n0": 3, "n1": 0})
    assert some.messages_max == 3


def status(node, **more):
    about = {"t_ns": 0, "ok": True, "role": "follower", "term": 2, "commit": 10, "is_plain": True}
    return NodeStatus(node=node, **about | more)


@pytest.mark.parametrize(
    ("slave", "healthy"),
    [
        ({"replica": 2}, True),
        ({"replica": 3}, False),
        ({"replica": 2, "term": 1}, False),
        ({"replica": 2, "follows": False}, False),
    ],
)
def test_all_is_well_when_the_slave_is_in_sync_in_the_epoch_of_its_master(slave, healthy):
    class Named:
        nodes = ("n0", "n1")

    probe = Probe(Named(), None, SystemClock())  # type: ignore[arg-type]
    members = frozenset({1, 2})
    probe.latest = {
        "n0": status("n0", role="leader", replica=1, in_sync=members),
        "n1": status("n1", **slave),
    }
    assert probe.leader() == "n0"
    assert probe.healthy() is healthy


def test_what_a_status_says_of_master_and_slave():
    said = {"broker_id": 2, "following": {"state": "connecting"}}
    found = _of_replication(said, is_plain=True)
    assert found == {"follows": False, "is_plain": True, "replica": 2, "in_sync": None}
    master = _of_replication({"broker_id": 1, "in_sync": [1, 2]}, is_plain=True)
    assert master["in_sync"] == {1, 2}
    assert master["follows"]


@pytest.mark.parametrize("scenario", [switch_demo(), switch_demo(seconds=200), switch_disks()])
def test_every_fault_is_lifted_and_there_are_as_many_as_counted_on(scenario):
    started = [step.name for step in scenario.timeline if step.do == "start"]
    stopped = [step.name for step in scenario.timeline if step.do == "stop"]
    assert sorted(started) == sorted(stopped)
    kinds = [fault.kind.nemesis for _, fault in planned_faults(scenario)]
    assert all(kinds.count(kind) >= least for kind, least in scenario.coverage.items())


def test_the_mode_chooses_the_demo():
    assert demo_of(parser("x").parse_args(["--mode", CONTROLLER])) == switch_demo()


def test_a_command_that_is_given_up_leaves_no_answer_to_the_next(tmp_path):
    """The proxy answers in order: what nobody waits for any more must not be taken for another."""

    async def serve(reader, writer):
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                cmd = json.loads(line)["cmd"]
                await asyncio.sleep(0.2 if cmd == "slow" else 0)
                answer = {"ok": True, "links": {"of": {"cmd": cmd}}}
                writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()

    async def body():
        path = str(tmp_path / "s")
        server = await asyncio.start_unix_server(serve, path)
        control = ProxyControl(path)
        task = asyncio.create_task(control.command("slow"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        found = await control.command("stats")
        control.close()
        server.close()
        await asyncio.sleep(0.3)  # the first answer has left by then
        return found

    assert asyncio.run(body()) == {"of": {"cmd": "stats"}}

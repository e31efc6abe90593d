"""A master and a slave in the harness: settings, status, scenarios, what progress may fall back."""

import asyncio
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from chaos.__main__ import main as chaos_main
from chaos.backends.base import ClusterFailed, ClusterSpec
from chaos.backends.pair import LocalPair, _has_slave
from chaos.catalogue.contracts import (
    ASYNC_MASTER,
    CONTROLLER,
    MODES,
    PAIR,
    QUORUM,
    SYNC_MASTER,
    copies,
)
from chaos.checker import check_history
from chaos.demo import demo_of, next_steps, parser, workload_of
from chaos.nemesis import alone
from chaos.nemesis.base import FaultRecord, Witness
from chaos.nemesis.disk import damage
from chaos.nemesis.runner import Nemesis
from chaos.pair_scenarios import disks, pair_demo
from chaos.probe import NodeStatus, Probe
from chaos.run import make_cluster
from chaos.scenario import planned_faults
from ledgermq.runtime.clock import SystemClock
from tests.spark.generate import Entry, encode_record
from tests.unit.chaos import world as world_module
from tests.unit.chaos.histories import clean, fault
from tests.unit.chaos.world import Node, World, lives, setting_of

SPEC = {"nodes": ("n0", "n1"), "group": "broker-a", "mode": SYNC_MASTER}


def settings_of(cluster, node):
    lines = (cluster._spec.run / "config" / f"{node}.conf").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


@pytest.fixture
def pair(tmp_path):
    made = LocalPair(ClusterSpec(run=tmp_path, **SPEC))
    for node in made._nodes.values():
        made._write_config(node)
    return made


def test_the_first_node_is_the_master_and_the_other_follows_through_the_proxy(pair):
    master, slave = settings_of(pair, "n0"), settings_of(pair, "n1")
    assert (master["brokerRole"], master["brokerId"]) == ("SYNC_MASTER", "0")
    assert (slave["brokerRole"], slave["brokerId"]) == ("SLAVE", "1")
    link = next(one for one in pair._links_of_the_proxy() if one["name"] == "n1>n0")
    # Where the slave is told to dial is where the proxy listens, and not where the master does.
    assert link["listen"] == link["port"] == int(master["haListenPort"])
    assert master["brokerIP2"] == "127.0.0.1"
    assert link["host"] == master["bindAddress"] == pair.status_addr("n0")[0] == "127.0.0.2"


def test_no_second_master_is_made_while_the_first_runs(pair, monkeypatch):
    monkeypatch.setattr(pair, "state", lambda node: "running")
    with pytest.raises(ClusterFailed, match="n0 runs"):
        asyncio.run(pair.make_master("n1"))


def plain_file(count: int) -> bytes:
    """A commit log with so many messages, and room for more."""
    data = b""
    for number in range(count):
        data += encode_record(Entry(number, 1, 0, number, b"body"), len(data) - 48)
    return data + bytes(64)


@dataclass
class Pair(World):
    """A pair whose logs are files."""

    nodes: dict = field(default_factory=lambda: {name: Node() for name in ("n0", "n1")})
    log_format: str = "plain"

    async def collect(self, node: str, target: Path) -> None:
        shutil.copytree(self.root / node / "commitlog", target)


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(alone, "ARRIVES_S", 0)
    monkeypatch.setattr(world_module, "NODES", ("n0", "n1"))
    made = Pair(root=tmp_path)
    for node, count in (("n0", 5), ("n1", 3)):
        (tmp_path / node / "commitlog").mkdir(parents=True)
        (tmp_path / node / "commitlog" / f"{0:020d}").write_bytes(plain_file(count))
    return made


@pytest.mark.parametrize(("node", "count"), [("n0", 2), ("n1", 0)])
def test_what_no_other_node_has_is_counted_when_a_disk_is_taken(world, node, count):
    fault = damage("wipe")(setting_of(world), node)
    assert lives(world, fault)
    assert fault.witness.only_there == count
    assert not (world.root / node).exists()


def test_of_a_group_it_is_not_counted(world):
    world.log_format = "dledger"
    fault = damage("wipe")(setting_of(world), "n0")
    assert lives(world, fault)
    assert fault.witness.only_there is None


def test_only_faults_that_took_effect_count_as_lost(world):
    nemesis = Nemesis(
        setting=setting_of(world), recorder=None, journal=None, stream=None, last_ack_ns=int,
        notice=print,
    )  # type: ignore[arg-type]  # fmt: skip
    for name, effective in (("1", True), ("2", False)):
        seen = Witness(probe="", effective=effective, only_there=7)
        nemesis.records[name] = FaultRecord(fault_id=name, kind="wipe", witness=seen)
    assert nemesis.lost_alone() == 7


@pytest.mark.parametrize("more", [{"every_link": True}, {"sealed": True}])
def test_what_a_pair_cannot_do_is_said(tmp_path, more):
    with pytest.raises(ClusterFailed, match="no links but theirs"):
        make_cluster(ClusterSpec(run=tmp_path, **SPEC, **more), "local")


def test_the_docker_backend_says_that_it_has_no_pairs(tmp_path):
    with pytest.raises(ClusterFailed, match="no sync-master"):
        make_cluster(ClusterSpec(run=tmp_path, **SPEC), "docker")


def status(node, **more):
    return NodeStatus(**{"node": node, "t_ns": 0, "ok": True, "role": "slave"} | more)


class Named:
    nodes = ("n0", "n1")


@pytest.mark.parametrize(
    ("slave", "healthy"),
    [
        ({"commit": 5_000_000}, True),
        ({"commit": 3_000_000}, False),
        ({"commit": 5_000_000, "follows": False}, False),
        ({"commit": 5_000_000, "ok": False}, False),
    ],
)
def test_a_pair_is_healthy_when_the_slave_follows_and_is_near(slave, healthy):
    probe = Probe(Named(), None, SystemClock())  # type: ignore[arg-type]
    probe.latest = {
        "n0": status("n0", role="master", commit=5_000_000),
        "n1": status("n1", **slave),
    }
    assert probe.leader() == "n0"
    assert probe.healthy() is healthy


def test_without_a_master_nobody_leads():
    probe = Probe(Named(), None, SystemClock())  # type: ignore[arg-type]
    probe.latest = {"n0": status("n0", ok=False, role="master"), "n1": status("n1")}
    assert probe.leader() is None
    assert not probe.healthy()


@pytest.mark.parametrize("scenario", [pair_demo(mode=ASYNC_MASTER), disks(mode=SYNC_MASTER)])
def test_every_fault_of_a_pair_is_lifted_and_there_are_as_many_as_counted_on(scenario):
    started = [step.name for step in scenario.timeline if step.do == "start"]
    stopped = [step.name for step in scenario.timeline if step.do == "stop"]
    assert sorted(started) == sorted(stopped)
    kinds = [fault.kind.nemesis for _, fault in planned_faults(scenario)]
    assert all(kinds.count(kind) >= least for kind, least in scenario.coverage.items())


def test_the_mode_chooses_scenario_and_workload():
    options = parser("x").parse_args(["--mode", SYNC_MASTER])
    assert (demo_of(options).mode, workload_of(options)) == (SYNC_MASTER, "plain")
    usual = parser("x").parse_args([])
    assert (demo_of(usual).mode, workload_of(usual)) == ("raft", "every")
    rounds = parser("x").parse_args(["--mode", ASYNC_MASTER, "--seconds", "72"])
    assert len(demo_of(rounds).timeline) == 2 * len(demo_of(options).timeline)


@pytest.mark.parametrize(
    "words", [["failover", "--mode", SYNC_MASTER], ["disks"], ["zombies", "--mode", "controller"]]
)
def test_a_scenario_of_another_mode_is_a_usage_error(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        chaos_main(["run", *words])
    assert stopped.value.code == 254
    assert "mode" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mode", "bug"),
    [
        ("raft", "ack-before-quorum"),
        (SYNC_MASTER, "ha-acknowledged-before"),
        (CONTROLLER, "switch-acknowledged-alone"),
    ],
)
def test_what_to_try_next_is_of_the_mode(mode, bug, tmp_path):
    options = parser("x").parse_args(["--mode", mode])

    class Found:
        verdict = "valid"

    commands = [command for command, _ in next_steps(Found(), options, tmp_path)]  # type: ignore[arg-type]
    assert bug in commands[0]


def test_a_promise_is_a_number_of_copies():
    assert [copies(mode.durability, mode.nodes) for mode in MODES.values()] == [2, 1, 2, 1]
    assert (copies(QUORUM, 5), copies(PAIR, 3), copies("none", 3)) == (3, 2, 0)


@pytest.mark.parametrize(("settle_ms", "count"), [(0, 1), (20_000, 0)])
def test_what_a_slave_took_may_be_unknown_to_the_master_for_a_while(settle_ms, count):
    """A commit four seconds after the fault was lifted; the master, back, tells less."""
    second = 10**9
    about = {"grp": "g", "topic": "t", "queue_id": 0, "outcome": "ok"}
    acks = [
        about | {"kind": "commit", "value_offset": 9, "t_inv": 14 * second, "t_cmp": 14 * second},
        about | {"kind": "fetch", "value_offset": 5, "t_inv": 40 * second, "t_cmp": 40 * second},
    ]
    times = {"t_on0": 5 * second, "t_on1": 5 * second, "t_off0": 10 * second}
    history = clean(
        acks=acks,
        faults=[fault("f", **times, t_off1=10 * second)],
        contract={"offsets_settle_ms": settle_ms},
    )
    assert check_history(history).results["A18"].count == count


@pytest.mark.parametrize(
    ("status", "is_there"),
    [
        ({"slaves": [{"confirms": True}]}, True),
        ({"slaves": [{"confirms": False}, {"confirms": True}]}, True),
        ({"slaves": [{"confirms": False}]}, False),
        ({"slaves": []}, False),
        ({}, False),
        ({"slaves": None}, False),
    ],
)
def test_a_run_begins_when_a_slave_confirms(status, is_there):
    assert _has_slave(status) is is_there

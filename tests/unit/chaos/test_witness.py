"""Every fault where it does not take effect: the witness must say so, whatever was commanded.

The cluster here does what it is told or only says so; the witness is the harness's own code. The
containers' variant runs with an engine that is a table of answers.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from chaos.backends import docker, engine
from chaos.backends.base import ClusterFailed, ClusterSpec, link_names
from chaos.backends.docker import DockerCluster
from chaos.nemesis import links, process
from chaos.nemesis.base import Fault, Setting
from chaos.nemesis.partition import cut_link, cut_one_way, isolate
from chaos.nemesis.process import Kill, Pause
from chaos.probe import NodeStatus

NODES = ("n0", "n1", "n2")
SECOND = 1_000_000_000


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    monkeypatch.setattr(process, "RESTART_TIMEOUT_S", 0.15)
    monkeypatch.setattr(process, "STATE_TIMEOUT_S", 0.15)
    monkeypatch.setattr(links, "AFTER_TIMEOUT_S", 0.15)


@dataclass
class Node:
    """A process: which boot, and what the kernel and a question would say of it."""

    boot: int = 1
    state: str = "running"


@dataclass
class World:
    """Cluster, probe, clock and links in one; ``broken``: the commands that do nothing."""

    broken: set[str] = field(default_factory=set)
    nodes: dict[str, Node] = field(default_factory=lambda: {n: Node() for n in NODES})
    last_seen: dict[str, NodeStatus] = field(default_factory=dict)
    now: int = 100 * SECOND
    counts: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    links: "World" = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.links = self
        self.counts = {
            name: {d: {"bytes": 10, "withheld_bytes": 0} for d in ("forward", "backward")}
            for name in link_names(NODES)
        }
        self.is_cut: dict[str, tuple[str, ...]] = {}

    def monotonic_ns(self) -> int:
        return self.now

    def wait(self) -> None:
        """Let two seconds pass: nodes talk over their links, the poller asks everybody."""
        self.now += 2 * SECOND
        for name, count in self.counts.items():
            source, _, target = name.partition(">")
            up = all(self.nodes[n].state == "running" for n in (source, target))
            for way in ("forward", "backward") if up else ():
                count[way]["withheld_bytes" if way in self.is_cut.get(name, ()) else "bytes"] += 5
        for name in NODES:
            self.last_seen[name] = answer_of(self, name) or self.last_seen.get(name)  # type: ignore[assignment]
        self.last_seen = {n: s for n, s in self.last_seen.items() if s is not None}

    async def ask(self, node: str) -> NodeStatus:
        return answer_of(self, node) or NodeStatus(node=node, t_ns=self.now, ok=False)

    def state(self, node: str) -> str:
        return self.nodes[node].state

    async def kill(self, node: str) -> None:
        if "kill" not in self.broken:
            self.nodes[node].state = "gone"

    async def restart(self, node: str) -> None:
        if "restart" not in self.broken and self.nodes[node].state == "gone":
            self.nodes[node] = Node(boot=self.nodes[node].boot + 1)

    async def pause(self, node: str) -> None:
        if "pause" not in self.broken:
            self.nodes[node].state = "stopped"

    async def resume(self, node: str) -> None:
        if "resume" not in self.broken:
            self.nodes[node].state = "running"

    def _copy(self) -> dict[str, Any]:
        return {n: {d: dict(c) for d, c in ways.items()} for n, ways in self.counts.items()}

    async def cut(self, links: list[str]) -> dict[str, Any]:
        if "cut" not in self.broken:
            self.is_cut |= dict.fromkeys(links, ("forward", "backward"))
        return self._copy()

    async def cut_one_way(self, links: list[str]) -> dict[str, Any]:
        if "cut" not in self.broken:
            self.is_cut |= dict.fromkeys(links, ("forward",))
        return self._copy()

    async def heal(self, links: list[str]) -> dict[str, Any]:
        if "heal" not in self.broken:
            self.is_cut = {}
        found = self._copy()
        self.wait()
        return found

    async def counters(self) -> dict[str, Any]:
        return self._copy()


def answer_of(world: World, name: str) -> NodeStatus | None:
    node = world.nodes[name]
    if node.state != "running":
        return None
    return NodeStatus(node=name, t_ns=world.now, ok=True, boot_id=f"{name}-{node.boot}")


def setting_of(world: World) -> Setting:
    return Setting(cluster=world, probe=world, clock=world)  # type: ignore[arg-type]


def lives(world: World, fault: Fault, between=lambda world: None) -> bool:
    """Apply and lift a fault; ``between`` happens while it is on. Return whether it counts."""

    async def body() -> None:
        await fault.probe_before()
        await fault.apply()
        await fault.probe_during()
        world.wait()
        between(world)
        await fault.undo()
        await fault.probe_after()

    asyncio.run(body())
    return fault.witness.effective


def comes_back(world: World) -> None:
    """Somebody else started the node again, and it answered the poller."""
    world.nodes["n0"] = Node(boot=2)
    world.wait()


def goes_on_and_stops_again(world: World) -> None:
    world.nodes["n0"].state = "running"
    world.wait()
    world.nodes["n0"].state = "stopped"


def dies_frozen(world: World) -> None:
    world.nodes["n0"].boot = 7


def test_every_fault_that_takes_effect_counts():
    for make in (
        lambda s: Kill(s, "n0"),
        lambda s: Pause(s, "n0"),
        lambda s: cut_link(s, "n0", "n1"),
        lambda s: cut_one_way(s, "n0", "n1"),
        lambda s: isolate(s, "n0"),
    ):
        world = World()
        assert lives(world, make(setting_of(world)))


@pytest.mark.parametrize("broken", ["kill", "restart"])
def test_kill_that_kills_nothing_or_is_followed_by_no_new_boot_does_not_count(broken):
    world = World(broken={broken})
    assert not lives(world, Kill(setting_of(world), "n0"))


def test_kill_of_what_was_not_there_does_not_count():
    world = World()
    world.nodes["n0"].state = "gone"
    assert not lives(world, Kill(setting_of(world), "n0"))


def test_kill_of_a_pid_that_survived_and_only_its_entry_went_does_not_count():
    """The state says gone, the node answers all the same."""
    world = World(broken={"kill"})
    world.state = lambda node: "gone"  # type: ignore[method-assign]
    assert not lives(world, Kill(setting_of(world), "n0"))


def test_kill_during_which_the_node_was_heard_does_not_count():
    world = World()
    assert not lives(world, Kill(setting_of(world), "n0"), comes_back)


@pytest.mark.parametrize("broken", ["pause", "resume"])
def test_pause_of_a_process_that_goes_on_or_never_returns_does_not_count(broken):
    world = World(broken={broken})
    assert not lives(world, Pause(setting_of(world), "n0"))


@pytest.mark.parametrize("between", [goes_on_and_stops_again, dies_frozen, comes_back])
def test_pause_that_was_interrupted_or_ended_in_another_boot_does_not_count(between):
    world = World()
    assert not lives(world, Pause(setting_of(world), "n0"), between)


@pytest.mark.parametrize("make", [cut_link, cut_one_way])
def test_cut_through_which_frames_flow_does_not_count(make):
    world = World(broken={"cut"})
    assert not lives(world, make(setting_of(world), "n0", "n1"))


@pytest.mark.parametrize("make", [cut_link, cut_one_way])
def test_cut_that_leaks_does_not_count(make):
    def leak(world: World) -> None:
        world.counts["n0>n1"]["forward"]["bytes"] += 1

    world = World()
    assert not lives(world, make(setting_of(world), "n0", "n1"), leak)


def test_cut_that_nobody_tried_to_pass_does_not_count():
    world = World()
    world.wait = lambda: None  # type: ignore[method-assign]
    assert not lives(world, cut_link(setting_of(world), "n0", "n1"))


def test_isolation_from_one_peer_only_does_not_count():
    def other_link_is_quiet(world: World) -> None:
        for name in ("n0>n2", "n2>n0"):
            for way in ("forward", "backward"):
                world.counts[name][way]["withheld_bytes"] = 0

    world = World()
    assert not lives(world, isolate(setting_of(world), "n0"), other_link_is_quiet)


def test_cut_that_is_not_lifted_is_said_so():
    world = World(broken={"heal"})
    with pytest.raises(ClusterFailed, match="nothing passes between n0 and n1"):
        lives(world, cut_link(setting_of(world), "n0", "n1"))


class Engine:
    """A container engine that says yes and does nothing."""

    def __init__(self, monkeypatch, status: str) -> None:
        self.calls: list[list[str]] = []
        monkeypatch.setattr(engine, "call", self.call)
        monkeypatch.setattr(docker.engine, "call", self.call)
        monkeypatch.setattr(engine, "inspect", lambda container, template: status)

    async def call(self, command: list[str], **_options: object) -> str:
        self.calls.append(list(command))
        return ""


@pytest.mark.parametrize("make", [Kill, Pause])
def test_container_that_an_engine_says_to_have_hit_does_not_count(make, monkeypatch, tmp_path):
    fake = Engine(monkeypatch, "running")
    cluster = DockerCluster(ClusterSpec(run=tmp_path))
    cluster._containers = dict.fromkeys(NODES, "c0ffee")
    world = World()

    async def remember(node: str) -> None:
        return None

    monkeypatch.setattr(cluster.links, "remember", remember)
    setting = Setting(cluster=cluster, probe=world, clock=world)  # type: ignore[arg-type]
    assert not lives(world, make(setting, "n0"))
    assert any(command[1] in {"kill", "pause"} for command in fake.calls)


def test_engine_without_an_answer_is_no_proof_of_a_kill(monkeypatch, tmp_path):
    """An engine that knows no such container calls everything gone; the node answers."""
    Engine(monkeypatch, "")
    cluster = DockerCluster(ClusterSpec(run=tmp_path))
    cluster._containers = dict.fromkeys(NODES, "c0ffee")
    world = World()

    async def nothing(*_arguments: str) -> None:
        return None

    monkeypatch.setattr(cluster.links, "remember", nothing)
    monkeypatch.setattr(cluster.links, "install", nothing)
    setting = Setting(cluster=cluster, probe=world, clock=world)  # type: ignore[arg-type]
    assert not lives(world, Kill(setting, "n0"))

"""Every fault where it does not take effect: the witness must say so, whatever was commanded.

The cluster here does what it is told or only says so; the witness is the harness's own code. The
containers' variant runs with an engine that is a table of answers.
"""

import pytest

from chaos.backends import docker, engine
from chaos.backends.base import ClusterFailed, ClusterSpec
from chaos.backends.docker import DockerCluster
from chaos.nemesis import links, process
from chaos.nemesis.base import Setting
from chaos.nemesis.partition import cut_link, cut_one_way, isolate
from chaos.nemesis.process import Kill, Pause
from tests.unit.chaos.world import NODES, Node, World, lives, setting_of


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    monkeypatch.setattr(process, "RESTART_TIMEOUT_S", 0.15)
    monkeypatch.setattr(process, "STATE_TIMEOUT_S", 0.15)
    monkeypatch.setattr(links, "AFTER_TIMEOUT_S", 0.15)


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

"""To which nodes a look binds the roles of a timeline."""

import asyncio

import pytest

from chaos.backends.base import ClusterFailed
from chaos.generator import Op, Stream
from chaos.nemesis.base import Setting
from chaos.nemesis.runner import Nemesis
from tests.unit.chaos.world import NODES


class Election:
    """A cluster, its probe and its clock: n1 steps down while all are told that all is well."""

    nodes = NODES

    def __init__(self) -> None:
        self.told = 0
        self.asked = 0

    async def tell(self) -> None:
        self.told += 1

    def healthy(self) -> bool:
        self.asked += self.told
        return self.told == 0 or self.asked > 2

    def leader(self) -> str | None:
        return "n2" if self.asked > 2 else None if self.told else "n1"

    def monotonic_ns(self) -> int:
        return 0


def nemesis_of(world: Election) -> Nemesis:
    setting = Setting(cluster=world, probe=world, clock=world)  # type: ignore[arg-type]
    return Nemesis(
        setting=setting, recorder=None, journal=None, stream=Stream(1, "nemesis"),
        last_ack_ns=int, notice=lambda _: None, on_healthy=world.tell,
    )  # type: ignore[arg-type]  # fmt: skip


def test_a_look_waits_anew_where_the_leader_steps_down_meanwhile():
    world = Election()
    nemesis = nemesis_of(world)
    found = asyncio.run(nemesis.invoke(Op(f="look", value={}), {}))
    assert nemesis._nodes(["leader"]) == ["n2"], found.value
    assert sorted(nemesis._nodes(["follower", "other"])) == ["n0", "n1"]
    assert world.told == 2


def test_who_is_drawn_is_none_of_the_others():
    """A link of a node with itself is none, and cannot be cut."""
    nemesis = nemesis_of(Election())
    nemesis._roles = {"leader": "n0", "follower": "n1", "other": "n2"}
    for targets in (["any", "any"], ["any", "leader"], ["follower", "any"], ["other", "any"]):
        for _ in range(12):
            assert len(set(nemesis._nodes(targets))) == 2, targets
    assert {nemesis._nodes(["any"])[0] for _ in range(30)} == set(NODES)


@pytest.mark.parametrize(
    ("roles", "problem"),
    [
        ({}, "not switched by hand: no node is follower"),
        ({"follower": "n1"}, "not switched by hand: n0 runs: a second master is refused"),
    ],
)
def test_a_switch_that_nobody_made_is_a_problem_of_the_run(roles, problem):
    """It is no fault, so that no witness misses it: what a scenario hunts did not happen."""
    made = []

    async def make_master(node: str) -> None:
        made.append(node)
        raise ClusterFailed("n0 runs: a second master is refused")

    world = Election()
    world.make_master = make_master
    nemesis = nemesis_of(world)
    nemesis._roles = roles
    asyncio.run(nemesis.invoke(Op(f="switch", value={"targets": ["follower"]}), {}))
    assert nemesis.problems == [problem]
    assert made == list(roles.values())


def test_a_step_that_fails_as_nobody_foresaw_is_a_problem_of_the_run():
    """A look that failed binds no roles: the faults behind it hit those of before."""

    async def tell() -> None:
        raise KeyError("brokerAddrs")

    world = Election()
    world.tell = tell
    nemesis = nemesis_of(world)
    with pytest.raises(KeyError):
        asyncio.run(nemesis.invoke(Op(f="look", value={}), {}))
    assert nemesis.problems == ["a step of the timeline failed: look: KeyError: 'brokerAddrs'"]

"""To which nodes a look binds the roles of a timeline."""

import asyncio

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


def test_a_look_waits_anew_where_the_leader_steps_down_meanwhile():
    world = Election()
    setting = Setting(cluster=world, probe=world, clock=world)  # type: ignore[arg-type]
    nemesis = Nemesis(
        setting=setting, recorder=None, journal=None, stream=Stream(1, "nemesis"),
        last_ack_ns=int, notice=lambda _: None, on_healthy=world.tell,
    )  # type: ignore[arg-type]  # fmt: skip
    found = asyncio.run(nemesis.invoke(Op(f="look", value={}), {}))
    assert nemesis._nodes(["leader"]) == ["n2"], found.value
    assert sorted(nemesis._nodes(["follower", "other"])) == ["n0", "n1"]
    assert world.told == 2

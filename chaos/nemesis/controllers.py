"""The faults by which controllers are not reached: by brokers, or by each other.

That they are cut off is seen as a cut of links is; those who are killed or frozen are in `servers`.
Source: spec/proof.md N1, N4.
"""

from typing import Final

from chaos.backends.base import controller_link_names, link_names
from chaos.nemesis.base import Setting
from chaos.nemesis.partition import Cut
from chaos.nemesis.servers import leading_first, overseen

ISOLATE: Final = "controller_isolate"


def cut_controllers(setting: Setting, *nodes: str) -> Cut:
    """Return the fault by which brokers reach no controller, but clients and each other."""
    names = list(overseen(setting, "controller_cut").controllers)
    return Cut(setting, "controller_cut", nodes, controller_link_names(nodes, names))


class Isolation(Cut):
    """``count`` controllers reach no other one, the one that leads first; brokers reach them all.

    Of three, two that are cut off decide nothing, nor does the third. One that is cut off alone is
    a former leader that still takes questions, while the other two go on.
    """

    def __init__(self, setting: Setting, *, count: float) -> None:
        self._overseen = overseen(setting, ISOLATE)
        self._among = link_names(list(self._overseen.controllers))
        super().__init__(setting, ISOLATE, (), self._among)
        self._count = int(count)

    async def probe_before(self) -> None:
        """Choose them."""
        self.targets = (await leading_first(self._overseen))[: self._count]
        hit = set(self.targets)
        self.links = tuple(link for link in self._among if hit & set(link.split(">")))
        await super().probe_before()

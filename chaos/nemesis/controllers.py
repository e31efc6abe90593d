"""The fault by which brokers reach no controller; those of controllers are in `servers`.

That brokers are cut off is seen as a cut of links is. Source: spec/proof.md N1.
"""

from chaos.backends.base import controller_link_names
from chaos.nemesis.base import Setting
from chaos.nemesis.partition import Cut
from chaos.nemesis.servers import overseen


def cut_controllers(setting: Setting, *nodes: str) -> Cut:
    """Return the fault by which brokers reach no controller, but clients and each other."""
    names = list(overseen(setting, "controller_cut").controllers)
    return Cut(setting, "controller_cut", nodes, controller_link_names(nodes, names))

"""Faults of links through which nothing passes: one link, one direction, a node, the clients.

Witness: the links' counters. While the fault is on nothing may pass on the links concerned, and
something must have been withheld (somebody tried): of each pair of brokers that run, or, where one
end is a client or a name server, of any. After the heal bytes pass again, or the fault counts as
not lifted. Numbers of a witness: before, bytes that ever passed; during, bytes withheld; after,
bytes that passed since.

Source: spec/proof.md N1, N2, N4, N5.
"""

from collections.abc import Sequence

from chaos.backends.base import CLIENTS, both_ways
from chaos.nemesis.base import Setting
from chaos.nemesis.links import LinkFault

OUTER = ("ns", "c")
"""How the names of name servers and controllers begin; brokers' are n and a number."""


class Cut(LinkFault):
    """Nothing passes on a set of directed links."""

    def __init__(
        self,
        setting: Setting,
        kind: str,
        targets: Sequence[str],
        links: Sequence[str],
        *,
        quiet: bool = False,
    ) -> None:
        super().__init__(setting, kind, targets, links, quiet=quiet)
        if kind == "oneway":
            self.directions = ("forward",)
        self.witness.probe = "bytes on the links: passed before, withheld, passed after"
        self._outer = any(CLIENTS in link or link.split(">")[1].startswith(OUTER) for link in links)

    async def apply(self) -> None:
        """Cut the links."""
        links = self._setting.cluster.links
        self._at_on = await (
            links.cut_one_way(self.links) if self.kind == "oneway" else links.cut(self.links)
        )
        self.witness.before = float(self.sum(self._at_on, "bytes"))

    async def undo(self) -> None:
        """See that something was withheld and nothing passed; heal the links."""
        at_off = await self._setting.cluster.links.counters()
        held = {
            pair: self.grown(at_off, "withheld_bytes", links)
            for pair, links in self.pairs().items()
        }
        self.witness.during = float(sum(held.values()))
        tried = [count > 0 for pair, count in held.items() if self.both_run(pair)]
        enough = any(tried) if self._outer else all(tried)
        passed = self.grown(at_off, "bytes")
        self.witness.effective = passed == 0 and sum(held.values()) > 0 and enough
        await self.heal()


def cut_link(setting: Setting, a: str, b: str) -> Cut:
    """Return the fault that cuts the link between two nodes, both ways."""
    return Cut(setting, "cut", (a, b), both_ways(a, b))


def cut_one_way(setting: Setting, source: str, target: str) -> Cut:
    """Return the fault that lets nothing pass from ``source`` to ``target``."""
    return Cut(setting, "oneway", (source, target), (f"{source}>{target}",))


def isolate(setting: Setting, node: str) -> Cut:
    """Return the fault that cuts a node off from all its peers."""
    others = [n for n in setting.cluster.nodes if n != node]
    return Cut(setting, "isolate", (node,), [link for n in others for link in both_ways(node, n)])


def cut_clients(setting: Setting, *nodes: str) -> Cut:
    """Return the fault by which no client reaches these brokers.

    If these are all brokers there are, clients reach no name server either.
    """
    names = [*nodes]
    if set(nodes) == set(setting.cluster.nodes):
        names += name_servers(setting)
    return Cut(setting, "client_cut", nodes, [f"{CLIENTS}>{name}" for name in names])


def cut_name_servers(setting: Setting, *nodes: str) -> Cut:
    """Return the fault by which brokers reach no name server, and clients do."""
    return Cut(setting, "namesrv_cut", nodes, links_to_name_servers(setting, nodes), quiet=True)


def links_to_name_servers(setting: Setting, nodes: Sequence[str]) -> list[str]:
    """Return the links from brokers to name servers."""
    return [f"{node}>{server}" for node in nodes for server in name_servers(setting)]


def name_servers(setting: Setting) -> list[str]:
    """Return the names of the name servers, as links have them."""
    return [f"ns{at}" for at in range(len(setting.cluster.name_server_addrs()))]

"""Faults of links: cut one link, cut one direction, isolate a node from all others.

Witness: the links' counters. While the fault is on nothing may pass on the links concerned, and of
each pair of nodes that run something must have been withheld (somebody tried); after the heal bytes
pass again, or the fault counts as not lifted. Numbers of a witness: before, bytes that ever passed;
during, bytes withheld; after, bytes that passed since.

Source: spec/proof.md N1, N2, N4.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from chaos.backends.base import ClusterFailed, LinkState, both_ways
from chaos.nemesis.base import Setting, Witness
from chaos.nemesis.wait import until

AFTER_TIMEOUT_S = 6.0


class Cut:
    """Nothing passes on a set of directed links."""

    def __init__(
        self, setting: Setting, kind: str, targets: Sequence[str], links: Sequence[str]
    ) -> None:
        self.kind = kind
        self.targets = tuple(targets)
        self.witness = Witness(probe="bytes on the links: passed before, withheld, passed after")
        self.links = tuple(links)
        self._setting = setting
        self._at_on: Mapping[str, LinkState] = {}
        self._at_heal = 0

    def undo_entry(self) -> Mapping[str, Any]:
        """Return the journal entry."""
        return {"do": "heal", "links": list(self.links)}

    async def probe_before(self) -> None:
        """Nothing to do: cutting answers with the counters."""

    async def apply(self) -> None:
        """Cut the links."""
        links = self._setting.cluster.links
        self._at_on = await (
            links.cut_one_way(self.links) if self.kind == "oneway" else links.cut(self.links)
        )
        self.witness.before = float(self._sum(self._at_on, "bytes"))

    async def probe_during(self) -> None:
        """Nothing to do: what was withheld is read when the cut ends."""

    async def undo(self) -> None:
        """See that something was withheld and nothing passed; heal the links."""
        at_off = await self._setting.cluster.links.counters()
        passed = self._sum(at_off, "bytes") - self._sum(self._at_on, "bytes")
        held = {
            pair: self._sum(at_off, "withheld_bytes", links)
            - self._sum(self._at_on, "withheld_bytes", links)
            for pair, links in self._pairs().items()
        }
        self.witness.during = float(sum(held.values()))
        tried = all(count > 0 for pair, count in held.items() if self._run(pair))
        self.witness.effective = passed == 0 and sum(held.values()) > 0 and tried
        healed = await self._setting.cluster.links.heal(self.links)
        self._at_heal = self._sum(healed, "bytes")

    async def probe_after(self) -> None:
        """See that bytes pass again."""

        async def passes() -> bool:
            now = await self._setting.cluster.links.counters()
            self.witness.after = float(self._sum(now, "bytes") - self._at_heal)
            return self.witness.after > 0

        # Where a node at the end of the link is down nothing can pass; that is no failed heal.
        down = not any(self._run(pair) for pair in self._pairs())
        back = await until(passes, 0.3 if down else AFTER_TIMEOUT_S)
        if not back and not down and self.witness.during:
            raise ClusterFailed(f"nothing passes between {' and '.join(self.targets)} again")

    def _pairs(self) -> dict[tuple[str, str], list[str]]:
        """Return the links by the two nodes that they join."""
        pairs: dict[tuple[str, str], list[str]] = {}
        for name in self.links:
            one, _, other = name.partition(">")
            pairs.setdefault((min(one, other), max(one, other)), []).append(name)
        return pairs

    def _run(self, pair: tuple[str, str]) -> bool:
        return all(self._setting.cluster.state(node) == "running" for node in pair)

    def _sum(self, states: Mapping[str, LinkState], column: str, links: Sequence[str] = ()) -> int:
        directions = ("forward",) if self.kind == "oneway" else ("forward", "backward")
        return sum(int(states[name][d][column]) for name in links or self.links for d in directions)


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

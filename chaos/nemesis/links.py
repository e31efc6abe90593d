"""What all faults of links have in common: their links, the counters, the look after the heal.

Source: spec/proof.md 2.1 (proxy), 4.3 (witness).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from chaos.backends.base import ClusterFailed, LinkState
from chaos.nemesis.base import Setting, Witness
from chaos.nemesis.wait import until

AFTER_TIMEOUT_S = 6.0
DOWN_TIMEOUT_S = 0.3
OF_LINKS = frozenset({"accepted", "flaps"})
"""Counters of a link; the others are those of its directions."""


class LinkFault:
    """A fault of a set of directed links.

    ``quiet``: so little is said there that nothing need pass soon after the heal.
    """

    directions: tuple[str, ...] = ("forward", "backward")
    leaves_rule: bool = True
    """Whether it lasts until it is lifted. What is over at once has nothing to lift, and its links
    may be another fault's by then."""

    def __init__(
        self,
        setting: Setting,
        kind: str,
        targets: Sequence[str],
        links: Sequence[str],
        *,
        quiet: bool = False,
    ) -> None:
        self.kind = kind
        self.targets = tuple(targets)
        self.links = tuple(links)
        self.witness = Witness(probe="")
        self._setting = setting
        self._quiet = quiet
        self._at_on: Mapping[str, LinkState] = {}
        self._at_heal = 0

    def undo_entry(self) -> Mapping[str, Any]:
        """Return the journal entry."""
        return {"do": "heal", "links": list(self.links) if self.leaves_rule else []}

    async def probe_before(self) -> None:
        """See that no other fault has the links. Errors: ClusterFailed where one has.

        A link has one rule: the other's would end with the begin of this one, or with its end.
        """
        now = await self._setting.cluster.links.counters()
        ruled = [name for name in self.links if now[name].get("ruled")]
        if ruled:
            raise ClusterFailed(f"another fault that is on has {', '.join(ruled)}")

    async def probe_during(self) -> None:
        """Nothing to do: what happened is read when the fault ends."""

    async def heal(self) -> None:
        """Lift the fault. Errors: ClusterFailed if a link still withholds."""
        links = self._setting.cluster.links
        if not self.leaves_rule:
            self._at_heal = self.sum(await links.counters(), "bytes")
            return
        healed = await links.heal(self.links)
        shut = [name for name in self.links if healed[name].get("withholding")]
        if shut:
            raise ClusterFailed(f"{', '.join(shut)} still withhold after the heal")
        self._at_heal = self.sum(healed, "bytes")

    async def probe_after(self) -> None:
        """See that bytes pass again. Errors: ClusterFailed if none do where some should."""

        async def passes() -> bool:
            now = await self._setting.cluster.links.counters()
            self.witness.after = float(self.sum(now, "bytes") - self._at_heal)
            return self.witness.after > 0

        # Where a node at the end of the link is down nothing can pass; that is no failed heal.
        down = not any(self.both_run(pair) for pair in self.pairs())
        back = await until(passes, DOWN_TIMEOUT_S if down or self._quiet else AFTER_TIMEOUT_S)
        if not (back or down or self._quiet) and self.witness.during:
            raise ClusterFailed(f"nothing passes between {' and '.join(self.targets)} again")

    def pairs(self) -> dict[tuple[str, str], list[str]]:
        """Return the links by the two processes that they join."""
        pairs: dict[tuple[str, str], list[str]] = {}
        for name in self.links:
            one, _, other = name.partition(">")
            pairs.setdefault((min(one, other), max(one, other)), []).append(name)
        return pairs

    def both_run(self, pair: tuple[str, str]) -> bool:
        """Return whether the brokers of a pair run; clients and name servers do."""
        cluster = self._setting.cluster
        return all(cluster.state(node) == "running" for node in pair if node in cluster.nodes)

    def sum(self, states: Mapping[str, LinkState], column: str, links: Sequence[str] = ()) -> int:
        """Return the sum of a counter over the links, of the fault if none are named."""
        names = links or self.links
        if column in OF_LINKS:
            return sum(int(states[name][column]) for name in names)
        return sum(int(states[name][d][column]) for name in names for d in self.directions)

    def grown(self, states: Mapping[str, LinkState], column: str, links: Sequence[str] = ()) -> int:
        """Return by how much a counter has grown since the fault was applied."""
        return self.sum(states, column, links) - self.sum(self._at_on, column, links)

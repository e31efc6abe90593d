"""Faults of links through which things pass, but otherwise than they were sent.

Witness: what the proxy counted of it between the command and its end, on the links concerned, and
that something passed meanwhile. Where the other side must refuse what it gets (a changed frame;
where members seal what they say, also one that comes twice, late or not at all) the connection must
have ended and been made again, or the fault does not count: then nobody looked. Numbers of a
witness: before, bytes that ever passed; during, what `Proof.column` says; after, bytes since.

Source: spec/proof.md N6 to N13.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from chaos.backends.base import ClusterFailed, LinkState, ShapedLinks, both_ways, link_names
from chaos.nemesis.base import Setting
from chaos.nemesis.links import LinkFault
from chaos.nemesis.partition import links_to_name_servers
from chaos.net.rules import CODES

Parameters = Mapping[str, float | str]
SLACK_BYTES = 64 * 1024
"""What may have been past the rate already when it began to hold."""
FLAPS_MIN = 2


@dataclass(frozen=True, slots=True)
class Seen:
    """What the counters of a fault have grown by, and for how long it was on."""

    count: Callable[[str], int]
    seconds: float
    parameters: Parameters
    lanes: int
    """Directions of links concerned."""
    most: int
    """Bytes that passed in that one of them in which most did: each has a rate of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What shows that a fault took effect: a counter that grew, and what else must hold."""

    column: str
    also: Callable[[Seen], bool] = field(default=lambda _seen: True)
    refused: bool = False
    """Whether the other side ends the connection; where members seal, it always does."""
    sealed_refuse: bool = True
    """Whether members that seal what they say notice it at all."""


def _is_late(seen: Seen) -> bool:
    mean_ms = seen.count("late_us") / 1000 / max(1, seen.count("delayed"))
    return mean_ms >= 0.9 * float(seen.parameters["ms"])


def _is_narrow(seen: Seen) -> bool:
    allowed = float(seen.parameters["kib_s"]) * 1024 * seen.seconds
    return seen.most <= 1.1 * allowed + SLACK_BYTES


def _comes_and_goes(seen: Seen) -> bool:
    links = seen.lanes // 2
    return seen.count("flaps") >= FLAPS_MIN * links and seen.count("bytes") > 0


PROOFS: Final[Mapping[str, Proof]] = {
    "delay": Proof(column="delayed", also=_is_late, sealed_refuse=False),
    "narrow": Proof(column="slowed_bytes", also=_is_narrow, sealed_refuse=False),
    "reset": Proof(column="resets", refused=True),
    "duplicate": Proof(column="duplicated"),
    "reorder": Proof(column="reordered"),
    "replay": Proof(column="replayed"),
    "corrupt": Proof(column="corrupted", refused=True),
    "drop": Proof(column="dropped"),
    "flap": Proof(column="withheld_bytes", also=_comes_and_goes, sealed_refuse=False),
    "namesrv_delay": Proof(column="delayed", also=_is_late, sealed_refuse=False),
    "namesrv_reset": Proof(column="resets", refused=True, sealed_refuse=False),
}


AT_ONCE: Final = frozenset({"namesrv_reset"})
"""Kinds that are over with their command: they leave no rule."""


def command_of(kind: str, parameters: Parameters) -> dict[str, Any]:
    """Return the proxy's command for a fault. Errors: KeyError for a kind that has none."""
    numbers = {name: float(value) for name, value in parameters.items() if name != "of"}
    rules: dict[str, Callable[[], dict[str, Any]]] = {
        "delay": lambda: {"delay_ms": numbers["ms"], "jitter_ms": numbers["jitter_ms"]},
        "namesrv_delay": lambda: {"delay_ms": numbers["ms"], "jitter_ms": numbers["jitter_ms"]},
        "narrow": lambda: {"rate_bytes_s": numbers["kib_s"] * 1024},
        "reset": lambda: {"reset_after_bytes": int(numbers["after_bytes"])},
        "duplicate": lambda: {"dup_p": numbers["share"]},
        "reorder": lambda: {"reorder_p": numbers["share"]},
        "replay": lambda: {"replay_p": numbers["share"]},
        "corrupt": lambda: {"corrupt_p": numbers["share"]},
        "drop": lambda: {"drop_codes": sorted(CODES[str(parameters["of"])])},
    }
    if kind == "flap":
        return {"cmd": "flap", "cut_ms": numbers["cut_ms"], "open_ms": numbers["open_ms"]}
    if kind == "namesrv_reset":
        return {"cmd": "rst"}
    return {"cmd": "shape", "rule": rules[kind]()}


class Shape(LinkFault):
    """Frames pass on a set of links, but otherwise than they were sent."""

    def __init__(
        self,
        setting: Setting,
        kind: str,
        targets: Sequence[str],
        links: Sequence[str],
        parameters: Parameters,
    ) -> None:
        super().__init__(setting, kind, targets, links, quiet=kind.startswith("namesrv_"))
        self._proof = PROOFS[kind]
        self.leaves_rule = kind not in AT_ONCE
        self._parameters = parameters
        self._on_ns = 0
        self._at_ruled: Mapping[str, LinkState] = {}
        said = self._proof.column.replace("_", " ")
        self.witness.probe = f"on the links: bytes before, {said}, bytes after"

    async def probe_before(self) -> None:
        """See that links can do it. Errors: ClusterFailed where they know no such thing."""
        self._shaped()
        await super().probe_before()

    async def apply(self) -> None:
        """Give the proxy its command."""
        self._at_on = await self._setting.cluster.links.counters()
        self.witness.before = float(self.sum(self._at_on, "bytes"))
        self._on_ns = self._setting.clock.monotonic_ns()
        command = command_of(self.kind, self._parameters)
        await self._shaped().command(command.pop("cmd"), self.links, **command)
        # What passed while the command was under way was not held to it.
        self._at_ruled = await self._setting.cluster.links.counters()

    async def undo(self) -> None:
        """See what was counted; lift the rule."""
        at_off = await self._setting.cluster.links.counters()
        seconds = (self._setting.clock.monotonic_ns() - self._on_ns) / 1e9
        lanes = len(self.links) * len(self.directions)

        def grown(column: str) -> int:
            more = self.grown(at_off, column)
            return more + (self._reset_by_command(at_off) if column == "resets" else 0)

        seen = Seen(grown, seconds, self._parameters, lanes, self._most_bytes(at_off))
        counted = grown(self._proof.column)
        self.witness.during = float(counted)
        must_end = self._proof.refused or (self._proof.sealed_refuse and self._shaped().sealed)
        was_refused = not must_end or grown("accepted") > 0
        self.witness.effective = counted > 0 and was_refused and self._proof.also(seen)
        await self.heal()

    def _most_bytes(self, states: Mapping[str, LinkState]) -> int:
        lanes = [(name, way) for name in self.links for way in self.directions]
        return max(int(states[n][w]["bytes"] - self._at_ruled[n][w]["bytes"]) for n, w in lanes)

    def _reset_by_command(self, states: Mapping[str, LinkState]) -> int:
        return sum(states[n]["resets"] - self._at_on[n]["resets"] for n in self.links)

    def _shaped(self) -> ShapedLinks:
        links = self._setting.cluster.links
        if not isinstance(links, ShapedLinks):
            raise ClusterFailed(f"{self.kind}: links by {links.method} only pass or do not")
        return links


def shape_peers(kind: str) -> Callable[..., Shape]:
    """Return what makes a fault of a kind: of a node's links, of one pair's, or of all."""

    def make(setting: Setting, *nodes: str, **parameters: float | str) -> Shape:
        cluster = setting.cluster
        if set(nodes) == set(cluster.nodes):
            links = link_names(cluster.nodes)
        elif len(nodes) == 2:
            links = both_ways(*nodes)
        else:
            links = [one for n in cluster.nodes if n != nodes[0] for one in both_ways(nodes[0], n)]
        return Shape(setting, kind, nodes, links, parameters)

    return make


def shape_name_servers(kind: str) -> Callable[..., Shape]:
    """Return what makes a fault of a kind of the links from brokers to name servers."""

    def make(setting: Setting, *nodes: str, **parameters: float | str) -> Shape:
        return Shape(setting, kind, nodes, links_to_name_servers(setting, nodes), parameters)

    return make

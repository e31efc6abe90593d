"""Links between containers, cut by the packet filter inside the receiving broker's namespace.

A link ``a>b`` is the connections that a dials to b's Raft port, as in `chaos.net.link`: *forward*
are the packets from a to that port, dropped and counted where they arrive, in b; *backward* the
answers, dropped and counted in a. Each namespace gets one table of our own, so nothing foreign is
touched; a packet cut is silence, not a reset. Needs root on the engine's host, nft and nsenter.

Source: spec/proof.md 2.1 (nsenter from the host, one table of one's own).
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.backends.base import ClusterFailed, LinkState, link_names
from chaos.backends.engine import call, container_state, inspect

TABLE: Final = "ledgermq_chaos"
DIRECTIONS: Final = ("forward", "backward")
_OURS: Final = ("table", "inet", TABLE)
_OUTCOMES: Final = ("bytes", "withheld_bytes")
_FIELDS: Final = {"forward": "dport", "backward": "sport"}


def unavailable() -> str | None:
    """Return why links can not be cut here; None if they can."""
    missing = [tool for tool in ("nft", "nsenter") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} not found (Debian: nftables, util-linux)"
    return None if os.geteuid() == 0 else "root is needed to enter the containers' namespaces"


class NetfilterLinks:
    """`chaos.backends.base.Links` of containers. Survives restarts of a node (`install`)."""

    method = "nft"

    def __init__(self, addresses: Mapping[str, str], raft_port: int) -> None:
        self._addresses = dict(addresses)
        self._port = raft_port
        self._containers: dict[str, str] = {}
        self._cut: dict[str, set[str]] = {direction: set() for direction in DIRECTIONS}
        self._past: dict[tuple[str, str, str], int] = {}

    async def install(self, node: str, container: str) -> None:
        """Put our table into the namespace of a node that has just started, cuts included."""
        self._containers[node] = container
        if unavailable() is None:
            await self._nft(node, self._table(node) + self._sets(node))

    async def remember(self, node: str) -> None:
        """Keep the counts of a node whose namespace is about to vanish."""
        self._past |= await self._read(node)
        self._containers.pop(node, None)

    async def cut(self, links: Sequence[str]) -> Mapping[str, LinkState]:
        """Drop all packets of the links' connections."""
        return await self._change(links, DIRECTIONS, add=True)

    async def cut_one_way(self, links: Sequence[str]) -> Mapping[str, LinkState]:
        """Drop what the dialling node sends; the other node's own connections are untouched."""
        return await self._change(links, ("forward",), add=True)

    async def heal(self, links: Sequence[str]) -> Mapping[str, LinkState]:
        """Let everything pass again; idempotent."""
        return await self._change(links, DIRECTIONS, add=False)

    async def counters(self) -> Mapping[str, LinkState]:
        """Return the bytes that passed and that were dropped, by link and direction."""
        counts = dict(self._past)
        for node in self._addresses:
            counts |= await self._read(node)
        return {
            name: {
                direction: {
                    outcome: counts.get((name, direction, outcome), 0) for outcome in _OUTCOMES
                }
                for direction in DIRECTIONS
            }
            for name in link_names(list(self._addresses))
        }

    async def _change(
        self, links: Sequence[str], directions: Sequence[str], *, add: bool
    ) -> Mapping[str, LinkState]:
        why = unavailable()
        if why is not None and add:
            raise ClusterFailed(f"links can not be cut: {why}")
        for direction in directions:
            change = self._cut[direction].update if add else self._cut[direction].difference_update
            change(links)
        for node in self._containers if why is None else ():
            if self._alive(node):
                await self._nft(node, self._sets(node))
        return await self.counters()

    def _alive(self, node: str) -> bool:
        return node in self._containers and container_state(self._containers[node]) != "gone"

    def _link(self, node: str, peer: str, direction: str) -> str:
        """Return the link of which ``node`` receives the packets that come from ``peer``."""
        return f"{peer}>{node}" if direction == "forward" else f"{node}>{peer}"

    def _table(self, node: str) -> str:
        """Return the script that makes the table: a set and two counters a direction and peer."""
        lines = [f"add table inet {TABLE}", f"delete table inet {TABLE}", f"table inet {TABLE} {{"]
        rules = []
        for direction in DIRECTIONS:
            lines.append(f"set {direction} {{ type ipv4_addr; }}")
            for peer, address in self._addresses.items():
                if peer == node:
                    continue
                lines += [f"counter {direction}_{outcome}_{peer} {{ }}" for outcome in _OUTCOMES]
                match = f"ip saddr {address} tcp {_FIELDS[direction]} {self._port}"
                held = f"{direction}_withheld_bytes_{peer}"
                rules.append(f"{match} ip saddr @{direction} counter name {held} drop")
                rules.append(f"{match} counter name {direction}_bytes_{peer}")
        hook = "type filter hook input priority -10; policy accept;"
        return "\n".join([*lines, f"chain input {{ {hook}", *rules, "}", "}", ""])

    def _sets(self, node: str) -> str:
        """Return the script that makes the sets of ``node`` what they should be."""
        lines = []
        for direction in DIRECTIONS:
            lines.append(f"flush set inet {TABLE} {direction}")
            cut = [
                address
                for peer, address in self._addresses.items()
                if peer != node and self._link(node, peer, direction) in self._cut[direction]
            ]
            if cut:
                lines.append(f"add element inet {TABLE} {direction} {{ {', '.join(cut)} }}")
        return "\n".join([*lines, ""])

    async def _read(self, node: str) -> dict[tuple[str, str, str], int]:
        """Return the counts of a node, those of its earlier namespaces included."""
        if unavailable() is not None or not self._alive(node):
            return {}
        listed = json.loads(await self._nft(node, None, "-j", "list", "counters", *_OURS))
        counts = {}
        for item in listed["nftables"]:
            if "counter" not in item:
                continue
            direction, rest = item["counter"]["name"].split("_", 1)
            outcome, _, peer = rest.rpartition("_")
            key = (self._link(node, peer, direction), direction, outcome)
            counts[key] = self._base(key) + int(item["counter"]["bytes"])
        return counts

    def _base(self, key: tuple[str, str, str]) -> int:
        return self._past.get(key, 0)

    async def _nft(self, node: str, script: str | None, *arguments: str) -> str:
        pid = inspect(self._containers[node], "{{.State.Pid}}")
        if pid in {"", "0"}:
            raise ClusterFailed(f"{node} has no process whose namespace could be entered")
        return await call(
            ["nsenter", "-t", pid, "-n", "nft", *(arguments or ("-f", "-"))], stdin=script
        )

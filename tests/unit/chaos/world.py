"""A cluster that does what it is told, or only says so: for the witnesses of faults."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.backends.base import link_names
from chaos.nemesis.base import Fault, Setting
from chaos.probe import NodeStatus
from chaos.shim.control import Control

NODES = ("n0", "n1", "n2")
SECOND = 1_000_000_000


@dataclass
class Node:
    """A process: which boot, and what the kernel and a question would say of it."""

    boot: int = 1
    state: str = "running"


@dataclass
class World:
    """Cluster, probe, clock and links in one; ``broken``: the commands that do nothing."""

    broken: set[str] = field(default_factory=set)
    nodes: dict[str, Node] = field(default_factory=lambda: {n: Node() for n in NODES})
    last_seen: dict[str, NodeStatus] = field(default_factory=dict)
    now: int = 100 * SECOND
    counts: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    links: "World" = None  # type: ignore[assignment]
    root: Path = Path("nowhere")
    own_pid: int = 0
    expected: set[str] = field(default_factory=set)
    backend: str = "local"
    log_format: str = "dledger"

    def __post_init__(self) -> None:
        self.links = self
        self.counts = {
            name: {d: {"bytes": 10, "withheld_bytes": 0} for d in ("forward", "backward")}
            for name in link_names(NODES)
        }
        self.is_cut: dict[str, tuple[str, ...]] = {}

    def monotonic_ns(self) -> int:
        return self.now

    def wait(self) -> None:
        """Let two seconds pass: nodes talk over their links, the poller asks everybody."""
        self.now += 2 * SECOND
        for name, count in self.counts.items():
            source, _, target = name.partition(">")
            up = all(self.nodes[n].state == "running" for n in (source, target))
            for way in ("forward", "backward") if up else ():
                count[way]["withheld_bytes" if way in self.is_cut.get(name, ()) else "bytes"] += 5
        for name in NODES:
            self.last_seen[name] = answer_of(self, name) or self.last_seen.get(name)  # type: ignore[assignment]
        self.last_seen = {n: s for n, s in self.last_seen.items() if s is not None}

    async def ask(self, node: str) -> NodeStatus:
        return answer_of(self, node) or NodeStatus(node=node, t_ns=self.now, ok=False)

    def state(self, node: str) -> str:
        return self.nodes[node].state

    async def kill(self, node: str) -> None:
        if "kill" not in self.broken:
            self.nodes[node].state = "gone"

    async def terminate(self, node: str) -> None:
        if "terminate" not in self.broken:
            self.nodes[node].state = "gone"

    def directory(self, node: str) -> Path:
        return self.root / node

    def pid(self, node: str) -> int:
        return self.own_pid

    def expect_exit(self, node: str, *, may_end: bool = True) -> None:
        (self.expected.add if may_end else self.expected.discard)(node)

    def shim(self, node: str) -> Control:
        return Control(self.root / f"{node}.shim")

    def healthy(self) -> bool:
        return all(node.state == "running" for node in self.nodes.values())

    async def restart(self, node: str) -> None:
        if "restart" not in self.broken and self.nodes[node].state == "gone":
            self.nodes[node] = Node(boot=self.nodes[node].boot + 1)

    async def pause(self, node: str) -> None:
        if "pause" not in self.broken:
            self.nodes[node].state = "stopped"

    async def resume(self, node: str) -> None:
        if "resume" not in self.broken:
            self.nodes[node].state = "running"

    def _copy(self) -> dict[str, Any]:
        return {n: {d: dict(c) for d, c in ways.items()} for n, ways in self.counts.items()}

    async def cut(self, links: list[str]) -> dict[str, Any]:
        if "cut" not in self.broken:
            self.is_cut |= dict.fromkeys(links, ("forward", "backward"))
        return self._copy()

    async def cut_one_way(self, links: list[str]) -> dict[str, Any]:
        if "cut" not in self.broken:
            self.is_cut |= dict.fromkeys(links, ("forward",))
        return self._copy()

    async def heal(self, links: list[str]) -> dict[str, Any]:
        if "heal" not in self.broken:
            self.is_cut = {}
        found = self._copy()
        self.wait()
        return found

    async def counters(self) -> dict[str, Any]:
        return self._copy()


def answer_of(world: World, name: str) -> NodeStatus | None:
    node = world.nodes[name]
    if node.state != "running":
        return None
    return NodeStatus(node=name, t_ns=world.now, ok=True, boot_id=f"{name}-{node.boot}")


def setting_of(world: World) -> Setting:
    return Setting(cluster=world, probe=world, clock=world)  # type: ignore[arg-type]


def lives(world: World, fault: Fault, between=lambda world: None) -> bool:
    """Apply and lift a fault; ``between`` happens while it is on. Return whether it counts."""

    async def body() -> None:
        await fault.probe_before()
        await fault.apply()
        await fault.probe_during()
        world.wait()
        between(world)
        await fault.undo()
        await fault.probe_after()

    asyncio.run(body())
    return fault.witness.effective

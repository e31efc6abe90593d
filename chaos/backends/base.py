"""What a scenario may ask of a cluster, wherever it runs.

Implementations: `chaos.backends.local` (processes and a proxy per link); containers follow the
same Protocol (kill and pause by the engine, links cut in the node's network namespace). Knows
nothing of faults, witnesses or workloads. Source: spec/proof.md 4.1 (backends).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from chaos.catalogue.contracts import RAFT
from chaos.shim.control import Control

KEEP_THE_LOG: Final = {"cleanResourceInterval": "0"}
"""Brokers neither drop messages nor refuse them for the level of this machine's disk: the logs are
evidence."""


class ClusterFailed(Exception):  # noqa: N818 - it says what happened
    """The cluster did not do what it was asked to in time. Says which node and where its log is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """The shape of a cluster."""

    run: Path
    nodes: tuple[str, ...] = ("n0", "n1", "n2")
    name_servers: int = 2
    group: str = "RaftGroup0"
    flush: str = "ASYNC_FLUSH"
    mutant: str | None = None
    """Name of a planted bug; ``python -m mutants`` says whether a broker has it."""
    seed: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further broker settings, RocketMQ's keys."""
    sealed: bool = False
    """Whether the brokers have a key by which they seal what they say to each other."""
    shimmed: bool = False
    """Whether a library stands between each broker and its disk and clock."""
    every_link: bool = False
    """Whether clients and name servers are reached through links that can be broken, too."""
    mode: str = RAFT
    """How the brokers replicate: `chaos.catalogue.contracts.MODES`."""


LinkState = Mapping[str, Any]


class Links(Protocol):
    """The network between brokers. Links are named ``from>to``; errors: `ClusterFailed`."""

    @property
    def method(self) -> str:
        """How links are broken, as the ``faults`` table names it."""
        ...

    async def cut(self, links: Sequence[str]) -> Mapping[str, LinkState]:
        """Let nothing pass; return the counters of all links."""
        ...

    async def cut_one_way(self, links: Sequence[str]) -> Mapping[str, LinkState]:
        """Let nothing pass from the first node of each link to the second."""
        ...

    async def heal(self, links: Sequence[str]) -> Mapping[str, LinkState]:
        """Lift what was done to the links; idempotent."""
        ...

    async def counters(self) -> Mapping[str, LinkState]:
        """Return the counters of all links by name."""
        ...


@runtime_checkable
class ShapedLinks(Protocol):
    """Links that do more than pass or not: `chaos.net.proxy` has the commands."""

    sealed: bool
    """Whether the members seal what they say, so that a changed frame ends its connection."""

    async def command(
        self, cmd: str, links: Sequence[str], **arguments: object
    ) -> Mapping[str, LinkState]:
        """Perform a command; return the counters of all links."""
        ...


@runtime_checkable
class Machine(Protocol):
    """What a cluster has whose processes and files are on this machine. Errors: `ClusterFailed`."""

    def pid(self, node: str) -> int:
        """Return the process id of a broker that runs."""
        ...

    def directory(self, node: str) -> Path:
        """Return where a broker keeps its data."""
        ...

    def expect_exit(self, node: str, *, may_end: bool = True) -> None:
        """Take it for granted that a broker that runs now may end by itself, or no longer."""
        ...

    def shim(self, node: str) -> Control:
        """Return what commands the library between a broker and its disk and clock."""
        ...


@runtime_checkable
class Served(Protocol):
    """What a cluster has whose name servers are processes of ours. Errors: `ClusterFailed`."""

    @property
    def name_servers(self) -> Mapping[str, tuple[str, int]]:
        """Return host and port of each name server by its name, as the harness reaches it."""
        ...

    async def kill_name_server(self, name: str) -> None:
        """SIGKILL a name server, with its controller if it has one; wait until it is gone."""
        ...

    async def start_name_server(self, name: str) -> None:
        """Start one that is down; return when it takes connections; idempotent."""
        ...

    async def pause_name_server(self, name: str) -> None:
        """Freeze the process of a name server."""
        ...

    async def resume_name_server(self, name: str) -> None:
        """Let a frozen one go on; idempotent."""
        ...


@runtime_checkable
class Grouped(Protocol):
    """What a cluster has whose members may leave and join. Errors: `ClusterFailed`."""

    def member_addr(self, of: str, node: str) -> str:
        """Return at which address one member finds another, by its own settings."""
        ...


@runtime_checkable
class Overseen(Served, Protocol):
    """What a cluster has whose masters controllers choose. Errors: `ClusterFailed`."""

    @property
    def controllers(self) -> Mapping[str, tuple[str, int]]:
        """Return host and port of each controller by its name, as the harness reaches it."""
        ...

    @property
    def group(self) -> str:
        """The name of the brokers, by which controllers know them."""
        ...

    def node_at(self, address: str) -> str | None:
        """Return which broker takes requests at an address, None if none of these does."""
        ...

    def node_of(self, replica: int) -> str | None:
        """Return whose directory has the id of a replica, None if none has."""
        ...

    def server_of(self, controller: str) -> str:
        """Return the name server that a controller is part of."""
        ...


class Cluster(Protocol):
    """A running group of brokers and its name servers. Errors: `ClusterFailed`."""

    @property
    def backend(self) -> str:
        """The kind of place: local, docker."""
        ...

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the brokers."""
        ...

    @property
    def log_format(self) -> str:
        """How the logs are written: `chaos.history.domains`, DLEDGER or PLAIN."""
        ...

    @property
    def links(self) -> Links:
        """The network between the brokers."""
        ...

    async def start(self) -> None:
        """Start everything; return when every node answers."""
        ...

    async def stop(self) -> None:
        """Stop the brokers gracefully, then whatever is left by force; idempotent."""
        ...

    async def kill(self, node: str) -> None:
        """SIGKILL a broker and wait until its process is gone."""
        ...

    async def terminate(self, node: str) -> None:
        """Ask a broker to end, by SIGTERM, and wait until it is gone."""
        ...

    async def pause(self, node: str) -> None:
        """Freeze a broker's process."""
        ...

    async def resume(self, node: str) -> None:
        """Let a frozen process go on; idempotent."""
        ...

    async def restart(self, node: str) -> None:
        """Start a broker that is down; does not wait until it answers; idempotent."""
        ...

    async def make_master(self, node: str) -> None:
        """Switch by hand: stop a slave and start it as the master.

        The master of before is its slave from its next start on.
        """
        ...

    def state(self, node: str) -> str:
        """Return ``running``, ``stopped`` (frozen) or ``gone``."""
        ...

    def status_addr(self, node: str) -> tuple[str, int]:
        """Return host and port at which the harness asks a broker for its status."""
        ...

    def client_addr(self, node: str) -> tuple[str, int]:
        """Return host and port at which clients are told that a broker is."""
        ...

    def name_server_addrs(self) -> tuple[str, ...]:
        """Return the name servers as clients of the harness reach them."""
        ...

    async def collect(self, node: str, target: Path) -> None:
        """Copy the data segments of a stopped broker's log into ``target``."""
        ...

    async def collect_events(self, node: str, target: Path) -> None:
        """Copy the event files of a stopped broker into ``target``; nothing if it has none."""
        ...

    async def remove(self) -> None:
        """Remove what the engine of the place keeps, once the logs are copied; idempotent."""
        ...

    def unexpected_exits(self) -> list[str]:
        """Return a line for each process that ended though nobody ended it."""
        ...


def link_names(nodes: Sequence[str]) -> list[str]:
    """Return the names of all directed links of ``nodes``."""
    return [f"{a}>{b}" for a in nodes for b in nodes if a != b]


CLIENTS: Final = "client"
"""In names of links: all clients of the run, and the harness where it is one."""


def outer_link_names(nodes: Sequence[str], name_servers: Sequence[str]) -> list[str]:
    """Return the names of the links from clients, and from brokers to name servers."""
    return [
        *(f"{CLIENTS}>{node}" for node in (*nodes, *name_servers)),
        *(f"{node}>{server}" for node in nodes for server in name_servers),
    ]


def controller_link_names(nodes: Sequence[str], controllers: Sequence[str]) -> list[str]:
    """Return the names of the links from brokers to controllers."""
    return [f"{node}>{controller}" for node in nodes for controller in controllers]


def both_ways(a: str, b: str) -> list[str]:
    """Return the two directed links between two nodes."""
    return [f"{a}>{b}", f"{b}>{a}"]

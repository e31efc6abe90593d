"""A cluster of processes on this machine: name servers, brokers, and a proxy on every broker link.

Broker i is told the proxy's ports as the addresses of its peers, so everything that i sends to j
passes the link ``i>j``. With `ClusterSpec.every_link` so does what clients say to brokers and name
servers (``client>n0``, ``client>ns0``) and brokers to name servers (``n0>ns0``): a broker listens
on another address of loopback then, and the proxy on the one that clients are told. No root.
Children die with the harness.

Source: spec/proof.md 2.1 (processes), contract of ``python -m namesrv`` and ``python -m broker``.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos.backends.base import (
    CLIENTS,
    KEEP_THE_LOG,
    ClusterFailed,
    ClusterSpec,
    LinkState,
    link_names,
    outer_link_names,
)
from chaos.backends.ports import HOST, take_ports
from chaos.backends.process import Child
from chaos.backends.ready import accepts, check_alive, deadline
from chaos.backends.sparse import copy_used_prefix
from chaos.history.domains import DLEDGER
from chaos.net.control import ProxyControl, ProxyFailed
from chaos.net.wire import RAFT_STATUS, StatusConnection
from chaos.shim.build import NotBuilt, build
from chaos.shim.control import Control

POLL_S = 0.05
STOP_TIMEOUT_S = 8.0
INNER_HOST = "127.0.0.2"
"""Where brokers listen when the proxy has their ports on `HOST`."""
SOCKET_PATH_BYTES_MAX = 100
"""Linux takes 107 bytes."""


class ProxyLinks:
    """The links of a local cluster, broken in the proxy."""

    method = "proxy"

    def __init__(self, control: ProxyControl, *, sealed: bool) -> None:
        self.sealed = sealed
        self._control = control

    async def cut(self, links: Sequence[str]) -> Mapping[str, LinkState]:
        """Let nothing pass on the links' connections, either way."""
        return await self.command("cut", links)

    async def cut_one_way(self, links: Sequence[str]) -> Mapping[str, LinkState]:
        """Let nothing pass from the dialling node to the other."""
        return await self.command("oneway", links, direction="forward")

    async def heal(self, links: Sequence[str]) -> Mapping[str, LinkState]:
        """Lift everything from the links."""
        return await self.command("heal", links)

    async def counters(self) -> Mapping[str, LinkState]:
        """Return the counters of all links."""
        return await self.command("stats", ())

    async def command(
        self, cmd: str, links: Sequence[str], **arguments: object
    ) -> Mapping[str, LinkState]:
        """Send any command of the proxy."""
        try:
            return await self._control.command(cmd, links, **arguments)
        except ProxyFailed as error:
            raise ClusterFailed(f"proxy: {error}") from error


@dataclass(slots=True)
class Node:
    """What is known of one broker."""

    name: str
    port: int
    raft_port: int
    config: Path
    directory: Path
    child: Child | None = None
    exits: list[str] = field(default_factory=list)
    control: Control | None = None
    """Of the library in its process."""


class LocalCluster:
    """`chaos.backends.base.Cluster` of local processes."""

    backend = "local"
    log_format = DLEDGER

    def __init__(self, spec: ClusterSpec) -> None:
        self.nodes = spec.nodes
        self._spec = spec
        self._socket = socket_path(spec.run)
        self._control = ProxyControl(str(self._socket))
        self.links = ProxyLinks(self._control, sealed=spec.sealed)
        self._link_ports: dict[str, int] = {}
        self._no_shim = "nobody asked for one"
        self._name_servers: list[tuple[int, Child]] = []
        self._ended: list[str] = []
        self._proxy: Child | None = None
        ports = take_ports(2 * len(spec.nodes) + spec.name_servers)
        self._ns_ports = ports[: spec.name_servers]
        broker_ports = ports[spec.name_servers :]
        self._nodes = {
            name: Node(
                name=name,
                port=broker_ports[2 * at],
                raft_port=broker_ports[2 * at + 1],
                config=spec.run / "config" / f"{name}.conf",
                directory=spec.run / "data" / name,
            )
            for at, name in enumerate(spec.nodes)
        }
        if spec.every_link:
            self._take_outer_ports()

    async def start(self) -> None:
        """Start proxy, name servers and brokers; return when all answer."""
        if self._spec.shimmed:
            await self._build_shim()
        self._link_ports |= await self._start_proxy()
        for at, port in enumerate(self._ns_ports):
            await self._start_name_server(at, port)
        for node in self._nodes.values():
            self._write_config(node)
            await self.restart(node.name)
        await asyncio.gather(*(self._await_status(node) for node in self._nodes.values()))

    async def stop(self) -> None:
        """Stop brokers, then name servers, then the proxy."""
        children = [node.child for node in self._nodes.values() if node.child is not None]
        await asyncio.gather(*map(self._end, children))
        self._control.close()
        await asyncio.gather(*(self._end(child) for _, child in self._name_servers))
        if self._proxy is not None:
            await self._proxy.stop(STOP_TIMEOUT_S)
        self._socket.unlink(missing_ok=True)
        if self._socket.parent != self._spec.run.resolve():
            with contextlib.suppress(OSError):
                self._socket.parent.rmdir()

    async def _end(self, child: Child) -> None:
        """Stop a process for good. One that ends otherwise than it should is told of."""
        gone = child.state() == "gone"
        code = await child.stop(STOP_TIMEOUT_S)
        if not gone and code not in {0, -signal.SIGKILL}:
            self._ended.append(f"{child.name} pid={child.pid} exit={code} when asked to end")

    async def kill(self, node: str) -> None:
        """SIGKILL a broker; wait until it is gone. One that ended otherwise is told of."""
        child = self._child(node)
        code = await child.kill()
        if code != -signal.SIGKILL:
            self._nodes[node].exits.append(
                f"{node} pid={child.pid} exit={code} before it was killed"
            )

    async def terminate(self, node: str) -> None:
        """SIGTERM a broker; wait until it is gone. One that has to be killed is told of."""
        child = self._child(node)
        code = await child.stop(STOP_TIMEOUT_S)
        if code != 0:
            self._nodes[node].exits.append(f"{node} pid={child.pid} exit={code} when asked to end")

    def pid(self, node: str) -> int:
        """Return the process id of a broker."""
        return self._child(node).pid

    def directory(self, node: str) -> Path:
        """Return where a broker keeps its data."""
        return self._nodes[node].directory

    def expect_exit(self, node: str, *, may_end: bool = True) -> None:
        """Take it for granted that the process that runs may end by itself, or no longer."""
        self._child(node).ending = may_end

    def shim(self, node: str) -> Control:
        """Return the control of the library in the broker's process. Errors: why there is none."""
        control = self._nodes[node].control
        if control is None:
            raise ClusterFailed(f"no library is in the process of {node}: {self._no_shim}")
        return control

    async def pause(self, node: str) -> None:
        """SIGSTOP a broker."""
        self._child(node).signal(signal.SIGSTOP)

    async def resume(self, node: str) -> None:
        """SIGCONT a broker; one that is gone is not frozen."""
        child = self._nodes[node].child
        if child is not None:
            child.signal(signal.SIGCONT)

    async def restart(self, node: str) -> None:
        """Start a broker that is down."""
        state = self._nodes[node]
        if state.child is not None and state.child.state() != "gone":
            return
        self._note_exit(state)
        broker = self._planted("broker", "-c", str(state.config))
        log = self._spec.run / "logs" / f"{node}.log"
        state.child = await Child.start(node, broker, log, settings=self._preload(state))

    def _planted(self, *program: str) -> list[str]:
        """Return the arguments that start a program, with the planted bug if there is one."""
        bug = self._spec.mutant
        return ["-m", *program] if bug is None else ["-m", "mutants", bug, "--", *program]

    async def make_master(self, node: str) -> None:
        """Refuse: the members of a Raft group elect who leads."""
        raise ClusterFailed(f"{node}: a Raft group elects who leads")

    def state(self, node: str) -> str:
        """Return running, stopped or gone."""
        child = self._nodes[node].child
        return "gone" if child is None else child.state()

    def status_addr(self, node: str) -> tuple[str, int]:
        """Return where the broker listens."""
        return self._broker_host, self._nodes[node].port

    def client_addr(self, node: str) -> tuple[str, int]:
        """Return where clients are told that it listens: that may be the proxy."""
        return HOST, self._nodes[node].port

    def name_server_addrs(self) -> tuple[str, ...]:
        """Return the name servers, behind the clients' links if there are any."""
        return self._name_servers_of(CLIENTS)

    @property
    def name_servers(self) -> Mapping[str, tuple[str, int]]:
        """Where the name servers listen, by name: not behind any link."""
        ports = zip(self._name_server_names, self._ns_ports, strict=True)
        return {name: (HOST, port) for name, port in ports}

    async def kill_name_server(self, name: str) -> None:
        """SIGKILL a name server. One that had ended by itself is told of."""
        child = self._server(name)
        self._ended += filter(None, [exit_line(child)])
        await child.kill()

    async def start_name_server(self, name: str) -> None:
        """Start a name server that is down."""
        at = self._name_server_names.index(name)
        port, child = self._name_servers[at]
        if child.state() == "gone":
            self._ended += filter(None, [exit_line(child)])
            await self._start_name_server(at, port)

    async def pause_name_server(self, name: str) -> None:
        """SIGSTOP a name server."""
        self._server(name).signal(signal.SIGSTOP)

    async def resume_name_server(self, name: str) -> None:
        """SIGCONT a name server."""
        self._server(name).signal(signal.SIGCONT)

    def member_addr(self, of: str, node: str) -> str:
        """Return the link by which one member reaches another."""
        return f"{HOST}:{self._link_ports[f'{of}>{node}']}"

    async def collect(self, node: str, target: Path) -> None:
        """Copy the used prefix of each data segment of the node's log."""
        found = [path for path in self._nodes[node].directory.rglob("data") if path.is_dir()]
        segments = [p for directory in found for p in sorted(directory.iterdir()) if is_segment(p)]
        if not segments:
            raise ClusterFailed(f"{node}: no data segments under {self._nodes[node].directory}")
        await copy_all(segments, target)

    async def collect_events(self, node: str, target: Path) -> None:
        """Copy the event files of the node."""
        found = sorted(self._nodes[node].directory.rglob("raft_event/*"))
        if found:
            await copy_all(found, target)

    def peer_addrs(self) -> list[tuple[str, int]]:
        """Return where brokers listen for each other, behind the proxies."""
        return [(HOST, node.raft_port) for node in self._nodes.values()]

    def pids(self) -> dict[str, int]:
        """Return the process ids of the brokers and name servers that were started."""
        children = [node.child for node in self._nodes.values() if node.child is not None]
        children += [child for _, child in self._name_servers]
        return {child.name: child.pid for child in children}

    def unexpected_exits(self) -> list[str]:
        """Return a line for each process that ended by itself."""
        for node in self._nodes.values():
            self._note_exit(node)
        lines = [line for node in self._nodes.values() for line in node.exits]
        others = [child for _, child in self._name_servers]
        others += [self._proxy] if self._proxy is not None else []
        return [*lines, *filter(None, map(exit_line, others)), *self._ended]

    async def remove(self) -> None:
        """Remove nothing: the data directories lie in the run and are small."""

    async def _build_shim(self) -> None:
        """Build the library and the control files; without a compiler there is neither."""
        try:
            await asyncio.to_thread(build, self._spec.run / "config" / "faults.so")
        except NotBuilt as error:
            self._no_shim = str(error)
            return
        for node in self._nodes.values():
            node.control = Control(self._spec.run / "config" / f"{node.name}.shim")

    def _preload(self, node: Node) -> dict[str, str]:
        """Return the environment by which a broker gets the library."""
        if node.control is None:
            return {}
        return {
            "LD_PRELOAD": str((self._spec.run / "config" / "faults.so").resolve()),
            "LEDGERMQ_SHIM": str(node.control.path.resolve()),
            "LEDGERMQ_SHIM_ROOT": str(node.directory.resolve()),
        }

    @property
    def _broker_host(self) -> str:
        return INNER_HOST if self._spec.every_link else HOST

    @property
    def _name_server_names(self) -> list[str]:
        return [f"ns{at}" for at in range(len(self._ns_ports))]

    def _name_servers_of(self, who: str) -> tuple[str, ...]:
        """Return the addresses at which somebody reaches the name servers."""
        if not self._spec.every_link:
            return tuple(f"{HOST}:{port}" for port in self._ns_ports)
        return tuple(f"{HOST}:{self._link_ports[f'{who}>{ns}']}" for ns in self._name_server_names)

    def _server(self, name: str) -> Child:
        return self._name_servers[self._name_server_names.index(name)][1]

    def _child(self, node: str) -> Child:
        child = self._nodes[node].child
        if child is None or child.state() == "gone":
            raise ClusterFailed(f"{node} is not running")
        return child

    def _note_exit(self, node: Node) -> None:
        line = None if node.child is None else exit_line(node.child)
        if line is not None and line not in node.exits:
            node.exits.append(line)

    async def _start_proxy(self) -> dict[str, int]:
        links = self._links_of_the_proxy()
        spec = {"control": str(self._socket), "seed": self._spec.seed}
        path = self._spec.run / "config" / "proxy.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(spec | {"links": links}))
        log = self._spec.run / "logs" / "proxy.log"
        self._proxy = await Child.start("proxy", ["-m", "chaos.net.proxy", str(path)], log)
        async with deadline("proxy", log):
            while True:
                check_alive(self._proxy, log)
                # A socket is there a moment before anybody listens at it.
                with contextlib.suppress(ClusterFailed):
                    counters = await self.links.counters()
                    return {name: int(state["port"]) for name, state in counters.items()}
                await asyncio.sleep(POLL_S)

    def _links_of_the_proxy(self) -> list[dict[str, object]]:
        """Return what the proxy is to listen for: name, where to, and where if that matters."""
        raft = {name: node.raft_port for name, node in self._nodes.items()}
        links: list[dict[str, object]] = [
            {"name": n, "host": HOST, "port": raft[n.split(">")[1]]} for n in link_names(self.nodes)
        ]
        if not self._spec.every_link:
            return links
        servers = dict(zip(self._name_server_names, self._ns_ports, strict=True))
        for name in outer_link_names(self.nodes, self._name_server_names):
            target, listen = name.split(">")[1], self._link_ports[name]
            to_server = target in servers
            host, port = (HOST, servers[target]) if to_server else (INNER_HOST, listen)
            links.append({"name": name, "host": host, "port": port, "listen": listen})
        return links

    def _take_outer_ports(self) -> None:
        """Take the ports at which the proxy listens for clients, and for brokers to name servers.

        They are asked for before anything runs. A broker's is the broker's own, on `HOST`.
        """
        for name in outer_link_names(self.nodes, self._name_server_names):
            node = self._nodes.get(name.split(">")[1])
            self._link_ports[name] = node.port if node is not None else take_ports(1)[0]

    async def _start_name_server(self, at: int, port: int) -> None:
        config = self._spec.run / "config" / f"ns{at}.conf"
        settings = {"listenPort": str(port), **self._name_server_settings(at)}
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        log = self._spec.run / "logs" / f"ns{at}.log"
        command = self._planted("namesrv", "-c", str(config), "-p", str(port))
        child = await Child.start(f"ns{at}", command, log)
        self._name_servers[at:] = [(port, child), *self._name_servers[at + 1 :]]
        async with deadline(child.name, log):
            while not await accepts(port):
                check_alive(child, log)
                await asyncio.sleep(POLL_S)

    def _name_server_settings(self, _at: int) -> dict[str, str]:
        """Return what a name server is told besides its port."""
        return {}

    def _write_config(self, node: Node) -> None:
        ports = self._link_ports
        peers = [
            f"{n}-{HOST}:{node.raft_port if n == node.name else ports[f'{node.name}>{n}']}"
            for n in self.nodes
        ]
        settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": self._spec.group,
            "namesrvAddr": ";".join(self._name_servers_of(node.name)),
            "listenPort": str(node.port),
            **({"bindAddress": INNER_HOST} if self._spec.every_link else {}),
            **({"peerSharedKeyFile": str(self._write_key())} if self._spec.sealed else {}),
            "brokerIP1": HOST,
            "storePathRootDir": str(node.directory),
            "enableDLegerCommitLog": "true",
            "dLegerGroup": self._spec.group,
            "dLegerSelfId": node.name,
            "dLegerPeers": ";".join(peers),
            "flushDiskType": self._spec.flush,
            "mappedFileSizeCommitLog": "67108864",
            **KEEP_THE_LOG,
            **self._spec.settings,
        }
        node.config.parent.mkdir(parents=True, exist_ok=True)
        node.config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def _write_key(self) -> Path:
        """Write the group's key, which nobody but this run has a use for; return where it is."""
        path = self._spec.run / "config" / "peers.key"
        path.write_text(hashlib.sha256(f"{self._spec.run}{self._spec.seed}".encode()).hexdigest())
        path.chmod(0o600)
        return path

    async def _await_status(self, node: Node) -> None:
        log = self._spec.run / "logs" / f"{node.name}.log"
        connection = StatusConnection(self._broker_host, node.port)
        async with deadline(node.name, log):
            while True:
                assert node.child is not None
                check_alive(node.child, log)
                try:
                    await connection.ask(RAFT_STATUS, 1.0)
                    break
                except (OSError, TimeoutError, EOFError, ValueError):
                    await asyncio.sleep(POLL_S)
        connection.close()


async def copy_all(files: Sequence[Path], target: Path) -> None:
    """Copy the used prefix of files into a directory."""

    def copy() -> None:
        target.mkdir(parents=True, exist_ok=True)
        for path in files:
            copy_used_prefix(path, target / path.name)

    await asyncio.to_thread(copy)


def exit_line(child: Child) -> str | None:
    """Return what to say of a child that ended by itself; None if it runs or was ended."""
    if child.state() != "gone" or child.ending:
        return None
    return f"{child.name} pid={child.pid} exit={child.process.returncode}"


def socket_path(run: Path) -> Path:
    """Return a path for the proxy's socket: in the run, or a short one if that is too long."""
    path = run.resolve() / "proxy.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        return path
    return Path(tempfile.mkdtemp(prefix="ledgermq-")) / path.name


def is_segment(path: Path) -> bool:
    """Return whether a file is named as DLedger names its segments: 20 digits."""
    return len(path.name) == 20 and path.name.isdigit()

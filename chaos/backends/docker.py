"""A cluster of containers: the compose file of docker/, steered from the engine's host.

Kill, stop and pause by the engine, links by `chaos.backends.netfilter`. Clients of the harness run
on the host and reach the containers' addresses directly. One such cluster at a time: it has a
fixed project name, so that whatever a dead harness left behind is removed by the next start.

Source: spec/proof.md 2.1 (containers); docker/compose.yaml.
"""

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Final

from chaos.backends import engine
from chaos.backends.base import KEEP_THE_LOG, ClusterFailed, ClusterSpec
from chaos.backends.netfilter import NetfilterLinks
from chaos.backends.sparse import copy_used_prefix
from chaos.history.domains import DLEDGER
from chaos.net.wire import RAFT_STATUS, StatusConnection
from ledgermq.runtime.cancel import timeout

COMPOSE_FILE: Final = Path(__file__).resolve().parents[2] / "docker" / "compose.yaml"
PROJECT: Final = "ledgermq-chaos"
NET: Final = "172.28.77"
NODES: Final = ("n0", "n1", "n2")
NAME_SERVERS: Final = ("ns0", "ns1")
BROKER_PORT: Final = 10911
RAFT_PORT: Final = 40911
NAME_SERVER_PORT: Final = 9876
READY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 10
POLL_S: Final = 0.1
STORE: Final = "/var/lib/ledgermq/store"


class DockerCluster:
    """`chaos.backends.base.Cluster` of containers; needs the image ``ledgermq:latest``."""

    backend = "docker"
    log_format = DLEDGER

    def __init__(self, spec: ClusterSpec) -> None:
        if spec.nodes != NODES or spec.name_servers != len(NAME_SERVERS):
            raise ClusterFailed("containers: exactly three brokers and two name servers")
        self.nodes = spec.nodes
        self._spec = spec
        self._addresses = {node: f"{NET}.{10 + at}" for at, node in enumerate(NODES)}
        self.links = NetfilterLinks(self._addresses, RAFT_PORT)
        self._override = spec.run / "config" / "compose.override.json"
        self._containers: dict[str, str] = {}
        self._ended: set[str] = set()
        """Nodes that the harness ended and has not started again."""
        self._exits: list[str] = []

    async def start(self) -> None:
        """Remove leftovers, start all containers; return when every broker answers."""
        self._write_override()
        await self._compose("down", "--volumes", "--remove-orphans")
        await self._compose("up", "--detach", "--no-build")
        for service in (*NAME_SERVERS, *NODES):
            self._containers[service] = (await self._compose("ps", "--quiet", service)).strip()
        await asyncio.gather(*(self._join(node) for node in NODES))

    async def stop(self) -> None:
        """Stop brokers, then name servers; keep the containers and save their logs; idempotent."""
        if not self._containers:
            return
        for node in NODES:
            await self.resume(node)
            self._note_exit(node)
        self._ended |= {*NODES, *NAME_SERVERS}
        for services in (NODES, NAME_SERVERS):
            await self._compose("stop", "--timeout", str(STOP_TIMEOUT_S), *services)
        await asyncio.to_thread(self._save_logs)

    async def kill(self, node: str) -> None:
        """SIGKILL a broker's container; wait until it is gone. One that ended itself is told of."""
        self._note_exit(node)
        await self.links.remember(node)
        self._ended.add(node)
        await engine.call(["docker", "kill", "-s", "KILL", self._containers[node]])
        await engine.call(["docker", "wait", self._containers[node]])

    async def terminate(self, node: str) -> None:
        """SIGTERM a broker's container; wait until it is gone. A kill that it needs is told."""
        container = self._containers[node]
        await self.links.remember(node)
        self._ended.add(node)
        await engine.call(["docker", "stop", "--time", str(STOP_TIMEOUT_S), container])
        code = engine.inspect(container, "{{.State.ExitCode}}")
        if code != "0":
            self._exits.append(f"{node} container={container[:12]} exit={code} when asked to end")

    async def pause(self, node: str) -> None:
        """Freeze a broker's processes."""
        await engine.call(["docker", "pause", self._containers[node]])

    async def resume(self, node: str) -> None:
        """Let frozen processes go on; idempotent."""
        if self.state(node) == "stopped":
            await engine.call(["docker", "unpause", self._containers[node]])

    async def restart(self, node: str) -> None:
        """Start a broker that is down, with the cuts that are in force."""
        if self.state(node) != "gone":
            return
        self._note_exit(node)
        await engine.call(["docker", "start", self._containers[node]])
        self._ended.discard(node)
        await self.links.install(node, self._containers[node])

    def state(self, node: str) -> str:
        """Return running, stopped or gone."""
        container = self._containers.get(node, "")
        return engine.container_state(container) if container else "gone"

    def status_addr(self, node: str) -> tuple[str, int]:
        """Return where the broker listens."""
        return self._addresses[node], BROKER_PORT

    def client_addr(self, node: str) -> tuple[str, int]:
        """Return where the broker listens."""
        return self.status_addr(node)

    def name_server_addrs(self) -> tuple[str, ...]:
        """Return the name servers."""
        return tuple(f"{NET}.{2 + at}:{NAME_SERVER_PORT}" for at in range(len(NAME_SERVERS)))

    async def collect(self, node: str, target: Path) -> None:
        """Copy the used prefix of each data segment from the node's volume."""
        source = f"{self._containers[node]}:{STORE}/dledger-{node}/data/."
        with tempfile.TemporaryDirectory(dir=self._spec.run) as scratch:
            await engine.call(["docker", "cp", source, scratch])
            if not await asyncio.to_thread(_copy_segments, Path(scratch), target):
                raise ClusterFailed(f"{node}: no data segments in {source}")

    async def collect_events(self, node: str, target: Path) -> None:
        """Copy the event files from the node's volume."""
        source = f"{self._containers[node]}:{STORE}/dledger-{node}/raft_event/."
        await asyncio.to_thread(target.mkdir, parents=True, exist_ok=True)
        try:
            await engine.call(["docker", "cp", source, str(target)])
        except ClusterFailed:
            return  # it recorded nothing

    async def make_master(self, node: str) -> None:
        """Refuse: the containers are a Raft group."""
        raise ClusterFailed(f"{node}: the docker backend has no masters and slaves")

    def unexpected_exits(self) -> list[str]:
        """Return a line for each container that ended by itself."""
        for service in self._containers:
            self._note_exit(service)
        return list(self._exits)

    async def remove(self) -> None:
        """Remove containers, network and volumes; idempotent."""
        await self._compose("down", "--volumes", "--remove-orphans")
        self._containers.clear()

    def _note_exit(self, service: str) -> None:
        container = self._containers[service]
        if service in self._ended or engine.container_state(container) != "gone":
            return
        code = engine.inspect(container, "{{.State.ExitCode}}")
        line = f"{service} container={container[:12]} exit={code}"
        if line not in self._exits:
            self._exits.append(line)

    def _save_logs(self) -> None:
        logs = self._spec.run / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        for service, container in self._containers.items():
            with (logs / f"{service}.log").open("wb") as out:
                engine.copy_logs(container, out)

    def _write_override(self) -> None:
        """Write what this run changes of the compose file; JSON is YAML."""
        settings = {
            "brokerName": self._spec.group,
            "dLegerGroup": self._spec.group,
            "flushDiskType": self._spec.flush,
            **KEEP_THE_LOG,
            **self._spec.settings,
        }
        service: dict[str, object] = {
            "environment": {f"LEDGERMQ_{key}": value for key, value in settings.items()}
        }
        if self._spec.mutant is not None:
            service["command"] = ["mutant", self._spec.mutant]
        self._override.parent.mkdir(parents=True, exist_ok=True)
        self._override.write_text(json.dumps({"services": dict.fromkeys(NODES, service)}))

    async def _compose(self, *arguments: str) -> str:
        files = ["-p", PROJECT, "-f", str(COMPOSE_FILE), "-f", str(self._override)]
        environment = dict(os.environ, LEDGERMQ_NET=NET)
        command = [*engine.compose_command(), *files, *arguments]
        return await engine.call(command, environment=environment, timeout_s=120.0)

    async def _join(self, node: str) -> None:
        """Install the node's table and wait until the broker answers."""
        await self.links.install(node, self._containers[node])
        connection = StatusConnection(*self.status_addr(node))
        try:
            async with timeout(READY_TIMEOUT_S):
                while True:
                    if await self._answers(node, connection):
                        return
                    await asyncio.sleep(POLL_S)
        except TimeoutError as error:
            late = f"{node} was not ready in {READY_TIMEOUT_S:.0f} s"
            raise ClusterFailed(
                f"{late}; see: docker logs {self._containers[node][:12]}"
            ) from error
        finally:
            connection.close()

    async def _answers(self, node: str, connection: StatusConnection) -> bool:
        if self.state(node) == "gone":
            said = await engine.call(["docker", "logs", "--tail", "3", self._containers[node]])
            raise ClusterFailed(f"{node} ended at start: {' | '.join(said.split(chr(10)))}")
        try:
            await connection.ask(RAFT_STATUS, 1.0)
        except (OSError, TimeoutError, EOFError, ValueError):
            return False
        return True


def _copy_segments(source: Path, target: Path) -> int:
    """Copy the used prefix of each segment in a folder; return how many there were."""
    segments = [path for path in sorted(source.iterdir()) if path.name.isdigit()]
    target.mkdir(parents=True, exist_ok=True)
    for path in segments:
        copy_used_prefix(path, target / path.name)
    return len(segments)

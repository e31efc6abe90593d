"""A master and a slave as processes on this machine, whose roles three controllers say.

Each name server has a controller. Which broker is master is up to them; either takes over when the
other is gone. The HA link goes through the proxy as that of `LocalPair` does, and so does what a
broker says to controllers (``n0>c0``): one that is cut off from all of them is dead to them, while
clients and its slave still reach it. So does what controllers say to each other (``c0>c1``).

Source: docs/replication.md (automatic switch); docs/adr/0020.
"""

import asyncio
import json
from collections.abc import Mapping

from chaos.backends.base import ClusterFailed, ClusterSpec, controller_link_names, link_names
from chaos.backends.local import INNER_HOST, POLL_S, LocalCluster, Node
from chaos.backends.pair import FOLLOWS_TIMEOUT_S, LocalPair
from chaos.backends.ports import HOST, take_ports
from chaos.net.wire import RAFT_STATUS, StatusConnection
from ledgermq.runtime.cancel import timeout

IDENTITY = "brokerIdentity.json"
CONTROLLED_SETTINGS = {
    "enableControllerMode": "true",
    "brokerHeartbeatInterval": "500",
    "controllerHeartBeatTimeoutMills": "3000",
    "syncBrokerMetadataPeriod": "300",
    "haMaxTimeSlaveNotCatchup": "3000",
}
"""Short times, so that a run sees switches and sets that change."""


class LocalControlled(LocalPair):
    """`chaos.backends.base.Cluster` of brokers that have their roles from controllers."""

    def __init__(self, spec: ClusterSpec) -> None:
        super().__init__(spec)
        ports = take_ports(spec.name_servers)
        self._controller_ports = {f"c{at}": port for at, port in enumerate(ports)}

    @property
    def controllers(self) -> Mapping[str, tuple[str, int]]:
        """Where the controllers listen, by name."""
        return {name: (HOST, port) for name, port in self._controller_ports.items()}

    @property
    def group(self) -> str:
        """The name of the brokers."""
        return self._spec.group

    async def start(self) -> None:
        """Start all; return when both brokers are in sync. Errors: ClusterFailed."""
        await LocalCluster.start(self)
        try:
            async with timeout(FOLLOWS_TIMEOUT_S):
                while True:
                    if await self._are_in_sync():
                        break
                    await asyncio.sleep(POLL_S)
        except TimeoutError as error:
            late = f"{', '.join(self.nodes)} were not in sync within {FOLLOWS_TIMEOUT_S} s"
            raise ClusterFailed(late) from error

    async def make_master(self, node: str) -> None:
        """Refuse: controllers say who is master."""
        raise ClusterFailed(f"{node}: controllers say who is master")

    def node_at(self, address: str) -> str | None:
        """Return which broker takes requests at an address."""
        places = {f"{INNER_HOST}:{node.port}": name for name, node in self._nodes.items()}
        return places.get(address)

    def node_of(self, replica: int) -> str | None:
        """Return whose directory says that it is this replica."""
        for name, node in self._nodes.items():
            try:
                told = json.loads((node.directory / IDENTITY).read_bytes())
            except (OSError, ValueError):
                continue  # it has none yet, or none any more
            if isinstance(told, dict) and told.get("brokerId") == replica:
                return name
        return None

    def server_of(self, controller: str) -> str:
        """Return the name server that a controller is part of."""
        return self._name_server_names[list(self._controller_ports).index(controller)]

    async def _are_in_sync(self) -> bool:
        for node in self._nodes.values():
            connection = StatusConnection(self._broker_host, node.port)
            try:
                status = await connection.ask(RAFT_STATUS, FOLLOWS_TIMEOUT_S)
            except (OSError, TimeoutError, EOFError, ValueError):
                continue  # its role changes
            finally:
                connection.close()
            members = status.get("in_sync")
            if isinstance(members, list) and len(members) == len(self._nodes):
                return True
        return False

    def _links_of_the_proxy(self) -> list[dict[str, object]]:
        ports = self._controller_ports
        names = [*controller_link_names(self.nodes, list(ports)), *link_names(list(ports))]
        return [
            *super()._links_of_the_proxy(),
            *({"name": n, "host": HOST, "port": ports[n.split(">")[1]]} for n in names),
        ]

    def _name_server_settings(self, at: int) -> dict[str, str]:
        name = list(self._controller_ports)[at]
        ports = {
            n: port if n == name else self._link_ports[f"{name}>{n}"]
            for n, port in self._controller_ports.items()
        }
        peers = ";".join(f"{n}-{HOST}:{port}" for n, port in ports.items())
        return {
            "enableControllerInNamesrv": "true",
            "controllerDLegerPeers": peers,
            "controllerDLegerSelfId": name,
            "controllerStorePath": str((self._spec.run / "data" / name).resolve()),
        }

    def _write_config(self, node: Node) -> None:
        addresses = [f"{HOST}:{self._link_ports[f'{node.name}>{c}']}" for c in self.controllers]
        self._write_settings(node, {"controllerAddr": ";".join(addresses), **CONTROLLED_SETTINGS})

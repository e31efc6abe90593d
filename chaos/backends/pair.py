"""A master and a slave as processes on this machine, their HA link through the proxy.

The slave learns from the name servers where its master is. The master listens on an address of its
own of loopback and names the usual one for its HA service (brokerIP2), where the proxy has the same
port: so all that the slave gets and reports passes the link ``slave>master``, and what both ask of
each other besides (tables, offsets) does not. Either broker can be the master; who is it changes by
hand alone, as docs/replication.md says.

Source: spec/disk.md 7.2; docs/replication.md (switching by hand).
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from chaos.backends.base import KEEP_THE_LOG, ClusterFailed, ClusterSpec, link_names
from chaos.backends.local import (
    INNER_HOST,
    POLL_S,
    LocalCluster,
    Node,
    copy_all,
    is_segment,
)
from chaos.backends.ports import HOST, take_port_block
from chaos.catalogue.contracts import SYNC_MASTER
from chaos.history.domains import PLAIN
from chaos.net.wire import RAFT_STATUS, StatusConnection
from ledgermq.runtime.cancel import timeout

FOLLOWS_TIMEOUT_S = 30
"""How long a slave may take to confirm for the first time."""
TOLD_IN_TIME = {"slaveTimeout": "1000"}
"""A master says that its slave confirms nothing before its producers have given up."""
HA_SETTINGS = {"haSendHeartbeatInterval": "500", "slaveReadEnable": "true"}


class LocalPair(LocalCluster):
    """`chaos.backends.base.Cluster` of a master, which is the first node, and a slave."""

    log_format = PLAIN

    def __init__(self, spec: ClusterSpec) -> None:
        if spec.every_link or spec.sealed:
            raise ClusterFailed("a master and its slave have no links but theirs, and no key")
        super().__init__(spec)
        self._master = spec.nodes[0]
        for node in self._nodes.values():
            # They take requests at listenPort - 2 as well, and slaves at listenPort + 1.
            node.port = take_port_block(4) + 2
            node.raft_port = node.port + 1

    async def start(self) -> None:
        """Start all; return when the slave confirms what the master sends, too.

        Until then a synchronous master answers that it has no slave. Errors: ClusterFailed.
        """
        await super().start()
        connection = StatusConnection(self._broker_host, self._nodes[self._master].port)
        try:
            async with timeout(FOLLOWS_TIMEOUT_S):
                while True:
                    if _has_slave(await connection.ask(RAFT_STATUS, FOLLOWS_TIMEOUT_S)):
                        break
                    await asyncio.sleep(POLL_S)
        except (OSError, TimeoutError, EOFError, ValueError) as error:
            late = f"no slave of {self._master} confirmed within {FOLLOWS_TIMEOUT_S} s"
            raise ClusterFailed(late) from error
        finally:
            connection.close()

    async def make_master(self, node: str) -> None:
        """Stop the slave and start it as the master; the other is a slave from its next start on.

        Errors: ClusterFailed if the master of before still runs: it is stopped first by hand, too.
        """
        if self._master != node and self.state(self._master) != "gone":
            raise ClusterFailed(f"{self._master} runs: a second master of one name is refused")
        await self.terminate(node)
        self._master = node
        for one in self._nodes.values():
            self._write_config(one)
        await self.restart(node)

    def client_addr(self, node: str) -> tuple[str, int]:
        """Return where clients are told that it listens."""
        return self.status_addr(node)

    async def collect(self, node: str, target: Path) -> None:
        """Copy the used prefix of each file of the node's commit log."""
        directory = self._nodes[node].directory / "commitlog"
        files = [path for path in sorted(directory.glob("*")) if is_segment(path)]
        if not files:
            raise ClusterFailed(f"{node}: no files under {directory}")
        await copy_all(files, target)

    @property
    def _broker_host(self) -> str:
        return INNER_HOST

    def _links_of_the_proxy(self) -> list[dict[str, object]]:
        ha = {name: node.raft_port for name, node in self._nodes.items()}
        targets = {name: name.split(">")[1] for name in link_names(self.nodes)}
        return [
            {"name": name, "host": INNER_HOST, "port": ha[to], "listen": ha[to]}
            for name, to in targets.items()
        ]

    def _write_config(self, node: Node) -> None:
        is_master = node.name == self._master
        master = "SYNC_MASTER" if self._spec.mode == SYNC_MASTER else "ASYNC_MASTER"
        role = master if is_master else "SLAVE"
        told = {"brokerId": "0" if is_master else "1", "brokerRole": role}
        self._write_settings(node, told | TOLD_IN_TIME)

    def _write_settings(self, node: Node, of_role: Mapping[str, str]) -> None:
        """Write the settings of a broker; ``of_role``: those that say what it is, or who does."""
        settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": self._spec.group,
            "namesrvAddr": ";".join(self.name_server_addrs()),
            "listenPort": str(node.port),
            "haListenPort": str(node.raft_port),
            "bindAddress": INNER_HOST,
            "brokerIP1": INNER_HOST,
            "brokerIP2": HOST,
            "storePathRootDir": str(node.directory),
            "flushDiskType": self._spec.flush,
            "mappedFileSizeCommitLog": "67108864",
            **HA_SETTINGS,
            **of_role,
            **KEEP_THE_LOG,
            **self._spec.settings,
        }
        node.config.parent.mkdir(parents=True, exist_ok=True)
        node.config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


def _has_slave(status: Mapping[str, object]) -> bool:
    """Tell whether a master's status names a slave that confirms."""
    slaves = status.get("slaves")
    return isinstance(slaves, list) and any(one.get("confirms") for one in slaves)

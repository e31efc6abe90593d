"""A master and its slave as processes, and brokers that take their roles from controllers.

For measurements only, as `bench.cluster`: no proxies, no faults but kills.
"""

import time
from pathlib import Path
from typing import Any

from bench.cluster import Cluster
from bench.processes import START_TIMEOUT_S, wait_for_port
from chaos.backends.ports import take_ports

POLL_S = 0.05
CONTROLLERS = 3


class Pair(Cluster):
    """A master, the first broker, and its slave; they are there when the slave confirms."""

    def __init__(self, home: Path, *, is_sync: bool, sync_flush: bool = False) -> None:
        """Keep the settings; ``is_sync``: a SYNC_MASTER."""
        super().__init__(home, replicas=2, sync_flush=sync_flush)
        self._role = "SYNC_MASTER" if is_sync else "ASYNC_MASTER"

    def behind(self) -> int | None:
        """Return how many bytes the slave lacks, as the master says; None: none confirms."""
        return next((one["behind"] for one in self.slaves() if one["confirms"]), None)

    def slaves(self) -> list[dict[str, Any]]:
        """Return what the master says of each slave."""
        slaves: list[dict[str, Any]] = (self.raft_status(0) or {}).get("slaves", [])
        return slaves

    def leader(self) -> int:
        """Return the master."""
        return 0

    def _start(self) -> None:
        super()._start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.behind() is None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no slave within {START_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)

    def _mode_lines(self, node: int) -> list[str]:
        role = "SLAVE" if node else self._role
        return [f"brokerId={node}", f"brokerRole={role}", f"haListenPort={self.ports[node] + 1}"]


class Controlled(Cluster):
    """Brokers of one name that three name servers with controllers give their roles."""

    def __init__(self, home: Path, *, replicas: int = 2, sync_flush: bool = False) -> None:
        """Keep the settings; nothing is started yet."""
        super().__init__(home, replicas=replicas, sync_flush=sync_flush)
        self._controllers: list[int] = []

    def in_sync(self) -> list[int]:
        """Return the replicas in sync, as the master says; none where none does."""
        for node in range(self._replicas):
            status = self.raft_status(node) if self.brokers[node].poll() is None else None
            if status and status.get("in_sync"):
                return list(status["in_sync"])
        return []

    def wait_in_sync(self) -> None:
        """Wait until all brokers are in sync. Errors: `RuntimeError` if they do not get there."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while len(self.in_sync()) < self._replicas:
            if time.monotonic() > deadline:
                raise RuntimeError(f"not all in sync within {START_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)

    def _start(self) -> None:
        super()._start()
        self.wait_in_sync()

    def _start_name_servers(self, port: int) -> None:
        del port
        self._controllers = take_ports(CONTROLLERS)
        servers = take_ports(CONTROLLERS)
        peers = ";".join(f"c{i}-127.0.0.1:{at}" for i, at in enumerate(self._controllers))
        for number, listen in enumerate(servers):
            conf = self._home / f"c{number}.conf"
            lines = (
                f"listenPort={listen}",
                "enableControllerInNamesrv=true",
                f"controllerDLegerPeers={peers}",
                f"controllerDLegerSelfId=c{number}",
                f"controllerStorePath={self._home / f'controller-{number}'}",
                "",
            )
            conf.write_text("\n".join(lines), encoding="utf-8")
            self._name_servers.append(self._spawn("namesrv", ["-c", str(conf)], f"c{number}"))
        for listen, process in zip(servers, self._name_servers, strict=True):
            wait_for_port(listen, process)
        self.namesrv_addr = ";".join(f"127.0.0.1:{listen}" for listen in servers)

    def _mode_lines(self, node: int) -> list[str]:
        addresses = ";".join(f"127.0.0.1:{port}" for port in self._controllers)
        return [
            "enableControllerMode=true",
            f"controllerAddr={addresses}",
            f"haListenPort={self.ports[node] + 1}",
        ]

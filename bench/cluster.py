"""A name server and our brokers as processes, for measurements only: a Raft group, or one alone.

No proxies and no fault injection (that is chaos.backends); every process is ended by its id.
"""

import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.processes import (
    LOOPBACK,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    ServerProcesses,
    wait_for_port,
)
from chaos.backends.ports import take_port_block

GROUP = "BenchGroup"
RAFT_STATUS = 29001
READ_INDEX = 29005
PORTS_OF_A_BROKER = 4
"""It takes requests at listenPort and, as a master or slave, at listenPort - 2 as well; members of
a group and slaves are at listenPort + 1."""


class Cluster(ServerProcesses):
    """``replicas`` brokers in one Raft group with their name server, on loopback.

    A single one has the plain log, as the real one it is compared with.
    """

    def __init__(
        self,
        home: Path,
        *,
        replicas: int,
        sync_flush: bool,
        settings: Sequence[str] = (),
        host: str = LOOPBACK,
    ) -> None:
        """See `ServerProcesses`.

        ``settings`` are more lines for each broker's configuration; ``host`` is where all of them
        listen, an address of IPv6, too.
        """
        super().__init__(home, replicas=replicas, sync_flush=sync_flush)
        self.ports: list[int] = []
        self._settings = settings
        self._host = host
        self._named = f"[{host}]" if ":" in host else host

    def kill(self, node: int) -> None:
        """SIGKILL one broker and reap it."""
        self.brokers[node].kill()
        self.brokers[node].wait()

    def end(self, node: int) -> None:
        """Stop one broker cleanly."""
        self.brokers[node].terminate()
        self.brokers[node].wait(STOP_TIMEOUT_S)

    def restart(self, node: int) -> None:
        """Start a killed broker again on its store and wait until it listens."""
        conf = str(self._home / f"n{node}.conf")
        self.brokers[node] = self._spawn("broker", ["-c", conf], f"n{node}")
        wait_for_port(self.ports[node], self.brokers[node], self._host)

    def store(self, node: int) -> Path:
        """Return the directory of a broker."""
        return self._home / f"store-n{node}"

    def raft_status(self, node: int) -> dict[str, Any] | None:
        """Return a broker's own view of its Raft state; None where it does not answer."""
        return _ask(self._host, self.ports[node], RAFT_STATUS)

    def applied(self, node: int) -> int:
        """Return up to where a broker alone, a master or a slave has dispatched; 0: no answer."""
        answer = _ask(self._host, self.ports[node], READ_INDEX)
        return 0 if answer is None else int(answer["applied"]) + 1

    def leader(self) -> int:
        """Wait for a leader, and until no living broker is fresh; return the leader's number.

        A fresh one does not vote yet: were the leader of three killed before, nobody could follow.

        Raises:
            RuntimeError: that is not so within ``START_TIMEOUT_S``.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            living = [node for node, broker in enumerate(self.brokers) if broker.poll() is None]
            told = {node: status for node in living if (status := self.raft_status(node))}
            leaders = [node for node, row in told.items() if str(row["role"]).upper() == "LEADER"]
            if leaders and not any(row.get("fresh") for row in told.values()):
                return leaders[0]
            time.sleep(0.05)
        raise RuntimeError(f"no leader, or a fresh member, after {START_TIMEOUT_S:.0f} s")

    def private_memory_mib(self) -> list[float]:
        """Return RssAnon of each broker in MiB, from /proc."""
        return [_rss_anon_mib(broker.pid) for broker in self.brokers]

    def _start(self) -> None:
        self._home.mkdir(parents=True, exist_ok=True)
        base = take_port_block(1 + PORTS_OF_A_BROKER * self._replicas)
        self.ports = [base + 3 + PORTS_OF_A_BROKER * node for node in range(self._replicas)]
        self._start_name_servers(base)
        for node in range(self._replicas):
            conf = self._home / f"n{node}.conf"
            conf.write_text(self._broker_conf(node), encoding="utf-8")
            self.brokers.append(self._spawn("broker", ["-c", str(conf)], f"n{node}"))
        for port, process in zip(self.ports, self.brokers, strict=True):
            wait_for_port(port, process, self._host)

    def _start_name_servers(self, port: int) -> None:
        """Start the one that there is."""
        self.namesrv_addr = f"{self._named}:{port}"
        words = ["-p", str(port), "--property", f"bindAddress={self._host}"]
        self._name_servers.append(self._spawn("namesrv", words))
        wait_for_port(port, self._name_servers[0], self._host)

    def _broker_conf(self, node: int) -> str:
        lines = [
            "brokerClusterName=BenchCluster",
            f"brokerName={GROUP}",
            f"namesrvAddr={self.namesrv_addr}",
            f"listenPort={self.ports[node]}",
            f"brokerIP1={self._host}",
            f"storePathRootDir={self.store(node)}",
            f"flushDiskType={self._flush}",
            *self._settings,
            *self._mode_lines(node),
            "",
        ]
        return "\n".join(lines)

    def _mode_lines(self, node: int) -> list[str]:
        """Return the lines that say how the brokers replicate."""
        if self._replicas == 1:
            return []
        peers = ";".join(f"n{i}-{self._named}:{port + 1}" for i, port in enumerate(self.ports))
        return [
            "enableDLegerCommitLog=true",
            f"dLegerGroup={GROUP}",
            f"dLegerSelfId=n{node}",
            f"dLegerPeers={peers}",
        ]

    def _spawn(self, module: str, args: list[str], name: str = "") -> subprocess.Popen[bytes]:
        with (self._home / f"{name or module}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", module, *args],
                stdout=log,
                stderr=log,
                env={**os.environ, "HOME": str(self._home)},
                cwd=Path(__file__).resolve().parent.parent,
            )


def _ask(host: str, port: int, code: int) -> dict[str, Any] | None:
    header = (
        b'{"code":%d,"flag":0,"language":"OTHER","opaque":1,'
        b'"serializeTypeCurrentRPC":"JSON","version":407}' % code
    )
    try:
        with socket.create_connection((host, port), timeout=1.0) as link:
            link.sendall(struct.pack(">ii", 4 + len(header), len(header)) + header)
            with link.makefile("rb") as stream:
                (total,) = struct.unpack(">i", stream.read(4))
                frame = stream.read(total)
    except (OSError, struct.error):
        return None
    header_bytes = int.from_bytes(frame[1:4], "big")
    body = frame[4 + header_bytes :]
    answer: dict[str, Any] | None = json.loads(body) if body else None  # it has no role
    return answer


def _rss_anon_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return -1.0

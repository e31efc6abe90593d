"""The CA of a cluster of real processes is exchanged while it runs, without a restart."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from cli.certificates import Authority
from ledgermq.remoting.protocol.certificates import node_identity
from tests.integration.test_membership_process import TIMEOUT_S, Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODES = ("n0", "n1", "n2")
OFTEN = (
    "import sys, dledger.peers.rpc as rpc; rpc.SWEEP_S = 0.5; from broker.__main__ import main;"
    " sys.exit(main(sys.argv[1:]))"
)
"""A broker that looks at its files more often than others do."""


class CertifiedCluster(Cluster):
    """Members with certificates; ``ca.crt`` and ``NODE.crt`` lie in the directory."""

    def start(self, name: str, *arguments: str) -> None:
        if arguments[0] != "broker":
            super().start(name, *arguments)
            return
        config = self.directory / f"{name}.conf"
        paths = {"Cert": f"{name}.crt", "Key": f"{name}.key", "Ca": "ca.crt"}
        settings = [f"peerTls{key}Path={self.directory / file}\n" for key, file in paths.items()]
        config.write_text(config.read_text() + "".join(settings))
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-c", OFTEN, *arguments[1:]], stdout=log, stderr=log
            )

    def log(self, node: str) -> str:
        return (self.directory / f"{node}.log").read_text()

    def install(self, authority: Authority, node: str) -> None:
        """Give a node a new key and certificate, in place of what it has."""
        stem = f"{node}-{len(list(authority.directory.iterdir()))}"
        for path in reversed(authority.issue(node_identity("g0", node), stem)):
            path.replace(self.directory / f"{node}{path.suffix}")

    def trust(self, *authorities: Authority) -> None:
        part = self.directory / "ca.part"
        part.write_bytes(b"".join((a.directory / "ca.crt").read_bytes() for a in authorities))
        part.replace(self.directory / "ca.crt")

    def wait_read(self, before: dict[str, int]) -> None:
        """Wait until every broker has read its files anew."""
        deadline = time.monotonic() + TIMEOUT_S
        while any(self.log(n).count("event=credentials_read") <= before[n] for n in NODES):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(1)  # a look at the links

    def reads(self) -> dict[str, int]:
        return {node: self.log(node).count("event=credentials_read") for node in NODES}

    def send(self) -> None:
        result = self.run("produce", "-t", "orders", "--count", "20", "hello")
        assert result.returncode == 0, result.stderr


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[CertifiedCluster]:
    made = CertifiedCluster(tmp_path)
    try:
        made.start_namesrv()
        yield made
    finally:
        for name in list(made.processes):
            made.stop(name)


def test_a_ca_is_exchanged_while_the_cluster_runs(cluster: CertifiedCluster) -> None:
    old = Authority.create(cluster.directory / "old", "old CA", 10)
    new = Authority.create(cluster.directory / "new", "new CA", 10)
    cluster.trust(old)
    for node in NODES:
        cluster.install(old, node)
        cluster.start_broker(node, *({*NODES} - {node}))
    cluster.leader()
    cluster.send()

    steps = [lambda: cluster.trust(old, new)]
    steps += [lambda: [cluster.install(new, node) for node in NODES]]  # type: ignore[list-item]
    steps += [lambda: cluster.trust(new)]
    for step in steps:
        before = cluster.reads()
        step()
        cluster.wait_read(before)
        cluster.leader()
        cluster.send()

    # The old CA's certificates make no link any more: one that gets one back is alone.
    # Whoever of a pair looks first ends their connections, and the other has nothing to end.
    for one, other in itertools.combinations(NODES, 2):
        ended = [
            cluster.log(one).count(f"event=peer_lapsed peer={other} "),
            cluster.log(other).count(f"event=peer_lapsed peer={one} "),
        ]
        assert sum(ended) >= 1, (one, other)
    leader = cluster.leader()
    lonely = next(node for node in NODES if node != leader)
    before_lines = len(cluster.log(leader))
    cluster.stop(lonely)
    cluster.install(old, lonely)
    cluster.start_broker(lonely, *({*NODES} - {lonely}))
    cluster.processes[lonely].wait(TIMEOUT_S)
    assert "not issued by the CA of this cluster" in cluster.log(lonely)
    cluster.install(new, lonely)
    cluster.start_broker(lonely, *({*NODES} - {lonely}))
    cluster.send()
    deadline = time.monotonic() + TIMEOUT_S
    while f"event=peer_connected peer={lonely}" not in cluster.log(leader)[before_lines:]:
        assert time.monotonic() < deadline
        time.sleep(0.1)

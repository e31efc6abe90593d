"""The published Java clients over TLS, against our name server and broker."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING

import pytest

from bench import java
from bench.cluster import Cluster
from bench.processes import wait_for_port
from tests.integration.test_tls import Servers, certs, send, served
from tests.interop.java_program import secured

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]

__all__ = ["certs"]
"""A fixture that these tests take."""
TOPIC, COUNT = "orders", 30


@pytest.fixture(scope="module")
def enforcing(tmp_path_factory: pytest.TempPathFactory, certs: Path) -> Iterator[Servers]:
    for servers in served(tmp_path_factory, certs, "tls.server.mode=enforcing"):
        asyncio.run(send(servers.config("first"), TOPIC, [b"first"]))
        yield servers


def outcomes(version: str, servers: Servers, *flags: str) -> dict[str, str]:
    """What a send, a batch and a pull of the Java client came to."""
    try:
        tools = java.prepare(version)
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with the Java client {version} skipped: {error}")
    words = [f"127.0.0.1:{servers.name_server}", TOPIC, "g"]
    command = tools.command("ledgermq.Access", words, heap_mb=128)
    command[1:1] = flags
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    return {line[0]: line[1] for line in lines if line[0] in {"SEND", "BATCH", "PULL"}}


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_java_clients_speak_tls_and_believe_the_ca_that_they_are_told(
    version: str, enforcing: Servers, certs: Path
) -> None:
    served_all = {"SEND": "SEND_OK", "BATCH": "SEND_OK", "PULL": "FOUND"}
    assert outcomes(version, enforcing, "-Dtls.enable=true") == served_all
    checks = ("-Dtls.enable=true", "-Dtls.test.mode.enable=false", "-Dtls.client.authServer=true")
    ours = f"-Dtls.client.trustCertPath={certs / 'ours/ca.crt'}"
    assert outcomes(version, enforcing, *checks, ours) == served_all
    others = f"-Dtls.client.trustCertPath={certs / 'others/ca.crt'}"
    assert "SEND_OK" not in outcomes(version, enforcing, *checks, others).values()


def test_a_java_client_without_tls_is_not_served(enforcing: Servers) -> None:
    found = outcomes("4.9.7", enforcing)
    assert set(found) == {"SEND", "BATCH", "PULL"}
    assert not {"SEND_OK", "FOUND"} & set(found.values())


class TlsCluster(Cluster):
    """A group of three that serves TLS, too, and a name server that serves nothing else."""

    def __init__(self, home: Path, certs: Path) -> None:
        own = (
            f"tls.server.certPath={certs / 'ours/node-G-n0.crt'}",
            f"tls.server.keyPath={certs / 'ours/node-G-n0.key'}",
        )
        self._enforcing = (*own, "tls.server.mode=enforcing")
        settings = (
            *own, "tls.server.mode=permissive", "tls.enable=true",
            f"tls.client.trustCertPath={certs / 'ours/ca.crt'}",
            "transactionTimeOut=1000", "transactionCheckInterval=1000",
        )  # fmt: skip
        super().__init__(home, replicas=3, sync_flush=False, settings=settings)

    def _start_name_servers(self, port: int) -> None:
        self.namesrv_addr = f"{self._named}:{port}"
        words = [word for line in self._enforcing for word in ("--property", line)]
        own = ["-p", str(port), "--property", f"bindAddress={self._host}", *words]
        self._name_servers.append(self._spawn("namesrv", own))
        wait_for_port(port, self._name_servers[0], self._host)


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_java_clients_over_tls_get_over_a_leader_kill(
    version: str, certs: Path, tmp_path: Path
) -> None:
    try:
        tools = java.prepare(version)
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with the Java client {version} skipped: {error}")
    flags = (
        "-Dtls.enable=true", "-Dtls.test.mode.enable=false", "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={certs / 'ours/ca.crt'}",
    )  # fmt: skip
    with TlsCluster(tmp_path / "cluster", certs) as cluster:
        secured(cluster, tools, [TOPIC, str(COUNT), "g"], tmp_path, flags)

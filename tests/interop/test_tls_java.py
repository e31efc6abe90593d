"""The published Java clients over TLS, against our name server and broker."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING

import pytest

from bench import java
from tests.integration.test_tls import Servers, certs, send, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]

__all__ = ["certs"]
"""A fixture that these tests take."""
TOPIC = "orders"


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

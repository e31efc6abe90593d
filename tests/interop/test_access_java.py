"""The published Java clients and mqadmin with accounts, against our broker with access control."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING

import pytest

from bench import java
from bench.cluster import GROUP as BROKER
from bench.cluster import Cluster
from ledgermq import ClientConfig, Message, Producer
from tests.integration.test_access import RULES
from tests.interop.java_program import secured
from tests.interop.test_mqadmin_clean import mqadmin_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC, GROUP, COUNT = "orders", "g", 30
KEYS = ("publisher", "secret-p", "consumer", "secret-c")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with guarded(tmp_path_factory.mktemp("access"), 1) as cluster:
        asyncio.run(send_first(cluster))
        yield cluster


def guarded(home: Path, replicas: int) -> Cluster:
    """Return brokers with access control."""
    rules = home / "plain_acl.yml"
    rules.write_text(RULES)
    rules.chmod(0o600)
    settings = (
        "aclEnable=true", f"rocketmq.acl.plain.file={rules}",
        "transactionTimeOut=1000", "transactionCheckInterval=1000",
    )  # fmt: skip
    return Cluster(home / "home", replicas=replicas, sync_flush=False, settings=settings)


async def send_first(cluster: Cluster) -> None:
    config = ClientConfig(
        namesrv_addrs=(cluster.namesrv_addr,), group="first", send_timeout_ms=20_000,
        access_key="rooooot", secret_key="secret-r",
    )  # fmt: skip
    async with Producer(config) as producer:
        await producer.send(Message(TOPIC, b"first"))


def outcomes(
    version: str, broker: Cluster, *keys: str
) -> dict[str, str]:  # fmt: skip
    try:
        tools = java.prepare(version)
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with the Java client {version} skipped: {error}")
    words = [broker.namesrv_addr, TOPIC, GROUP, *keys]
    command = tools.command("ledgermq.Access", words, heap_mb=128)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    return {line[0]: line[1] for line in lines if line[0] in {"SEND", "BATCH", "PULL"}}


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_java_clients_get_what_their_account_may(version: str, broker: Cluster) -> None:
    may = outcomes(version, broker, "rooooot", "secret-r")
    assert may == {"SEND": "SEND_OK", "BATCH": "SEND_OK", "PULL": "FOUND"}
    publisher = outcomes(version, broker, "publisher", "secret-p")
    assert (publisher["SEND"], publisher["BATCH"]) == ("SEND_OK", "SEND_OK")
    assert publisher["PULL"].startswith("16 publisher lacks SUB of topic orders")
    consumer = outcomes(version, broker, "consumer", "secret-c")
    assert consumer["SEND"].startswith("16 consumer lacks PUB of topic orders")
    assert consumer["BATCH"].startswith("16 consumer lacks PUB of topic orders")
    assert consumer["PULL"] == "FOUND"
    for keys, said in (
        (("rooooot", "a wrong secret"), "16 the signature is not that of account rooooot"),
        (("nobody-here", "secret-r"), "16 no account nobody-here"),
        ((), "16 no AccessKey"),
    ):
        refused = outcomes(version, broker, *keys)
        assert all(text.startswith(said) for text in refused.values()), (keys, refused)


def test_mqadmin_changes_accounts_with_the_keys_of_tools_yml(
    broker: Cluster, tmp_path: Path
) -> None:
    try:
        tools = java.prepare()
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with mqadmin skipped: {error}")
    home = tmp_path / "mqadmin"
    mqadmin = mqadmin_of(tools, home)
    address = ("-n", broker.namesrv_addr, "-b", f"127.0.0.1:{broker.ports[0]}")
    account = ("-a", "newcomer", "-s", "secret-n", "-t", "orders=SUB", "-g", "g=SUB")
    assert "success" not in mqadmin("updateAclConfig", *address, *account)
    (home / "conf" / "tools.yml").write_text("accessKey: rooooot\nsecretKey: secret-r\n")
    assert "success" in mqadmin("updateAclConfig", *address, *account)
    shown = mqadmin("getAclConfig", *address)
    assert "newcomer" in shown
    assert "secret-" not in shown
    assert BROKER in mqadmin("clusterAclConfigVersion", *address)
    assert outcomes("4.9.7", broker, "newcomer", "secret-n")["PULL"] == "FOUND"
    assert "success" in mqadmin("deleteAclConfig", *address, "-a", "newcomer")
    assert outcomes("4.9.7", broker, "newcomer", "secret-n")["PULL"].startswith("16 no account")
    topic = ("updateTopic", *address, "-t", "made", "-r", "1", "-w", "1")
    assert "success" in mqadmin(*topic)


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_java_clients_with_accounts_get_over_a_leader_kill(version: str, tmp_path: Path) -> None:
    try:
        tools = java.prepare(version)
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with the Java client {version} skipped: {error}")
    with guarded(tmp_path, 3) as cluster:
        cluster.leader()
        asyncio.run(send_first(cluster))
        secured(cluster, tools, [TOPIC, str(COUNT), GROUP, *KEYS], tmp_path)

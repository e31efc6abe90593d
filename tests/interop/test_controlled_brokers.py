"""RocketMQ 5.3.3's own brokers get their roles from a controller of ours; their master is killed.

Brokers of one name are of one kind: those of RocketMQ tell controllers no address of their HA
service, which ours ask for.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from bench import java
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.transport.client import RemotingClient
from tests.integration.controllers import Servers, servers
from tests.interop.plain_brokers import Questions, RealBroker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.interop

WAIT_S = 90.0
SENT = 10


def broker(tools: java.JavaTools, path: Path, group: Servers, number: int) -> RealBroker:
    """Return a broker of RocketMQ with a role from ``group``."""
    store = path / f"store-{number}"
    settings: dict[str, object] = {
        "brokerName": "a", "brokerClusterName": "C", "brokerIP2": "127.0.0.1",
        "namesrvAddr": f"127.0.0.1:{group.ports[0]}", "mappedFileSizeCommitLog": 1 << 20,
        "enableControllerMode": "true", "controllerAddr": group.controllers[0],
        "allAckInSyncStateSet": "true", "brokerHeartbeatInterval": 500,
        "controllerHeartBeatTimeoutMills": 3_000, "syncBrokerMetadataPeriod": 1_000,
        "storePathEpochFile": store / "epochFileCheckpoint",
        "storePathBrokerIdentity": store / "brokerIdentity",
    }  # fmt: skip
    found = RealBroker(tools, path / f"b{number}", store, settings)
    found.settings["haListenPort"] = found.port + 1
    return found


async def told(controller: str) -> dict[str, Any]:
    """Return what the controller says of the brokers; nothing before there are any."""
    client = RemotingClient()
    try:
        answer = await client.request(controller, RemotingCommand(1006, body=b"[]"), 5_000)
        table = json.loads(bytes(answer.body))["replicasInfoTable"] if answer.code == 0 else {}
        return dict(table.get("a", {}))
    finally:
        await client.close()


def until(controller: str, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until the controller says so of the brokers."""
    deadline = time.monotonic() + WAIT_S
    while not holds(found := asyncio.run(told(controller))):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def master_is(one: RealBroker) -> Callable[[dict[str, Any]], bool]:
    return lambda found: found.get("masterAddress") == one.address


def are_in_sync(found: dict[str, Any]) -> bool:
    return len(found.get("inSyncReplicas", ())) == 2


async def send(one: RealBroker) -> None:
    """Send messages, each until it is acknowledged."""
    async with Questions(one.address) as ask:
        for number in range(SENT):
            await ask.send("TBW102", 0, b"body %d" % number, "KEYS\x01k\x02")


def log_of(one: RealBroker) -> bytes:
    return (one.store / "commitlog" / f"{0:020d}").read_bytes().rstrip(b"\0")


def test_brokers_of_rocketmq_get_their_roles_from_our_controller(tmp_path: Path) -> None:
    try:
        tools = java.prepare("5.3.3")
    except java.JavaUnavailableError as error:
        pytest.skip(f"brokers of 5.3.3 under controllers skipped: {error}")
    with servers(tmp_path, count=1) as group:
        controller = group.controllers[0]
        first, second = (broker(tools, tmp_path, group, number) for number in (1, 2))
        with first:
            until(controller, master_is(first))
            with second:
                until(controller, are_in_sync)
                asyncio.run(send(first))
                first.kill()
                until(controller, master_is(second))
                asyncio.run(send(second))
                with first:
                    until(controller, are_in_sync)
                    assert master_is(second)(asyncio.run(told(controller)))
                    deadline = time.monotonic() + WAIT_S
                    while log_of(first) != log_of(second):
                        assert time.monotonic() < deadline, "the logs differ"
                        time.sleep(0.2)
                assert log_of(second).count(b"body ") >= 2 * SENT

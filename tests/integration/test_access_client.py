"""Our own clients, commands and slaves with accounts, against brokers with access control."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bench.cluster import Cluster
from ledgermq import (
    AdminClient,
    ClientConfig,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    NoRoute,
    Producer,
    PushConsumer,
    ResponseError,
    SendFailed,
)
from tests.integration.classic_brokers import classic
from tests.integration.test_access import RULES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ledgermq import ConsumeContext, MessageExt

pytestmark = pytest.mark.slow

ROOT, PUBLISHER, CONSUMER = (
    ("rooooot", "secret-r"), ("publisher", "secret-p"), ("consumer", "secret-c"),
)  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("access")
    (home / "plain_acl.yml").write_text(RULES)
    settings = ("aclEnable=true", f"rocketmq.acl.plain.file={home / 'plain_acl.yml'}")
    with Cluster(home / "home", replicas=1, sync_flush=False, settings=settings) as cluster:
        yield cluster


def config(cluster: Cluster, group: str, keys: tuple[str, str]) -> ClientConfig:
    found = ClientConfig(
        namesrv_addrs=(cluster.namesrv_addr,), group=group, access_key=keys[0], secret_key=keys[1],
        retry_times=0,
    )  # fmt: skip
    assert keys[1] not in repr(found)
    return found


async def created(admin: AdminClient) -> bool:
    """Make the topic, as soon as name servers know the broker."""
    try:
        await admin.create_topic("orders", queues=1)
    except NoRoute:
        return False
    return True


def test_clients_send_and_consume_with_their_accounts(broker: Cluster) -> None:
    seen: list[bytes] = []

    async def listen(messages: list[MessageExt], _context: ConsumeContext) -> ConsumeStatus:
        seen.extend(bytes(one.body) for one in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    async def main() -> None:
        async with AdminClient(config(broker, "a", ROOT)) as admin:
            async with asyncio.timeout(30):
                while not await created(admin):
                    await asyncio.sleep(0.1)
        async with Producer(config(broker, "p", PUBLISHER)) as producer:
            await producer.send(Message("orders", b"one"))
            await asyncio.gather(*(producer.send(Message("orders", b"many")) for _ in range(20)))
            await producer.send_batch([Message("orders", b"batch")] * 2)
            await producer.send_oneway(Message("orders", b"last"))
            with pytest.raises(SendFailed, match="publisher lacks PUB of topic other"):
                await producer.send(Message("other", b"no"))
        options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
        consumer = PushConsumer(config(broker, "g", CONSUMER), listen, options=options)
        consumer.subscribe("orders")
        async with consumer, asyncio.timeout(30):
            while len(seen) < 24:
                await asyncio.sleep(0.05)
        async with AdminClient(config(broker, "a", PUBLISHER)) as admin:
            with pytest.raises(ResponseError, match="no administrator"):
                await admin.create_topic("made", queues=1)

    asyncio.run(main())
    assert sorted(seen) == sorted([b"one", *[b"many"] * 20, b"batch", b"batch", b"last"])


def test_commands_take_the_keys_from_the_environment_and_tell_nobody(broker: Cluster) -> None:
    def run(*words: str, **keys: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "NAMESRV_ADDR": broker.namesrv_addr, **keys}
        command = [sys.executable, "-m", "cli", *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env=environment
        )

    keys = {"LEDGERMQ_ACCESS_KEY": "rooooot", "LEDGERMQ_SECRET_KEY": "secret-r"}
    sent = run("produce", "-t", "by-command", "hello", **keys)
    assert sent.returncode == 0, sent.stderr
    told = run("admin", "topicStatus", "-t", "by-command", **keys)
    assert told.returncode == 0, told.stderr
    refused = run("produce", "-t", "by-command", "hello")
    assert (refused.returncode, "no AccessKey" in refused.stdout + refused.stderr) == (1, True)
    half = run("produce", "-t", "by-command", "hello", "--access-key", "rooooot")
    assert half.returncode == 2
    for done in (sent, told, refused, half):
        assert "secret-r" not in done.stdout + done.stderr


def test_a_slave_follows_the_tables_of_a_master_with_access_control(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text(RULES)
    settings = {
        "aclEnable": "true", "rocketmq.acl.plain.file": str(tmp_path / "plain_acl.yml"),
        "peerSharedKey": "a key of enough characters",
    }  # fmt: skip

    async def main() -> None:
        (tmp_path / "brokers").mkdir()
        async with classic(tmp_path / "brokers") as brokers:
            await brokers.start("a0", **settings)
            await brokers.start("a1", **settings)
            async with asyncio.timeout(40):
                while "event=tables_follow" not in brokers.log("a1"):
                    await asyncio.sleep(0.1)

    asyncio.run(main())

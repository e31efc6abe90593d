"""``ledgermq admin deleteTopic`` and ``deleteSubGroup`` on a group that wants them signed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bench.cluster import Cluster
from ledgermq import (
    AdminClient,
    ClientConfig,
    ConsumeFrom,
    LitePullConsumer,
    LitePullOptions,
    Message,
    Producer,
)
from tests.integration.test_tools_process import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

TOPIC, GROUP = "unwanted", "unwanted-group"


async def prepare(config: ClientConfig) -> None:
    """Send and consume one message, so that the group is known and has an offset."""
    async with Producer(config) as producer:
        await producer.send(Message(TOPIC, b"one"), timeout_ms=20_000)
    options = LitePullOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer = LitePullConsumer(config, options)
    consumer.subscribe(TOPIC)
    async with consumer:
        assert [one.body for one in await consumer.poll(30)] == [b"one"]
        await consumer.poll(0)


async def is_gone(config: ClientConfig) -> None:
    async with AdminClient(config) as admin:
        assert TOPIC not in await admin.topics()
        found: list[str] = [GROUP]

        async def look() -> None:
            while GROUP in found:
                found[:] = await admin.groups()
                await asyncio.sleep(0.05)

        task = asyncio.create_task(look())
        await until(task.done)


def test_topics_and_groups_are_deleted_by_signed_commands(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("a shared key of a test\n")
    key.chmod(0o600)
    settings = [f"peerSharedKeyFile={key}"]
    with Cluster(tmp_path / "c", replicas=3, sync_flush=False, settings=settings) as cluster:
        cluster.leader()
        config = ClientConfig(
            namesrv_addrs=(cluster.namesrv_addr,), group=GROUP, send_timeout_ms=20_000
        )
        asyncio.run(prepare(config))

        def run(*words: str, signed: bool = True) -> subprocess.CompletedProcess[str]:
            options = ["--key-file", str(key)] if signed else []
            command = [sys.executable, "-m", "cli", "admin", *options, *words]
            return subprocess.run(
                [*command, "-n", cluster.namesrv_addr],
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip

        refused = run("deleteTopic", "-t", TOPIC, signed=False)
        assert refused.returncode == 1
        assert "code 16" in refused.stderr
        for words in (("deleteTopic", "-t", TOPIC), ("deleteSubGroup", "-g", GROUP, "-r")):
            done = run(*words)
            assert done.returncode == 0, done.stderr
        asyncio.run(is_gone(config))
        for words in (("deleteTopic", "-t", TOPIC), ("deleteSubGroup", "-g", GROUP)):
            again = run(*words)
            assert again.returncode == 1
            assert ("no name server knows it" in again.stderr) or (
                "no broker knows" in again.stderr
            )

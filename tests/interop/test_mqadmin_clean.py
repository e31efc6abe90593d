"""RocketMQ's own mqadmin asks our broker for messages, and for a round of retention."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING

import pytest
import uvloop

from bench import java
from tests.integration.broker_cluster import cluster, send_fields
from tests.integration.test_broker_retention import SEGMENT, come_back, long_ago, node, send

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.interop

MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"
COMMANDS = ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog")
TIMEOUT_S = 120
ATTEMPTS = 4
UNREACHED = ("RemotingTimeoutException", "RemotingConnectException", "RemotingSendRequestException")
"""What the tool says where it did not wait long enough: 2 to 5 s, too few on a busy machine."""


@pytest.fixture(scope="module")
def tools() -> java.JavaTools:
    try:
        return java.prepare()
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with mqadmin skipped: {error}")


def mqadmin_of(tools: java.JavaTools, home: Path) -> Callable[..., str]:
    """Return a function that runs mqadmin with some words and returns what it prints."""
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "logback_tools.xml").write_text(
        '<configuration><root level="OFF"/></configuration>'
    )

    def mqadmin(*words: str) -> str:
        line = tools.command(MAIN, list(words), heap_mb=128)
        line[1:1] = [f"-Drocketmq.home.dir={home}", f"-Duser.home={home}"]
        for _ in range(ATTEMPTS):
            done = subprocess.run(  # in its own folder: consumerStatus leaves files where it runs
                line, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, cwd=home
            )
            if not any(name in done.stderr + done.stdout for name in UNREACHED):
                break
        return done.stdout

    return mqadmin


def test_mqadmin_is_told_success_and_old_files_go(tools: java.JavaTools, tmp_path: Path) -> None:
    mqadmin = mqadmin_of(tools, tmp_path / "mqadmin")

    async def scenario() -> None:
        async with cluster(tmp_path / "brokers", 1, SEGMENT, long_ago) as group:
            await group.leader()
            await send(group, 0, "T", 100)
            come_back(group)
            await send(group, 0, "T", 1)
            namesrv = group.config(0).namesrv_addr
            for command in COMMANDS:
                words = (command, "-n", namesrv, "-b", group.address(0))
                assert (await asyncio.to_thread(mqadmin, *words)).split()[-1] == "success"
            assert node(group, 0).node.first_index > 0

    uvloop.run(scenario())


@pytest.mark.slow
def test_mqadmin_finds_a_message_by_keys_ids_and_offset(
    tools: java.JavaTools, tmp_path: Path
) -> None:
    mqadmin = mqadmin_of(tools, tmp_path / "mqadmin")
    unique = {name: f"{name:A<32}" for name in ("Aa", "BB")}

    async def scenario() -> None:
        async with cluster(tmp_path / "brokers", 1) as group:
            await group.leader()
            ids = {}
            for name, value in unique.items():  # of one hash
                properties = f"KEYS\x01k {name}\x02UNIQ_KEY\x01{value}\x02"
                sent = await group.ask(0, 310, name.encode(), **send_fields("T", 0, properties))
                ids[name] = sent.ext_fields["msgId"]
            namesrv = group.config(0).namesrv_addr

            async def ask(*words: str) -> str:
                return await asyncio.to_thread(mqadmin, *words, "-n", namesrv)

            for name, other in (("Aa", "BB"), ("BB", "Aa")):
                found = await ask("queryMsgByKey", "-t", "T", "-k", name)
                assert unique[name] in found
                assert unique[other] not in found
            both = await ask("queryMsgByKey", "-t", "T", "-k", "k")
            assert all(found in both for found in unique.values())
            for words in (
                ("queryMsgByUniqueKey", "-t", "T", "-i", unique["BB"]),
                ("queryMsgById", "-i", ids["BB"]),
                ("queryMsgByOffset", "-t", "T", "-b", "g0", "-i", "0", "-o", "1"),
            ):
                shown = await ask(*words)
                assert f"UNIQ_KEY={unique['BB']}" in shown, words
                assert "Keys:                [k BB]" in shown, words

    uvloop.run(scenario())

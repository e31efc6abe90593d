"""RocketMQ's own mqadmin asks our broker for a round of retention."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING

import pytest
import uvloop

from bench import java
from tests.integration.broker_cluster import cluster
from tests.integration.test_broker_retention import SEGMENT, come_back, long_ago, node, send

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.interop

MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"
COMMANDS = ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog")
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def tools() -> java.JavaTools:
    try:
        return java.prepare()
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with mqadmin skipped: {error}")


def test_mqadmin_is_told_success_and_old_files_go(tools: java.JavaTools, tmp_path: Path) -> None:
    home = tmp_path / "mqadmin"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "logback_tools.xml").write_text(
        '<configuration><root level="OFF"/></configuration>'
    )

    def mqadmin(*words: str) -> str:
        line = tools.command(MAIN, list(words), heap_mb=128)
        line[1:1] = [f"-Drocketmq.home.dir={home}", f"-Duser.home={home}"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        return done.stdout

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

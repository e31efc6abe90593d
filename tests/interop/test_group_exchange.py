"""Three directories, two groups in turn: RocketMQ's with DLedger and ours; nothing is lost.

Each group is stopped cleanly, and the other one goes on with its three directories. What is read is
compared with what was acknowledged, as in `test_store_exchange`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from bench import java
from bench.processes import wait_for_port
from chaos.backends.ports import take_port_block
from ledgermq.remoting.protocol.errors import RemotingError
from tests.integration.broker_cluster import send_fields
from tests.interop.plain_brokers import REPOSITORY, OurBroker, PlainBroker, Questions, RealBroker
from tests.interop.test_store_exchange import SETTINGS, Exchange

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

MEMBERS = 3
LEADER_S = 60.0
STOP_S = 60
#: RocketMQ's followers ask the leader for its tables every ten seconds.
TABLES_S = 14.0


@pytest.fixture(scope="module")
def tools() -> java.JavaTools:
    try:
        return java.prepare()
    except java.JavaUnavailableError as error:
        pytest.skip(f"exchange with a real group skipped: {error}")


@pytest.fixture
def namesrv() -> Iterator[str]:
    """A name server, by which RocketMQ's followers find their leader."""
    port = take_port_block(1)
    command = [sys.executable, "-m", "namesrv", "-p", str(port)]
    with subprocess.Popen(command, cwd=REPOSITORY, env=dict(os.environ)) as process:
        wait_for_port(port, process)
        yield f"127.0.0.1:{port}"
        process.terminate()


class Group:
    """Three brokers over the directories below ``root``, whoever made them."""

    def __init__(
        self, home: Path, root: Path, namesrv_addr: str, tools: java.JavaTools | None
    ) -> None:
        base = take_port_block(MEMBERS)
        peers = ";".join(f"n{number}-127.0.0.1:{base + number}" for number in range(MEMBERS))
        self.members: list[PlainBroker] = []
        for number in range(MEMBERS):
            settings: dict[str, object] = {
                **SETTINGS,
                "namesrvAddr": namesrv_addr,
                "enableDLegerCommitLog": "true",
                "dLegerGroup": "exchange",
                "dLegerSelfId": f"n{number}",
                "dLegerPeers": peers,
            }
            place, store = home / f"n{number}", root / f"n{number}"
            self.members.append(
                OurBroker(place, store, settings)
                if tools is None
                else RealBroker(tools, place, store, settings)
            )

    async def leader(self) -> PlainBroker:
        """Return the member that takes sends, once there is one."""
        deadline = time.monotonic() + LEADER_S
        while time.monotonic() < deadline:
            for member in self.members:
                with contextlib.suppress(RemotingError):
                    async with Questions(member.address) as ask:
                        answer = await ask.ask(310, b"?", **send_fields("probe"))
                        if answer.code == 0:
                            return member
            await asyncio.sleep(0.3)
        raise AssertionError("nobody leads")

    def stop(self) -> None:
        """End all of them cleanly."""
        for member in self.members:
            member.process.send_signal(signal.SIGTERM)
        for member in self.members:
            member.process.wait(STOP_S)


@pytest.mark.slow
def test_each_group_reads_what_the_other_wrote(
    tools: java.JavaTools, tmp_path: Path, namesrv: str
) -> None:
    exchange = Exchange()
    for turn, who in enumerate(("real", "ours", "real", "ours")):
        real = tools if who == "real" else None
        group = Group(tmp_path / f"{turn}-{who}", tmp_path / "stores", namesrv, real)
        with contextlib.ExitStack() as running:
            for member in group.members:
                running.enter_context(member)

            async def work(group: Group = group, who: str = who) -> None:
                leader = await group.leader()
                await exchange.check(leader)
                await exchange.write(leader, who)
                await exchange.check(leader)

            asyncio.run(work())
            time.sleep(TABLES_S)
            group.stop()

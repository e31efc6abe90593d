"""The published Java consumer goes on at a slave of ours when its master is killed, and comes back.

It begins, after the master's death, where its group had come to at the master; what it commits at
the slave is with the master once that is back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from bench import java
from ledgermq.client import AdminClient
from tests.integration.classic_brokers import classic
from tests.integration.test_slave_reads import (
    QUEUES,
    TOPIC,
    committed,
    end_of,
    holds,
    read_some,
    send,
)
from tests.interop.java_program import JavaProgram

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.slow]

GROUP = "java_group"
TIMEOUT_S = 300
JAVA_S = 90.0


@pytest.fixture(scope="module")
def tools() -> java.JavaTools:
    try:
        return java.prepare()
    except java.JavaUnavailableError as error:
        pytest.skip(f"the Java consumer at a slave skipped: {error}")


def test_the_java_consumer_goes_on_at_a_slave_and_comes_back(
    tools: java.JavaTools, tmp_path: Path
) -> None:
    asyncio.run(asyncio.wait_for(check(tools, tmp_path), TIMEOUT_S))


async def check(tools: java.JavaTools, directory: Path) -> None:
    async with classic(directory) as brokers:
        await brokers.start("a0")
        await brokers.start("a1")
        async with AdminClient(brokers.config("admin")) as admin:
            await admin.create_topic(TOPIC, QUEUES)
        sent = await send(brokers, range(100))
        before = await read_some(brokers, GROUP, 10)

        async def is_told() -> bool:
            return (
                await committed(brokers, "a1", GROUP) == 10 * QUEUES
                and await end_of(brokers, "a1") == 100
            )

        await holds("the slave has messages and offsets", is_told)
        brokers.kill("a0")
        arguments = [brokers.namesrv, GROUP, TOPIC]
        with JavaProgram(tools, "ledgermq.Consume", arguments, directory / "java.log") as running:

            async def gets(bodies: set[bytes], what: str) -> None:
                wanted = {body.decode() for body in bodies}
                await asyncio.to_thread(
                    running.wait_for, lambda: set(running.firsts("GOT")) >= wanted, JAVA_S, what
                )

            await gets(sent - before, "rest from the slave")
            assert {body.encode() for body in running.firsts("GOT")} == sent - before

            async def is_committed() -> bool:
                return await committed(brokers, "a1", GROUP) == 100

            await holds("what Java commits at the slave", is_committed)
            await brokers.start("a0")

            async def is_back() -> bool:
                return await committed(brokers, "a0", GROUP) == 100

            await holds("it is with the master again", is_back)
            late = await send(brokers, range(100, 120))
            await gets(late, "messages from the master that is back")

            async def is_at_the_end() -> bool:
                return await committed(brokers, "a0", GROUP) == 120

            await holds("what Java commits at the master", is_at_the_end)

"""Members that poll, against real processes: a leader is killed, nothing acknowledged is lost."""

import asyncio
import signal

import pytest

from ledgermq import ClientConfig, ConsumeFrom, LitePullConsumer, LitePullOptions, Message
from tests.integration.test_client_cluster import (  # noqa: F401 - the fixture is used by its name
    GROUP,
    processes,
    started_producer,
)

pytestmark = pytest.mark.slow
COUNT = 300


def member(running):
    config = ClientConfig(namesrv_addrs=running.namesrv_addrs, group="it-lite")
    options = LitePullOptions(
        consume_from=ConsumeFrom.FIRST_OFFSET, auto_commit_interval_ms=200, pull_batch_count=8
    )
    made = LitePullConsumer(config, options)
    made.subscribe("lite")
    return made


def test_members_that_poll_get_all_though_a_leader_dies(processes):  # noqa: F811 - see above
    async def body():
        found, acknowledged = [], set()

        async def work(consumer):
            while True:
                found.extend(message.body for message in await consumer.poll(0.2, 10))

        async with started_producer(processes, "lite") as producer:
            async with member(processes) as first, member(processes) as second:
                polls = [asyncio.create_task(work(one)) for one in (first, second)]
                for number in range(COUNT):
                    one = b"%d" % number
                    await producer.send(Message("lite", one), timeout_ms=10_000)
                    acknowledged.add(one)
                    if number == COUNT // 2:
                        leader = producer.routes.master(GROUP)
                        processes.signal(processes.node_at(leader), signal.SIGKILL)
                async with asyncio.timeout(30):
                    while not acknowledged <= set(found):
                        await asyncio.sleep(0.05)
                for poll in polls:
                    poll.cancel()
                await asyncio.gather(*polls, return_exceptions=True)
            async with member(processes) as third:
                assert await third.poll(1) == []  # All was committed, also on the new leader.

    asyncio.run(body())

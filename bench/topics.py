"""Topics of a cluster that has just been started: made once its brokers are registered, counted."""

import asyncio
import time

from ledgermq.client import AdminClient, ClientConfig
from ledgermq.remoting.protocol.errors import RemotingError

REGISTER_TIMEOUT_S = 30.0
PAUSE_S = 0.1


async def create_topic(namesrv: str, topic: str, queues: int = 8) -> None:
    """Create a topic; a name server may not know the brokers at first."""
    deadline = time.perf_counter() + REGISTER_TIMEOUT_S
    config = ClientConfig(namesrv_addrs=tuple(namesrv.split(";")), group="bench_admin")
    async with AdminClient(config) as admin:
        while True:
            try:
                await admin.create_topic(topic, queues)
            except RemotingError:
                if time.perf_counter() > deadline:
                    raise
                await asyncio.sleep(PAUSE_S)
            else:
                return


async def count_messages(admin: AdminClient, topic: str) -> int:
    """Return how many messages a topic has had."""
    return sum(queue.max_offset for queue in await admin.topic_stats(topic))

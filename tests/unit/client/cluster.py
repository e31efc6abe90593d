"""A fake cluster for one test, and a runner that finds leaked tasks and connections."""

import asyncio
import gc
from collections.abc import Awaitable, Callable

from ledgermq.client.config import ClientConfig
from tests.unit.client.fakes import FakeBroker, FakeGroup, FakeNameServer

TOPIC = "orders"
TEST_TIMEOUT_S = 20


class Cluster:
    """Name servers and the replicas of one or more groups; the first of each group leads."""

    def __init__(self) -> None:
        self.name_servers: list[FakeNameServer] = []
        self.brokers: dict[str, list[FakeBroker]] = {}

    async def start(
        self, *, groups: int = 1, replicas: int = 2, name_servers: int = 1
    ) -> "Cluster":
        self.name_servers = [await FakeNameServer().start() for _ in range(name_servers)]
        for number in range(groups):
            group = FakeGroup(name=f"group-{number}")
            self.brokers[group.name] = [
                await FakeBroker(group, leader=i == 0).start() for i in range(replicas)
            ]
        self.publish()
        return self

    async def stop(self) -> None:
        for server in self.name_servers:
            await server.stop()
        for replicas in self.brokers.values():
            for broker in replicas:
                await broker.stop()

    @property
    def group(self) -> FakeGroup:
        return self.replicas[0].group

    @property
    def replicas(self) -> list[FakeBroker]:
        return self.brokers["group-0"]

    def publish(self, *topics: str, queues: int = 4, leader: int | None = 0) -> None:
        """Tell all name servers where the brokers are; ``leader`` None leaves id 0 out."""
        table = {}
        for name, replicas in self.brokers.items():
            ids = {i + 1: broker.addr for i, broker in enumerate(replicas)}
            if leader is not None:
                chosen = leader % len(replicas)
                ids[0] = ids.pop(chosen + 1)
            table[name] = ids
        for server in self.name_servers:
            for topic in topics or (TOPIC,):
                server.publish(topic, table, queues)

    def elect(self, index: int) -> None:
        """Make another replica of the first group the leader, without telling anybody."""
        for i, broker in enumerate(self.replicas):
            broker.leader = i == index

    def config(self, **settings: object) -> ClientConfig:
        addrs = tuple(server.addr for server in self.name_servers)
        defaults = {"namesrv_addrs": addrs, "group": "test-group", "stop_timeout_ms": 2_000}
        return ClientConfig(**{**defaults, **settings})


def run(test: Callable[[Cluster], Awaitable[None]], **shape: int) -> None:
    """Run ``test`` against a fresh cluster; fails on leftover tasks or connections."""

    async def main() -> None:
        cluster = await Cluster().start(**shape)
        try:
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await test(cluster)
        finally:
            await cluster.stop()
        left = {
            task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()
        }
        assert not left, f"tasks left behind: {left}"

    asyncio.run(main())
    gc.collect()

"""A group of brokers with a name server, all in one event loop, on loopback ports of their own."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from broker.config import BrokerConfig
from broker.controller import BrokerController
from chaos.backends.ports import take_ports as free_ports
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.rng import SystemRng
from ledgermq.runtime.tasks import Supervisor
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.disk import Disk

WAIT_S = 60.0
ASK_MS = 20_000


async def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds; fails by name after a minute."""
    try:
        async with asyncio.timeout(WAIT_S):
            while not holds():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {WAIT_S} s: {what}") from None


class Cluster:
    """Brokers by their position; `client` talks to them.

    ``disk``, ``clock`` and ``settings`` (fields of `BrokerConfig`) are those of brokers
    started from then on.
    """

    def __init__(
        self, directory: Path, count: int, namesrv_port: int, segment_bytes: int = 1 << 20
    ) -> None:
        self.disk: Disk = RealDisk()
        self.clock: Clock = SystemClock()
        self.settings: dict[str, Any] = {}
        self._segment_bytes = segment_bytes
        self._directory = directory
        self._ports = free_ports(2 * count)
        self._count = count
        self._namesrv_port = namesrv_port
        self.client = RemotingClient()
        self.brokers: list[BrokerController | None] = [None] * count

    def config(self, number: int) -> BrokerConfig:
        """Return the settings of one broker."""
        peers = ";".join(f"n{i}-127.0.0.1:{self._ports[2 * i + 1]}" for i in range(self._count))
        config = BrokerConfig(
            broker_cluster_name="C",
            bind_address="127.0.0.1",
            listen_port=self._ports[2 * number],
            namesrv_addr=f"127.0.0.1:{self._namesrv_port}",
            store_path=str(self._directory / f"n{number}"),
            segment_bytes=self._segment_bytes,
            enable_dledger=True,
            dledger_group="g0",
            dledger_self_id=f"n{number}",
            dledger_peers=peers,
        )
        return replace(config, **self.settings)

    async def start(self, number: int) -> None:
        """Start one broker."""
        controller = BrokerController(
            self.config(number),
            disk=self.disk,
            clock=self.clock,
            rng=SystemRng(number + 1),
            tasks=Supervisor(),
        )
        await controller.start()
        self.brokers[number] = controller

    async def stop(self, number: int) -> None:
        """Stop one broker cleanly."""
        controller, self.brokers[number] = self.brokers[number], None
        if controller is not None:
            await controller.stop()

    def leaders(self) -> list[int]:
        """Return the positions of the brokers that take writes."""
        return [
            number
            for number, controller in enumerate(self.brokers)
            if controller is not None and controller.store.writer.writable
        ]

    async def leader(self) -> int:
        """Wait for a leader and return its position."""
        await until(lambda: bool(self.leaders()), "a leader")
        return self.leaders()[0]

    def address(self, number: int) -> str:
        """Return where clients reach a broker."""
        return f"127.0.0.1:{self._ports[2 * number]}"

    async def ask(
        self, number: int, code: int, body: bytes = b"", **fields: object
    ) -> RemotingCommand:
        """Send a request and return its answer."""
        request = RemotingCommand(
            code, ext_fields={name: str(value) for name, value in fields.items()}, body=body
        )
        return await self.client.request(self.address(number), request, ASK_MS)

    async def route(self, topic: str) -> bytes:
        """Return the route of a topic, empty if there is none."""
        request = RemotingCommand(105, ext_fields={"topic": topic})
        with contextlib.suppress(RemotingError):
            answer = await self.client.request(f"127.0.0.1:{self._namesrv_port}", request, 1_000)
            return answer.body
        return b""


@contextlib.asynccontextmanager
async def cluster(
    directory: Path,
    count: int = 1,
    segment_bytes: int = 1 << 20,
    prepare: Callable[[Cluster], None] = lambda _group: None,
) -> AsyncIterator[Cluster]:
    """Run a name server and ``count`` brokers; ``prepare`` is called before they start."""
    server = NameServer(
        NamesrvConfig(bind_address="127.0.0.1", listen_port=0), SystemClock(), RealDisk()
    )
    group = Cluster(directory, count, await server.start(), segment_bytes)
    prepare(group)
    try:
        for number in range(count):
            await group.start(number)
        yield group
    finally:
        await group.client.close()
        for number in range(count):
            await group.stop(number)
        await server.stop()


def send_fields(topic: str, queue_id: int = 0, properties: str = "") -> dict[str, object]:
    """Return the header of a plain send."""
    return {
        "a": "p",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": 1_700_000_000_000,
        "h": 0,
        "i": properties,
        "j": 0,
        "k": "false",
        "m": "false",
    }


def pull_fields(
    topic: str, offset: int, *, suspend_ms: int = 0, **more: object
) -> dict[str, object]:
    """Return the header of a pull that takes everything."""
    fields: dict[str, object] = {
        "consumerGroup": "cg",
        "topic": topic,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 4 | (2 if suspend_ms else 0),
        "commitOffset": 0,
        "suspendTimeoutMillis": suspend_ms,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    return fields | more

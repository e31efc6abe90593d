"""A broker on its own, in the test's loop, over a directory that may be RocketMQ's."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Any

from broker.config import BrokerConfig
from broker.controller import BrokerController
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.message import MessageExt, decode_records
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.rng import SystemRng
from ledgermq.runtime.tasks import Supervisor
from tests.integration.broker_cluster import free_ports, pull_fields, send_fields, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

#: Sizes of the recorded stores.
SEGMENT_BYTES = 256 * 1024
QUEUE_FILE_BYTES = 2000
ASK_MS = 20_000


class Plain:
    """One broker, and questions to it."""

    def __init__(self, store: Path, **settings: Any) -> None:
        self.config = BrokerConfig(
            **{
                "broker_cluster_name": "C",
                "broker_name": "b",
                "bind_address": "127.0.0.1",
                "listen_port": free_ports(1)[0],
                "store_path": str(store),
                "segment_bytes": SEGMENT_BYTES,
                "queue_file_bytes": QUEUE_FILE_BYTES,
                "clean_interval_ms": 0,
                **settings,
            }
        )
        self.client = RemotingClient()
        self.controller = BrokerController(
            self.config,
            disk=RealDisk(),
            clock=SystemClock(),
            rng=SystemRng(7),
            tasks=Supervisor(),
        )

    async def start(self) -> None:
        await self.controller.start()
        await until(lambda: self.controller.store.writer.writable, "a broker that takes messages")

    async def stop(self) -> None:
        await self.client.close()
        await self.controller.stop()

    async def ask(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        texts = {name: str(value) for name, value in fields.items()}
        request = RemotingCommand(code, ext_fields=texts, body=body)
        address = f"127.0.0.1:{self.config.listen_port}"
        return await self.client.request(address, request, ASK_MS)

    async def offset(self, code: int, **fields: object) -> int:
        answer = await self.ask(code, **fields)
        assert answer.code == 0, answer
        return int(answer.ext_fields["offset"])

    async def limits(self, topic: str, queue_id: int) -> tuple[int, int]:
        low = await self.offset(31, topic=topic, queueId=queue_id)
        return low, await self.offset(30, topic=topic, queueId=queue_id)

    async def send(self, topic: str, queue_id: int, body: bytes, properties: str = "") -> int:
        answer = await self.ask(310, body, **send_fields(topic, queue_id, properties))
        assert answer.code == 0, answer
        return int(answer.ext_fields["queueOffset"])

    async def read_all(self, topic: str, queue_id: int) -> list[MessageExt]:
        offset, end = await self.limits(topic, queue_id)
        found: list[MessageExt] = []
        while offset < end:
            answer = await self.ask(11, **pull_fields(topic, offset, queueId=queue_id))
            assert answer.code == 0, (topic, queue_id, offset, answer)
            found += decode_records(answer.body, check_crc=True)
            offset = int(answer.ext_fields["nextBeginOffset"])
        return found


@contextlib.asynccontextmanager
async def plain(store: Path, **settings: Any) -> AsyncIterator[Plain]:
    """Run a broker over ``store``, and stop it cleanly."""
    broker = Plain(store, **settings)
    try:
        await broker.start()
        yield broker
    finally:
        await broker.stop()


def copy_running(store: Path, target: Path) -> None:
    """Copy the directory of a broker that runs, as a kill would leave it.

    What it renames or removes meanwhile is left out.
    """
    shutil.copytree(store, target, copy_function=_copy_if_there)


def _copy_if_there(source: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)

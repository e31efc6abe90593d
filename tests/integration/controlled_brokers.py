"""Brokers whose role controllers say, and three name servers with controllers, as processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from chaos.backends.ports import take_port_block
from ledgermq.client import ClientConfig, Message, Producer, SendFailed
from ledgermq.client.errors import ClientError
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.transport.client import RemotingClient
from tests.integration.controllers import ROOT, TIMEOUT_S, Servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

TOPIC = "orders"
QUEUES = 2
ASK_MS = 5_000
STOP_S = 30
GET_REPLICA_INFO = 1004
GET_METADATA = 1005
STATUS = 29_001


class Controlled:
    """Brokers of one name, by numbers of the test's own."""

    def __init__(self, directory: Path, key: str = "") -> None:
        self.directory = directory
        self.key = key
        self.servers = Servers(directory, key=key)
        self.namesrv = ";".join(f"127.0.0.1:{port}" for port in self.servers.ports)
        self.ports: dict[int, int] = {}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.client = RemotingClient()
        self.sent: list[bytes] = []
        """Bodies of the messages that were acknowledged."""
        self._number = 0

    def start(self, number: int, **settings: object) -> None:
        """Start a broker."""
        port = self.ports.setdefault(number, take_port_block(4) + 2)
        values: dict[str, object] = {
            "brokerClusterName": "C",
            "brokerName": "a",
            "brokerIP1": "127.0.0.1",
            "listenPort": port,
            "namesrvAddr": self.namesrv,
            "storePathRootDir": self.store(number),
            "mappedFileSizeCommitLog": 1 << 20,
            "defaultTopicQueueNums": QUEUES,
            "enableControllerMode": "true",
            "controllerAddr": ";".join(self.servers.controllers),
            "brokerHeartbeatInterval": 200,
            "controllerHeartBeatTimeoutMills": 3_000,
            "haSendHeartbeatInterval": 200,
            "haHousekeepingInterval": 3_000,
            "haMaxTimeSlaveNotCatchup": 3_000,
            **settings,
        }
        if self.key:
            values["peerSharedKey"] = self.key
        conf = self.directory / f"b{number}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        with (self.directory / f"b{number}.out").open("ab") as out:
            self.processes[number] = subprocess.Popen(
                [sys.executable, "-m", "broker", "-c", str(conf)], stdout=out, stderr=out, cwd=ROOT
            )

    def store(self, number: int) -> Path:
        return self.directory / f"store-{number}"

    def log(self, number: int) -> str:
        """Return what a broker has said."""
        return (self.directory / f"b{number}.out").read_text(errors="replace")

    def kill(self, number: int) -> None:
        """End a broker at once."""
        process = self.processes.pop(number)
        process.kill()
        process.wait()

    def stop(self, number: int) -> None:
        """End a broker cleanly."""
        process = self.processes.pop(number)
        process.terminate()
        assert process.wait(STOP_S) == 0, self.log(number)[-2000:]

    async def status(self, number: int) -> dict[str, Any]:
        """Return what a broker says of itself; nothing while it has no role."""
        request = RemotingCommand(STATUS)
        address = f"127.0.0.1:{self.ports[number]}"
        try:
            answer = await self.client.request(address, request, ASK_MS)
        except RemotingError:
            return {}
        return dict(json.loads(bytes(answer.body))) if answer.code == 0 else {}

    async def until(self, number: int, what: str, holds: Callable[[dict[str, Any]], bool]) -> Any:
        """Wait until the status of a broker is as it should be; return it."""
        found: dict[str, Any] = {}
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while not holds(found := await self.status(number)):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            message = f"{what}: {found}\n{self.log(number)[-3000:]}"
            raise AssertionError(message) from None
        return found

    async def master(self, *numbers: int) -> int:
        """Wait until one of the brokers is master; return its number."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                for number in numbers:
                    if (await self.status(number)).get("mode") == "CONTROLLED_MASTER":
                        return number
                await asyncio.sleep(0.05)

    async def in_sync(self, master: int, count: int) -> None:
        """Wait until so many replicas are in sync."""
        await self.until(
            master, f"{count} in sync", lambda status: len(status.get("in_sync", ())) == count
        )

    def config(self, group: str, **settings: Any) -> ClientConfig:
        """Return the settings of a client."""
        return ClientConfig(namesrv_addrs=tuple(self.namesrv.split(";")), group=group, **settings)

    @contextlib.asynccontextmanager
    async def producer(self) -> AsyncIterator[Producer]:
        """Run a producer."""
        producer = Producer(self.config("p", route_poll_ms=500))
        await producer.start()
        try:
            yield producer
        finally:
            await producer.stop()

    async def send(self, producer: Producer, count: int = 1) -> None:
        """Send messages, each until it is acknowledged."""
        for _ in range(count):
            self._number += 1
            body = b"%d" % self._number
            async with asyncio.timeout(TIMEOUT_S):
                while not await self._is_sent(producer, body):
                    await asyncio.sleep(0.05)
            self.sent.append(body)

    async def _is_sent(self, producer: Producer, body: bytes) -> bool:
        try:
            result = await producer.send(Message(TOPIC, body))
        except (SendFailed, ClientError, RemotingError):
            return False
        return result.status.name == "SEND_OK"

    def bytes_of(self, number: int) -> bytes:
        """Return the commit log of a broker, without the zeros at its end."""
        files = sorted((self.store(number) / "commitlog").iterdir())
        return b"".join(path.read_bytes() for path in files).rstrip(b"\0")

    def has_all(self, number: int) -> bool:
        """Whether every acknowledged message is in a broker's log."""
        data = self.bytes_of(number)
        return all(b"body-%b." % body in data for body in self.sent)

    async def close(self) -> None:
        """End all."""
        for number in list(self.processes):
            self.kill(number)
        await self.client.close()
        self.servers.stop()


@contextlib.asynccontextmanager
async def controlled(directory: Path, **options: Any) -> AsyncIterator[Controlled]:
    """Run controllers, and no broker yet."""
    group = Controlled(directory, **options)
    try:
        yield group
    finally:
        await group.close()

"""A broker on its own over one store directory: RocketMQ 4.9.7's, or ours; and questions to it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from bench.java import LOGBACK, JavaTools
from bench.processes import wait_for_port
from chaos.backends.ports import take_port_block
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.message import MessageExt, decode_records
from ledgermq.remoting.transport.client import RemotingClient
from tests.integration.broker_cluster import pull_fields, send_fields

STOP_S = 40
SETTLE_S = 60.0
ASK_MS = 10_000
PULL_NOT_FOUND = 19
REPOSITORY = Path(__file__).resolve().parent.parent.parent


class PlainBroker:
    """One process over ``store``. Use as a context manager; `stop` and `kill` end it earlier."""

    def __init__(self, home: Path, store: Path, settings: dict[str, object]) -> None:
        home.mkdir(parents=True, exist_ok=True)
        # listenPort - 2 is RocketMQ's second port, + 1 its HA service.
        self.port = take_port_block(4) + 2
        self.address = f"127.0.0.1:{self.port}"
        self.home = home
        self.store = store
        self.settings: dict[str, object] = {
            "brokerClusterName": "ExchangeCluster",
            "brokerName": "exchange",
            "brokerIP1": "127.0.0.1",
            "listenPort": self.port,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            **settings,
        }
        self.log = home / "broker.out"
        self.process: subprocess.Popen[bytes]

    def command(self, conf: Path) -> list[str]:
        """Return what to run."""
        raise NotImplementedError

    def __enter__(self) -> PlainBroker:
        conf = self.home / "broker.conf"
        conf.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        environment = {**os.environ, "ROCKETMQ_HOME": str(self.home), "HOME": str(self.home)}
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command(conf), stdout=out, stderr=out, env=environment, cwd=REPOSITORY
            )
        try:
            wait_for_port(self.port, self.process)
        except RuntimeError as error:
            self.kill()
            raise AssertionError(self.log.read_text(errors="replace")[-4000:]) from error
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def stop(self) -> None:
        """End it cleanly."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_S)

    def kill(self) -> None:
        """End it at once."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class OurBroker(PlainBroker):
    """Ours."""

    def command(self, conf: Path) -> list[str]:
        """Return what to run."""
        return [sys.executable, "-m", "broker", "-c", str(conf), "-p", "bindAddress=127.0.0.1"]


class RealBroker(PlainBroker):
    """RocketMQ's."""

    def __init__(
        self, tools: JavaTools, home: Path, store: Path, settings: dict[str, object]
    ) -> None:
        super().__init__(home, store, settings)
        self._tools = tools

    def command(self, conf: Path) -> list[str]:
        """Return what to run."""
        (self.home / "conf").mkdir(exist_ok=True)
        for name in ("broker", "namesrv"):
            log = LOGBACK.format(path=self.home / f"{name}.log")
            (self.home / "conf" / f"logback_{name}.xml").write_text(log)
        command = self._tools.command(
            "org.apache.rocketmq.broker.BrokerStartup", ["-c", str(conf)], heap_mb=384
        )
        command.insert(1, f"-Duser.home={self.home}")
        return command


class Questions:
    """Asks one broker, whoever made it. Use as an async context manager."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client = RemotingClient()

    async def __aenter__(self) -> Questions:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def ask(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        """Send a request and return its answer."""
        texts = {name: str(value) for name, value in fields.items()}
        request = RemotingCommand(code, ext_fields=texts, body=body)
        return await self._client.request(self._address, request, ASK_MS)

    async def limits(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return minimum and maximum offset of a queue."""
        found = []
        for code in (31, 30):
            answer = await self.ask(code, topic=topic, queueId=queue_id)
            assert answer.code == 0, answer
            found.append(int(answer.ext_fields["offset"]))
        return found[0], found[1]

    async def settled_limits(self, topic: str, queue_id: int, end: int) -> tuple[int, int]:
        """Return the limits of a queue once its maximum is ``end``, or what they are in the end.

        RocketMQ fills its queues from the log a moment after it has acknowledged.
        """
        deadline = time.monotonic() + SETTLE_S
        while (found := await self.limits(topic, queue_id))[1] < end:
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.05)
        return found

    async def read_all(self, topic: str, queue_id: int) -> list[MessageExt]:
        """Return all messages of a queue."""
        offset, end = await self.limits(topic, queue_id)
        found: list[MessageExt] = []
        while offset < end:
            fields = pull_fields(topic, offset, queueId=queue_id)
            answer = await self.ask(11, **fields)
            assert answer.code == 0, (topic, queue_id, offset, answer)
            found += decode_records(answer.body, check_crc=True)
            assert int(answer.ext_fields["nextBeginOffset"]) > offset
            offset = int(answer.ext_fields["nextBeginOffset"])
        return found

    async def send(self, topic: str, queue_id: int, body: bytes, properties: str = "") -> int:
        """Send until the broker takes it; return the queue offset."""
        fields = send_fields(topic, queue_id, properties)
        for _ in range(100):
            answer = await self.ask(310, body, **fields)
            if answer.code == 0:
                return int(answer.ext_fields["queueOffset"])
            await asyncio.sleep(0.1)
        raise AssertionError(answer)

    async def find(self, topic: str, key: str) -> list[bytes]:
        """Return the bodies of the messages with a key; at most a second after they were sent."""
        fields = {"topic": topic, "key": key, "maxNum": 32}
        for _ in range(20):
            answer = await self.ask(12, **fields, beginTimestamp=0, endTimestamp=2**63 - 1)
            if answer.code == 0:
                return [record.body for record in decode_records(answer.body, check_crc=True)]
            await asyncio.sleep(0.1)
        return []

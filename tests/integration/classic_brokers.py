"""Masters and slaves of RocketMQ's classic modes as processes, with a name server in the test."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

from chaos.backends.ports import take_port_block
from ledgermq.client import ClientConfig
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from tests.integration.broker_cluster import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ASK_MS = 5_000
STOP_S = 30


class Classic:
    """Brokers by a name of the test's own: ``a0`` is the master of ``broker-a``, ``a1`` a slave."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports: dict[str, int] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.client = RemotingClient()
        self.name_server = NameServer(
            NamesrvConfig(listen_port=0, bind_address="127.0.0.1"), SystemClock(), RealDisk()
        )
        self.namesrv = ""

    def address(self, name: str) -> str:
        """Return where a broker answers."""
        return f"127.0.0.1:{self._ports[name]}"

    def log(self, name: str) -> str:
        """Return what a broker has said."""
        return (self._directory / f"{name}.out").read_text(errors="replace")

    def store(self, name: str) -> Path:
        """Return the directory of a broker."""
        return self._directory / f"store-{name}"

    async def start(self, name: str, **settings: object) -> None:
        """Start a broker and wait until name servers know it."""
        number = int(name[-1])
        port = self._ports.setdefault(name, take_port_block(4) + 2)
        values: dict[str, object] = {
            "brokerClusterName": "C",
            "brokerName": f"broker-{name[:-1]}",
            "brokerId": number,
            "brokerRole": "SLAVE" if number else "ASYNC_MASTER",
            "brokerIP1": "127.0.0.1",
            "listenPort": port,
            "namesrvAddr": self.namesrv,
            "storePathRootDir": self.store(name),
            "mappedFileSizeCommitLog": 1 << 20,
            "slaveReadEnable": "true",
            **settings,
        }
        conf = self._directory / f"{name}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        with (self._directory / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "broker", "-c", str(conf)], stdout=out, stderr=out
            )
        table = self.name_server.table
        await until(
            lambda: self.address(name) in table.broker_addrs(), f"{name}: {self.log(name)[-2000:]}"
        )

    def kill(self, name: str) -> None:
        """End a broker at once."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str) -> None:
        """End a broker cleanly."""
        process = self._processes.pop(name)
        process.terminate()
        assert process.wait(STOP_S) == 0, self.log(name)[-2000:]

    async def ask(
        self, name: str, code: int, body: bytes = b"", **fields: object
    ) -> RemotingCommand:
        """Ask a broker."""
        texts = {key: str(value) for key, value in fields.items()}
        request = RemotingCommand(code, ext_fields=texts)
        return await self.client.request(self.address(name), request, ASK_MS)

    def config(self, group: str, **settings: object) -> ClientConfig:
        """Return the settings of a client."""
        return ClientConfig(namesrv_addrs=(self.namesrv,), group=group, **settings)

    async def close(self) -> None:
        """End all."""
        for name in list(self._processes):
            self.kill(name)
        await self.client.close()
        await self.name_server.stop()


@contextlib.asynccontextmanager
async def classic(directory: Path) -> AsyncIterator[Classic]:
    """Run a name server, and no broker yet."""
    brokers = Classic(directory)
    brokers.namesrv = f"127.0.0.1:{await brokers.name_server.start()}"
    try:
        yield brokers
    finally:
        await brokers.close()

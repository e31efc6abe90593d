"""Name servers with controllers, as processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from chaos.backends.ports import take_ports

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60


class Servers:
    """Name servers as processes; their controllers' addresses in ``controllers``."""

    def __init__(self, folder: Path, count: int = 3, key: str = "", **settings: str) -> None:
        self.folder = folder
        self.key = key
        self.settings = settings
        ports = take_ports(2 * count)
        self.ports = ports[:count]
        self.controllers = [f"127.0.0.1:{port}" for port in ports[count:]]
        self.peers = ";".join(f"n{i}-{one}" for i, one in enumerate(self.controllers))
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        for number in range(count):
            self.start(number)

    def start(self, number: int) -> None:
        settings = {
            "enableControllerInNamesrv": "true", "controllerDLegerSelfId": f"n{number}",
            "controllerDLegerPeers": self.peers,
            "controllerStorePath": str(self.folder / f"n{number}"), **self.settings,
        }  # fmt: skip
        if self.key:
            settings["peerSharedKey"] = self.key
        options = [item for one in settings.items() for item in ("--property", "=".join(one))]
        with (self.folder / f"n{number}.log").open("ab") as log:
            command = [sys.executable, "-m", "namesrv", "-p", str(self.ports[number]), *options]
            self.processes[number] = subprocess.Popen(command, cwd=ROOT, stderr=log)

    def kill(self, number: int) -> None:
        process = self.processes.pop(number)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for number in list(self.processes):
            self.kill(number)

    def log(self, number: int) -> str:
        return (self.folder / f"n{number}.log").read_text()


@contextlib.contextmanager
def servers(folder: Path, **options):
    found = Servers(folder, **options)
    try:
        yield found
    finally:
        found.stop()

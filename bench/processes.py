"""Server processes that a benchmark starts on loopback and ends by their ids."""

import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
LOOPBACK = "127.0.0.1"


class ServerProcesses(ABC):
    """Name servers and brokers behind them; as a context manager they run inside the block."""

    def __init__(self, home: Path, *, replicas: int, sync_flush: bool) -> None:
        """Keep the settings; nothing is started yet.

        Args:
            home: receives stores, configurations and logs.
            replicas: brokers of the one group.
            sync_flush: flushDiskType SYNC_FLUSH instead of ASYNC_FLUSH.
        """
        self.namesrv_addr = ""
        self.brokers: list[subprocess.Popen[bytes]] = []
        self._name_servers: list[subprocess.Popen[bytes]] = []
        self._home = home
        self._replicas = replicas
        self._flush = "SYNC_FLUSH" if sync_flush else "ASYNC_FLUSH"

    def __enter__(self) -> Self:
        """Start everything and wait until the ports answer."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the processes."""
        self.stop()

    def stop(self) -> None:
        """Terminate the brokers, then the name servers; kill what does not end."""
        _end(self.brokers)
        _end(self._name_servers)

    @abstractmethod
    def _start(self) -> None:
        """Start all processes."""


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_port(port: int, process: subprocess.Popen[bytes], host: str = LOOPBACK) -> None:
    """Wait until ``process`` listens on a loopback port.

    Raises:
        RuntimeError: it ended, or does not listen within ``START_TIMEOUT_S``.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"process ended with code {process.returncode} before listening")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.settimeout(1.0)
            if probe.connect_ex((host, port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on {host}, port {port}, after {START_TIMEOUT_S:.0f} s")

"""PySyncObj with three nodes as a measured peer.

One process a node. Three ways to drive it are measured, the best rate of their settings kept:

- ``client``: like our own measurement, every node keeps its log in a file (it never fsyncs before
  it acknowledges) and the load comes from a process that is no member (PySyncObj's way to be a
  client); periods of a millisecond, or ticked by hand in a tight loop: the best we found.
- ``defaults``: the same with the periods that the library comes with.
- ``embedded``: the log in memory only and the load inside the leader's own process, so neither a
  disk nor a client connection is paid for. It is the library's upper bound, not a broker.

Run as a module it is one node: ``python -m bench.pysyncobj_peer SELF PEER,PEER SETTING JOURNAL``
(``-`` for none); commands come as JSON lines on stdin, answers leave as JSON lines on stdout.
"""

import json
import logging
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pysyncobj import SyncObj, SyncObjConf, replicated

from bench.result import Measurement, summarize
from chaos.backends.ports import take_port_block

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "default-single": {"autoTick": True, "appendEntriesUseBatch": False},
    "default-batch": {"autoTick": True},
    "thread-batch": {"autoTick": True, "autoTickPeriod": 0.001, "appendEntriesPeriod": 0.001},
    "ticked-single": {"autoTick": False, "appendEntriesUseBatch": False},
    "ticked-batch": {"autoTick": False, "appendEntriesPeriod": 0.001},
}
MODES: Mapping[str, tuple[str, ...]] = {
    "defaults": ("default-single", "default-batch"),
    "client": ("thread-batch", "ticked-single", "ticked-batch"),
    "embedded": ("ticked-single", "ticked-batch"),
}
WARMUP_S = 1.0
ELECTION_WAIT_S = 20.0


class _Log(SyncObj):  # type: ignore[misc]  # the library has no types
    """A replicated object whose only operation counts a payload."""

    def __init__(self, own: str, peers: list[str], setting: str, journal: str) -> None:
        conf = SyncObjConf(
            commandsQueueSize=1_000_000,
            sendBufferSize=2**20,
            recvBufferSize=2**20,
            appendEntriesBatchSizeBytes=2**18,
            connectionRetryTime=0.2,
            logCompactionMinEntries=10**9,
            logCompactionMinTime=10**6,
            journalFile=None if journal == "-" else journal,
            **SETTINGS[setting],
        )
        super().__init__(None if own == "-" else own, peers, conf)
        self.count = 0
        self.threaded = conf.autoTick

    def turn(self) -> None:
        """Let the library work for about a millisecond."""
        if self.threaded:
            time.sleep(0.001)
        else:
            self.doTick(0.001)

    @replicated  # type: ignore[untyped-decorator]  # the library has no types
    def put(self, payload: bytes) -> int:
        """Count one payload; the return value travels back to the caller."""
        self.count += len(payload) > 0
        return self.count


class _Load:
    """A closed loop of ``window`` outstanding calls inside the leader."""

    def __init__(self, log: _Log, window: int, body: bytes) -> None:
        self.log, self.window, self.body = log, window, body
        self.latencies: list[float] = []
        self.errors = 0
        self.running = True

    def issue(self) -> None:
        begin = time.perf_counter()

        def done(_result: object, error: int) -> None:
            if error:
                self.errors += 1
            else:
                self.latencies.append(time.perf_counter() - begin)
            if self.running:
                self.issue()

        self.log.put(self.body, callback=done)

    def run(self, seconds: float) -> Measurement:
        for _ in range(self.window):
            self.issue()
        self._tick_until(time.perf_counter() + WARMUP_S)
        self.latencies.clear()
        begin = time.perf_counter()
        self._tick_until(begin + seconds)
        self.running = False
        elapsed = time.perf_counter() - begin
        return summarize(self.window, self.latencies, elapsed, self.errors)

    def _tick_until(self, deadline: float) -> None:
        while time.perf_counter() < deadline:
            self.log.turn()


def _node_main(own: str, peers: list[str], setting: str, journal: str) -> None:
    logging.disable(
        logging.CRITICAL
    )  # it logs each truncation of applied entries, thousands of them
    log = _Log(own, peers, setting, journal)
    os.set_blocking(0, False)
    while True:
        log.turn()
        if not select.select([0], [], [], 0)[0]:
            continue
        line = sys.stdin.readline()
        if not line:
            return
        command = json.loads(line)
        if command["op"] == "leader":
            leader = str(log._getLeader())  # the library has no other name for it
            answer: object = leader if log.isReady() else "None"
        else:
            load = _Load(log, command["window"], b"x" * command["size"])
            answer = load.run(command["seconds"]).as_dict()
        print(json.dumps(answer), flush=True)


class _Node:
    """A node process and the line protocol to it."""

    def __init__(self, own: str, peers: list[str], setting: str, journal: str) -> None:
        self.name = own
        module = [sys.executable, "-P", "-m", "bench.pysyncobj_peer"]
        command = [*module, own, ",".join(peers), setting, journal]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **command: Any) -> Any:  # noqa: ANN401  # JSON
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"PySyncObj node ended with code {self.process.wait()}")
        return json.loads(line)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def measure(windows: list[int], size: int, seconds: float, *, mode: str) -> dict[int, Measurement]:
    """Return, for each window, the best measurement over the settings of a mode.

    Args:
        windows: outstanding calls of the closed loop.
        size: payload bytes.
        seconds: measured time of each run.
        mode: a key of ``MODES``.
    """
    best: dict[int, Measurement] = {}
    for setting in MODES[mode]:
        with tempfile.TemporaryDirectory(prefix="pysyncobj-") as directory:
            for window, found in _run(
                setting, directory, windows, (size, seconds, mode == "embedded")
            ):
                if window not in best or found.rate > best[window].rate:
                    best[window] = found
    return best


def _run(
    setting: str, directory: str, windows: list[int], load: tuple[int, float, bool]
) -> Iterator[tuple[int, Measurement]]:
    size, seconds, embedded = load
    base = take_port_block(3)
    names = [f"127.0.0.1:{base + i}" for i in range(3)]
    nodes = []
    try:
        for own in names:
            journal = "-" if embedded else f"{directory}/{own.replace(':', '-')}"
            nodes.append(_Node(own, [p for p in names if p != own], setting, journal))
        if not embedded:
            nodes.append(_Node("-", names, setting, "-"))
        leader = _wait_for_leader(nodes[-1])
        driver = next(n for n in nodes if n.name == (leader if embedded else "-"))
        for window in windows:
            answer = driver.ask(op="load", window=window, size=size, seconds=seconds)
            yield window, Measurement(**answer)
    finally:
        for node in nodes:
            node.stop()


def _wait_for_leader(node: _Node) -> str:
    deadline = time.monotonic() + ELECTION_WAIT_S
    while time.monotonic() < deadline:
        leader = node.ask(op="leader")
        if leader != "None":
            return str(leader)
        time.sleep(0.1)
    raise RuntimeError("PySyncObj elected no leader")


if __name__ == "__main__":
    _node_main(sys.argv[1], sys.argv[2].split(","), sys.argv[3], sys.argv[4])

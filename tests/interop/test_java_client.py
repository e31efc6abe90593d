"""The published Java client 4.9.7 against three of our brokers, with a leader kill in between.

Real processes only: our name server and brokers, and JVMs that run tests/interop/java. What the
client saw acknowledged must arrive at the push consumer, before and after the leader's death.
"""

import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from bench import java
from bench.cluster import Cluster

pytestmark = pytest.mark.interop

PER_STYLE = 50
FAILOVER_SENDS_MIN = 50
DRAIN_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def tools():
    try:
        return java.prepare()
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with the Java client skipped: {error}")


class Program:
    """A JVM running one class of the driver; its output lines are collected as they come."""

    def __init__(self, tools: java.JavaTools, main: str, args: list[str], log: Path) -> None:
        self.lines: list[str] = []
        self._log = log.open("wb")
        self.process = subprocess.Popen(
            tools.command(main, args, heap_mb=256),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_for(self, predicate, timeout_s: float, what: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not predicate(list(self.lines)):
            assert self.process.poll() is None, f"JVM ended while waiting for {what}"
            assert time.monotonic() < deadline, f"no {what} within {timeout_s} s"
            time.sleep(0.05)

    def finish(self) -> None:
        if self.process.poll() is None:
            self.process.stdin.write("DONE\n")
            self.process.stdin.flush()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join(5)
        for stream in (self.process.stdin, self.process.stdout, self._log):
            stream.close()


def bodies(lines: list[str], kind: str) -> list[str]:
    column = {"ACK": 2, "GOT": 1}[kind]
    return [line.split(" ")[column] for line in lines if line.startswith(kind + " ")]


@pytest.mark.slow
def test_java_client_loses_nothing_over_a_leader_kill(tools, tmp_path):
    with Cluster(tmp_path / "cluster", replicas=3, sync_flush=False) as cluster:
        first = cluster.leader()
        topic = "interop_topic"
        address = cluster.namesrv_addr
        producer = Program(
            tools, "ledgermq.Produce", [address, topic, str(PER_STYLE)], tmp_path / "produce.log"
        )
        consumer = Program(
            tools, "ledgermq.Consume", [address, "interop_group", topic], tmp_path / "consume.log"
        )
        try:
            producer.wait_for(lambda lines: "READY-FOR-KILL" in lines, 90, "end of the four styles")
            assert [line for line in producer.lines if line.startswith("ERR")] == []
            cluster.kill(first)
            before = len(producer.lines)
            producer.wait_for(
                lambda lines: len(bodies(lines[before:], "ACK")) >= FAILOVER_SENDS_MIN,
                60,
                "acknowledged sends after the leader's death",
            )
            assert cluster.leader() != first
            producer.finish()
            acknowledged = bodies(producer.lines, "ACK")
            expected = set(acknowledged) | {f"oneway-{i}" for i in range(PER_STYLE)}
            consumer.wait_for(
                lambda lines: expected <= set(bodies(lines, "GOT")),
                DRAIN_TIMEOUT_S,
                "every message",
            )
        finally:
            producer.finish()
            consumer.finish()
    styles = Counter(body.split("-")[0] for body in acknowledged)
    assert styles["sync"] == styles["async"] == styles["batch"] == PER_STYLE
    assert styles["failover"] >= FAILOVER_SENDS_MIN
    sent = {f"failover-{i}" for i in range(10**6)} | expected
    assert set(bodies(consumer.lines, "GOT")) <= sent

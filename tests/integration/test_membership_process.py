"""Members of a cluster of real processes, changed with ``ledgermq admin``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.broker_cluster import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIMEOUT_S = 40


class Cluster:
    """A name server and brokers, each a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.namesrv, *ports = free_ports(9)
        self.ports = {f"n{number}": ports[number] for number in range(4)}
        self.peers = {f"n{number}": f"127.0.0.1:{ports[4 + number]}" for number in range(4)}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start_namesrv(self) -> None:
        self.start("namesrv", "namesrv", "-p", str(self.namesrv))

    def start(self, name: str, *arguments: str) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *arguments], stdout=log, stderr=log
            )

    def start_broker(self, node: str, *others: str, joining: bool = False) -> None:
        file = self.directory / f"{node}.conf"
        peers = ";".join(f"{one}-{self.peers[one]}" for one in (*others, node))
        file.write_text(
            f"brokerClusterName=c\nbrokerName=g0\nnamesrvAddr=127.0.0.1:{self.namesrv}\n"
            f"listenPort={self.ports[node]}\nbindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\n"
            f"storePathRootDir={self.directory / node}\nmappedFileSizeCommitLog=4194304\n"
            f"enableDLegerCommitLog=true\ndLegerGroup=g0\ndLegerSelfId={node}\n"
            f"dLegerPeers={peers}\ndLegerJoin={str(joining).lower()}\n"
        )
        self.start(node, "broker", "-c", str(file))

    def stop(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait(TIMEOUT_S)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "cli", *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env={**os.environ, "NAMESRV_ADDR": f"127.0.0.1:{self.namesrv}"},
            check=False,
        )

    def admin(self, *arguments: str) -> str:
        result = self.run("admin", *arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def statuses(self) -> list[dict[str, Any]]:
        result = self.run("admin", "raftStatus", "--json")
        return json.loads(result.stdout) if result.stdout.strip() else []

    def leader(self) -> str:
        """Wait until one leads that has committed something."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            leaders = [row for row in self.statuses() if row.get("role") == "LEADER"]
            if leaders and leaders[-1]["commit"] >= 0:
                return str(leaders[-1]["node"])
        raise AssertionError("no leader")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        made.start_namesrv()
        for node in ("n0", "n1", "n2"):
            made.start_broker(node, *({"n0", "n1", "n2"} - {node}))
        made.leader()
        yield made
    finally:
        for name in list(made.processes):
            made.stop(name)


def test_leader_is_replaced_and_a_wiped_member_returns(cluster: Cluster) -> None:
    sent = cluster.run("produce", "-t", "orders", "--count", "50", "hello")
    assert sent.returncode == 0, sent.stderr
    old = cluster.leader()
    cluster.start_broker("n3", "n0", "n1", "n2", joining=True)

    shown = cluster.admin("replace", "--old", old, "--id", "n3", "--address", cluster.peers["n3"])
    assert [line.split(":")[0] for line in shown.splitlines()] == [
        "add_learner n3", "promote n3", f"remove {old}",
    ]  # fmt: skip
    again = cluster.admin("replace", "--old", old, "--id", "n3", "--address", cluster.peers["n3"])
    assert again.count("is so already") == 3
    cluster.stop(old)

    leader = cluster.leader()
    wiped = next(node for node in ("n0", "n1", "n2") if node not in {old, leader})
    cluster.stop(wiped)
    shutil.rmtree(cluster.directory / wiped)
    cluster.start_broker(wiped, *({"n0", "n1", "n2"} - {wiped}))
    members = sorted({"n0", "n1", "n2", "n3"} - {old})
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        rows = [row for row in cluster.statuses() if "fresh" in row]  # who answers
        if len(rows) == 3 and not any(row["fresh"] or row["rejoining"] for row in rows):
            break
    assert [sorted(row["voters"]) for row in rows] == [members] * 3
    sent = cluster.run("produce", "-t", "orders", "--count", "50", "hello")
    assert sent.returncode == 0, sent.stderr
    taken = cluster.run("consume", "-t", "orders", "--count", "100", "--seconds", "20")
    assert taken.returncode == 0, taken.stderr


def test_change_that_cannot_be_made_is_refused_in_one_line(cluster: Cluster) -> None:
    for arguments, code, why in (
        (("promote", "--id", "n9"), 1, "n9 is not a learner"),
        (("addLearner", "--id", "n1", "--address", "127.0.0.1:1"), 1, "n1 is a voter already"),
        (("replace", "--old", "n8", "--id", "n9", "--address", "h:1"), 1, "n8 is not a member"),
        (("addLearner", "--id", "n9", "--address", "here"), 2, "'here' is not HOST:PORT"),
    ):
        result = cluster.run("admin", *arguments)
        assert result.returncode == code
        assert len(result.stderr.splitlines()) == 1
        assert why in result.stderr

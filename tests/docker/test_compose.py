"""Image and compose cluster, used as the front page says: start, send, receive, fail over."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.backends.engine import compose_command, inspect

pytestmark = pytest.mark.docker

ROOT = Path(__file__).resolve().parents[2]
NET = "172.28.78"
PROJECT = "ledgermq-test"
NAME_SERVERS = f"{NET}.2:9876;{NET}.3:9876"
SERVICES = ("ns0", "ns1", "n0", "n1", "n2")
ADDRESSES = {f"{NET}.{10 + at}:10911": f"n{at}" for at in range(3)}
HEALTHY_TIMEOUT_S = 60.0
FAILOVER_TIMEOUT_S = 15.0


def compose(*arguments: str) -> str:
    command = [*compose_command(), "-p", PROJECT, "-f", str(ROOT / "docker" / "compose.yaml")]
    environment = dict(os.environ, LEDGERMQ_NET=NET)
    done = subprocess.run(
        [*command, *arguments],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ledgermq(*arguments: str, timeout_s: float = 60.0) -> str:
    command = [sys.executable, "-m", "cli", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=timeout_s
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def until(what: str, condition: Any, timeout_s: float) -> Any:
    """Ask until the condition gives something true; fail with ``what`` when time is up."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.2)
    pytest.fail(f"{what}: not within {timeout_s:.0f} s\n{compose('logs', '--tail', '20')}")


def health(container: str) -> str:
    return inspect(container, "{{.State.Health.Status}}")


def leader(*, but: str = "") -> str:
    """The node other than ``but`` that says it leads, empty while none does."""
    for node in sorted({"n0", "n1", "n2"} - {but}):  # asking a stopped machine takes long
        address = next(a for a, n in ADDRESSES.items() if n == node)
        command = [sys.executable, "-m", "cli", "admin", "raftStatus", "-b", address, "--json"]
        done = subprocess.run(
            command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=30
        )
        # A leader that misses a member says so by exit code 1; it leads all the same.
        assert done.returncode in {0, 1}, done.stderr
        if json.loads(done.stdout)[0].get("role", "").lower() == "leader":
            return node
    return ""


@pytest.fixture(scope="module")
def containers() -> Iterator[dict[str, str]]:
    compose("down", "--volumes", "--remove-orphans")
    compose("up", "--detach", "--no-build")
    try:
        found = {service: compose("ps", "--quiet", service).strip() for service in SERVICES}
        for service, container in found.items():
            until(
                f"{service} healthy", lambda c=container: health(c) == "healthy", HEALTHY_TIMEOUT_S
            )
        yield found
    finally:
        compose("down", "--volumes", "--remove-orphans")


def test_name_servers_know_a_leader_and_two_followers(containers: dict[str, str]) -> None:
    def registered() -> bool:
        body = json.loads(ledgermq("admin", "clusterList", "-n", NAME_SERVERS, "--json"))
        addresses = body["brokerAddrTable"].get("RaftGroup0", {}).get("brokerAddrs", {})
        return "0" in addresses and set(addresses.values()) == set(ADDRESSES)

    until("all brokers registered", registered, FAILOVER_TIMEOUT_S)


def test_containers_run_without_root_and_within_limits(containers: dict[str, str]) -> None:
    for service, container in containers.items():
        assert inspect(container, "{{.Config.User}}") == "ledgermq", service
        assert int(inspect(container, "{{.HostConfig.Memory}}")) > 0, service
        assert inspect(container, "{{.HostConfig.RestartPolicy.Name}}") == "no", service


def test_what_is_sent_before_and_after_a_leader_kill_is_consumed(
    containers: dict[str, str],
) -> None:
    sent = ledgermq("produce", "-n", NAME_SERVERS, "-t", "Orders", "before", "--count", "20")
    assert len(sent.splitlines()) == 20
    first = until("a leader", leader, FAILOVER_TIMEOUT_S)
    subprocess.run(["docker", "kill", "-s", "KILL", containers[first]], check=True, timeout=30)
    until("another leader", lambda: leader(but=first), FAILOVER_TIMEOUT_S)
    sent = ledgermq("produce", "-n", NAME_SERVERS, "-t", "Orders", "after", "--count", "20")
    assert len(sent.splitlines()) == 20
    options = ("-t", "Orders", "-g", "reader", "--count", "40", "--seconds", "45")
    got = ledgermq("consume", "-n", NAME_SERVERS, *options).splitlines()
    assert {line.rpartition(" ")[2] for line in got} == {"before", "after"}
    places = {tuple(line.split(" ")[:2]) for line in got}
    assert len(places) >= 40
    subprocess.run(["docker", "start", containers[first]], check=True, timeout=30)
    until(
        "the killed node healthy", lambda: health(containers[first]) == "healthy", HEALTHY_TIMEOUT_S
    )


def test_wrong_setting_ends_the_container_with_code_2_and_names_the_key() -> None:
    command = ["docker", "run", "--rm", "-e", "LEDGERMQ_listenPrt=1", "ledgermq:latest", "broker"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert "listenPrt" in done.stderr + done.stdout

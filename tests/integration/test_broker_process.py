"""The broker as a process: what it says and does with bad input, and how it goes down."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tests.integration.broker_cluster import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIMEOUT_S = 60


def settings(directory: Path, **more: object) -> dict[str, object]:
    port, peer = free_ports(2)
    return {
        "listenPort": port,
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "storePathRootDir": directory / "store",
        "mappedFileSizeCommitLog": 1 << 20,
        "enableDLegerCommitLog": "true",
        "dLegerGroup": "g0",
        "dLegerSelfId": "n0",
        "dLegerPeers": f"n0-127.0.0.1:{peer}",
    } | more


def start(directory: Path, values: dict[str, object]) -> subprocess.Popen[str]:
    file = directory / "broker.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return subprocess.Popen(
        [sys.executable, "-m", "broker", "-c", str(file)], stderr=subprocess.PIPE, text=True
    )


def refused(directory: Path, values: dict[str, object]) -> str:
    """Start a broker that must not come up; return its only complaint."""
    process = start(directory, values)
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 2, errors
    fatal = [line for line in errors.splitlines() if " CRITICAL" in line]
    assert len(fatal) == 1, errors
    assert "Traceback" not in errors
    return fatal[0]


def wait_for(process: subprocess.Popen[str], *words: str) -> None:
    """Read what a broker says until each of ``words`` was in a line, in any order.

    One that does not say them in time is killed, so that this and what waits behind it end.
    """
    assert process.stderr is not None
    missing, lines = set(words), []
    killer = threading.Timer(TIMEOUT_S, process.kill)
    killer.start()
    try:
        for line in process.stderr:
            lines.append(line)
            missing = {word for word in missing if word not in line}
            if not missing:
                return
    finally:
        killer.cancel()
    raise AssertionError(f"ended, or said not within {TIMEOUT_S} s: {missing}\n{''.join(lines)}")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, object]]]:
    values = settings(tmp_path)
    process = start(tmp_path, values)
    try:
        wait_for(process, "writable=True", "event=broker_started")
        yield process, values
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"listenPrt": 1}, ["broker.conf:", "listenPrt", "listenPort"]),
        ({"listenPort": "many"}, ["broker.conf:", "listenPort=many", "1 to 65535"]),
        ({"flushDiskType": "SOMETIMES"}, ["flushDiskType=SOMETIMES", "ASYNC_FLUSH"]),
        ({"brokerRole": "SLAVE"}, ["brokerRole=SLAVE"]),
        ({"dLegerSelfId": "n7"}, ["dLegerSelfId=n7", "dLegerPeers"]),
        ({"dLegerPeers": "n0"}, ["dLegerPeers", "n0"]),
        ({"namesrvAddr": "nowhere"}, ["namesrvAddr", "nowhere"]),
        ({"brokerIP1": "not.an.ip"}, ["brokerIP1=not.an.ip"]),
        ({"mappedFileSizeConsumeQueue": 21}, ["mappedFileSizeConsumeQueue=21", "20"]),
    ],
)
def test_a_wrong_setting_is_named_and_nothing_is_touched(
    tmp_path: Path, wrong: dict[str, object], named: list[str]
) -> None:
    complaint = refused(tmp_path, settings(tmp_path, **wrong))
    for word in named:
        assert word in complaint
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("which", ["listenPort", "dLegerPeers"])
def test_a_port_in_use_is_named_and_nothing_is_touched(tmp_path: Path, which: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        value = port if which == "listenPort" else f"n0-127.0.0.1:{port}"
        complaint = refused(tmp_path, settings(tmp_path, **{which: value}))
    assert which in complaint
    assert str(port) in complaint
    assert not (tmp_path / "store").exists()


def test_the_directory_of_another_replica_is_named_and_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "store/dledger-n3"
    foreign.mkdir(parents=True)
    complaint = refused(tmp_path, settings(tmp_path))
    assert "n3" in complaint
    assert str(tmp_path / "store") in complaint
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["dledger-n3"]
    assert list(foreign.iterdir()) == []


def test_the_directory_of_a_running_broker_is_refused(
    tmp_path: Path, running: tuple[subprocess.Popen[str], dict[str, object]]
) -> None:
    _, values = running
    other = settings(tmp_path)
    complaint = refused(tmp_path, other | {"storePathRootDir": values["storePathRootDir"]})
    assert "in use" in complaint


def test_a_signal_ends_the_broker_cleanly(
    tmp_path: Path, running: tuple[subprocess.Popen[str], dict[str, object]]
) -> None:
    process, _ = running
    process.terminate()
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    assert "event=broker_stopped" in errors
    assert "ERROR" not in errors
    assert (tmp_path / "store/config/topics.json").exists()


def test_garbage_closes_that_connection_only(
    running: tuple[subprocess.Popen[str], dict[str, object]],
) -> None:
    process, values = running
    with socket.create_connection(("127.0.0.1", int(str(values["listenPort"]))), 5) as bad:
        bad.sendall(b"\xff" * 64)
        assert bad.recv(1) == b""
    assert process.poll() is None
    with socket.create_connection(("127.0.0.1", int(str(values["listenPort"]))), 5):
        pass

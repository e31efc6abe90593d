"""The published C++ client (PyPI's ``rocketmq``) against our brokers, with a leader kill.

Its heartbeats write enumerations as numbers; a broker that refuses these gives its consumers
nothing. It is installed into an environment of its own.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from typing import TYPE_CHECKING

import pytest

from bench.cluster import Cluster
from tests.interop.program import Program

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.interop

WHEEL = "rocketmq==0.4.4"
DRIVER = "tests/interop/cpp_client.py"
COUNT = 40
INSTALL_S, RUN_S = 120, 150


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.platform != "linux":
        pytest.skip("the wheel is of Linux only")
    home = tmp_path_factory.mktemp("cpp")
    venv.create(home, with_pip=True)
    found = home / "bin" / "python"
    install = [str(found), "-m", "pip", "install", "-q", "--only-binary=:all:", WHEEL]
    done = subprocess.run(install, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    probe = [str(found), "-c", "import rocketmq.client"]
    if done.returncode or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip(f"interop with the C++ client skipped: {done.stderr[-200:]}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 3])
def test_the_cpp_client_gets_all_that_it_sent(python: Path, tmp_path: Path, replicas: int) -> None:
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    with Cluster(tmp_path / "cluster", replicas=replicas, sync_flush=False) as cluster:
        leader = cluster.leader() if replicas > 1 else 0
        command = [str(python), DRIVER, cluster.namesrv_addr, "cpp", "cpp_group", str(COUNT)]
        with Program(command, tmp_path / "cpp.log", environment) as program:
            program.wait_for(lambda: "HALF" in program.lines, RUN_S, "first half")
            if replicas > 1:
                cluster.kill(leader)
            program.go_on()
            program.wait_for(lambda: len(program.words("ACK")) == COUNT + 1, RUN_S, "second half")
            sent = set(program.firsts("ACK"))
            program.wait_for(lambda: sent <= set(program.firsts("GOT")), RUN_S, "delivery")
            assert len(sent) == COUNT + 1

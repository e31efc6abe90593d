"""``docker/engine.sh run``: an engine that it started is gone after it; another one stays."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "docker" / "engine.sh"
DOCKER = """#!/bin/sh
# Answers while the daemon's file is there.
[ "$1" = compose ] && exit 0
[ -f {home}/answers ] && echo 99.0 && exit 0
exit 1
"""
DOCKERD = """#!/bin/sh
touch {home}/answers {home}/started
trap 'rm -f {home}/answers; exit 0' TERM
while :; do sleep 0.1; done
"""


class Machine:
    """A path on which docker, dockerd and root are ours."""

    def __init__(self, home: Path, *, root: bool = True) -> None:
        self.home = home
        programs = {
            "docker": DOCKER, "dockerd": DOCKERD, "id": f"#!/bin/sh\necho {0 if root else 1000}\n",
            "nft": "#!/bin/sh\n", "nsenter": "#!/bin/sh\n", "systemctl": "#!/bin/sh\nexit 1\n",
        }  # fmt: skip
        (home / "bin").mkdir()
        for name, text in programs.items():
            (home / "bin" / name).write_text(text.replace("{home}", str(home)))
            (home / "bin" / name).chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.home / 'bin'}:{os.environ['PATH']}"
        return os.environ | {"PATH": path, "LEDGERMQ_ENGINE_STATE": str(self.home / "state")}

    @property
    def answers(self) -> bool:
        return (self.home / "answers").exists()

    def engine(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", SCRIPT, *words], env=self.environment, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip


@pytest.mark.parametrize("code", [0, 1, 7])
def test_an_engine_that_run_started_is_gone_after_it(tmp_path: Path, code: int) -> None:
    machine = Machine(tmp_path)
    done = machine.engine("run", "bash", "-c", f"docker version && exit {code}")
    assert done.returncode == code, done.stdout
    assert "99.0" in done.stdout
    assert (tmp_path / "started").exists()
    assert not machine.answers


def test_an_engine_that_answered_before_is_left_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert machine.engine("start").returncode == 0
    try:
        assert machine.engine("run", "docker", "version").returncode == 0
        assert machine.answers
    finally:
        assert machine.engine("stop").returncode == 0
    assert not machine.answers


def test_ctrl_c_leaves_no_engine_behind(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    words = ["bash", SCRIPT, "run", "bash", "-c", f"touch {tmp_path}/busy; sleep 30"]
    process = subprocess.Popen(words, env=machine.environment, start_new_session=True)
    deadline = time.monotonic() + 30
    while not (tmp_path / "busy").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=30)
    assert not machine.answers


def test_a_process_that_has_the_number_of_an_engine_that_is_gone_is_left_alone(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "state").mkdir()
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            (tmp_path / "state" / "pid").write_text(f"{other.pid}\n")
            assert machine.engine("stop").returncode == 0
            assert other.poll() is None
        finally:
            other.kill()
    assert not (tmp_path / "state" / "pid").exists()


def test_without_root_nothing_is_started_and_the_reason_is_said(tmp_path: Path) -> None:
    machine = Machine(tmp_path, root=False)
    done = machine.engine("run", "true")
    assert done.returncode == 3
    assert "only root may start one" in done.stdout
    assert not (tmp_path / "started").exists()

"""Hints that can be pasted, and processes that import nothing of the directory one is in."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from chaos import hints
from chaos.backends.process import Child
from chaos.verdict import run_module
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted

OURS = ("broker", "chaos", "client", "ledgermq", "namesrv", "runtime", "spark", "store")


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with modules of the names that ours have."""
    for name in OURS:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name}.py of the user')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def started(module: str) -> tuple[int, str]:
    """Return how ``python -m MODULE --help`` of the harness ends, and what it says."""

    async def main() -> int:
        child = await Child.start("one", ["-m", module, "--help"], Path("one.log"))
        return await child.process.wait()

    return asyncio.run(main()), Path("one.log").read_text()


@pytest.mark.parametrize("module", ["broker", "namesrv", "spark.check_history"])
def test_processes_of_a_run_are_ours_wherever_they_start(theirs: Path, module: str) -> None:
    code, said = started(module)
    assert code == 0, said
    assert "usage: " in said


def test_the_jobs_after_a_run_are_ours_wherever_they_start(theirs: Path) -> None:
    log = theirs / "job.log"
    code = asyncio.run(run_module(["spark.check_history", "--help"], log, 60.0))
    assert code == 0, log.read_text()


def test_without_safe_paths_processes_would_take_the_modules_of_the_user(theirs: Path) -> None:
    with planted(HARNESS_BUGS["modules-of-the-user"]):
        code, said = started("broker")
    assert code != 0
    assert "broker.py of the user" in said


def test_the_command_is_named_as_it_can_be_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / ".venv" / "bin"
    place.mkdir(parents=True)
    (place / "ledgermq").write_text("#!/bin/sh\n")
    (place / "ledgermq").chmod(0o755)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(sys, "executable", str(place / "python"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    assert hints.program() == ".venv/bin/ledgermq"
    monkeypatch.chdir(place.parent.parent / "elsewhere")
    assert hints.program() == str(place / "ledgermq")
    monkeypatch.setenv("PATH", str(place))
    assert hints.program() == "ledgermq"
    (place / "ledgermq").unlink()
    assert hints.program() == f"{place / 'python'} -P -m cli"


def test_make_is_named_only_in_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hints.has_target("demo")
    assert not hints.has_target("no-such-target")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Makefile").write_text("demo: of another project\n")
    assert not hints.has_target("demo")


def test_the_installed_command_runs_beside_modules_of_the_user(theirs: Path) -> None:
    command = Path(sys.executable).with_name("ledgermq")
    done = subprocess.run([command, "version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

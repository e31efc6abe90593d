"""The layers: every import-linter contract of pyproject.toml holds, and none was dropped."""

import subprocess
import sys

import pytest

from tests.architecture.tree import ROOT, project

CONTRACTS = {
    "Layers: a package imports only packages below it",
    "Layers inside dledger",
    "Layers inside remoting",
    "The harness does not share the system's code",
    "Name server and client know neither store nor log",
    "Spark sees only the history",
    "Pure code does no I/O",
    "Siblings do not depend on each other in a circle",
}


def test_no_contract_was_dropped() -> None:
    contracts = project()["tool"]["importlinter"]["contracts"]  # type: ignore[index]
    assert {contract["name"] for contract in contracts} >= CONTRACTS


@pytest.mark.slow
def test_every_contract_is_kept() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    done = subprocess.run(
        [*command, "--no-cache", "--no-logo"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr

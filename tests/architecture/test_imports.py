"""The layers: every import-linter contract of pyproject.toml holds, and none was dropped."""

import ast
import subprocess
import sys

import pytest

from tests.architecture.tree import ROOT, module_name, project, python_files, tree

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


def runs_well(program: str, *words: str) -> None:
    """Run a program in a process of its own; it has to end well."""
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(
        command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_every_contract_is_kept() -> None:
    runs_well(
        "from importlinter.cli import lint_imports_command as c; c()", "--no-cache", "--no-logo"
    )


SHARED = {
    "chaos.catalogue.checks": "titles, severities, what is compared",
    "chaos.catalogue.console": "how a text of a run is shown on a terminal",
    "chaos.catalogue.contracts": "what each mode promises under each fault",
    "chaos.catalogue.faults": "what the names of faults stand for",
    "chaos.catalogue.live": "which checks are told while a run goes on",
    "chaos.history.arrow": "types of columns",
    "chaos.history.domains": "words and least numbers of columns",
    "chaos.history.outcome": "what a response code says of a send",
    "chaos.history.tables": "columns",
}
"""What the two checkers have in common: data, and nothing that reads or judges a history."""


def imported(path: str) -> set[str]:
    names = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def test_the_two_checkers_share_data_and_no_code() -> None:
    modules = {module_name(path): path for path in python_files("chaos", "spark")}
    used = {name for path in python_files("spark") for name in imported(path)} & modules.keys()
    assert {name for name in used if name.startswith("chaos")} == set(SHARED)
    below = set(SHARED)
    while more := {n for m in below for n in imported(modules[m])} & modules.keys() - below:
        below |= more
    assert all(name.startswith(("chaos.catalogue", "chaos.history")) for name in below), below
    assert not below & {"chaos.history.segment", "chaos.history.payload"}


def test_the_simulator_needs_no_extra() -> None:
    """An image has none of them, and a seed has to give there what it gives here."""
    extras = ["matplotlib", "numpy", "pandas", "pyarrow", "pyspark"]
    hidden = f"import sys; sys.modules.update(dict.fromkeys({extras})); from cli.main import main; "
    runs_well(f"{hidden}sys.exit(main(['sim', '--seed', '1', '--json']))")

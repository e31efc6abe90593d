"""What is in the repository, for the tests of its shape; read once, by git's list of files."""

import ast
import functools
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "ledgermq", "dledger", "store", "broker", "namesrv", "chaos", "spark",
    "sim", "cli", "bench", "mutants",
)  # fmt: skip


@functools.cache
def tracked() -> tuple[str, ...]:
    """Every file that git tracks and that is there, as a path from the root."""
    git = ["git", "-c", "safe.directory=*", "-C", str(ROOT)]  # the owner may be somebody else
    command = [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return tuple(sorted({path for path in listed.split("\0") if path and (ROOT / path).is_file()}))


@functools.cache
def text(path: str) -> str:
    """The text of a tracked file, empty if it is binary."""
    data = (ROOT / path).read_bytes()
    return "" if b"\0" in data[:8192] else data.decode("utf-8", errors="replace")


@functools.cache
def tree(path: str) -> ast.Module:
    """The syntax tree of a tracked Python file."""
    return ast.parse(text(path), filename=path)


def python_files(*tops: str) -> list[str]:
    """The tracked Python files below any of ``tops`` (all of them if none is given)."""
    return [p for p in tracked() if p.endswith(".py") and (not tops or p.split("/")[0] in tops)]


def module_name(path: str) -> str:
    """``store/layout.py`` is ``store.layout``; ``store/__init__.py`` is ``store``."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@functools.cache
def project() -> dict[str, object]:
    """The parsed pyproject.toml."""
    return tomllib.loads(text("pyproject.toml"))

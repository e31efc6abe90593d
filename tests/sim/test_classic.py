"""A master and its slaves, simulated: nothing is found, runs repeat, planted bugs are found.

The seeds were found by running seeds from 1 on with the bug planted. Each is run without it, too:
of a mode's own plans in `test_no_oracle_finds_anything`.
"""

import pytest

from mutants.modes import SHOWN_BY
from mutants.patches import ALL, BY_TESTS
from mutants.planting import planted
from sim.campaign import run_seed
from sim.faults.classic_draw import draw_classic
from sim.run import NOT_LIVE, VALID, VIOLATED, run_plan

SEEDS = tuple(range(1, 25))
FOUND = (37, 46, 1001, 10179)
"""Seeds on which an oracle once raised a false alarm."""
TORN = 70027
"""A master is left with a record that is torn where the sum of its body tells nothing."""
SYNC, ASYNC = "sync-master", "async-master"

KNOWN = (
    (BY_TESTS["ha-acknowledged-before-the-slave"], SYNC, 1, "A38 counted before a slave had it"),
    (BY_TESTS["ha-lack-not-told"], SYNC, 1, "A38 acknowledged before a slave had it"),
    (BY_TESTS["ha-reported-before-written"], SYNC, 1, "A38 slave that tells what it may lose"),
    (BY_TESTS["ha-one-late-releases-all"], SYNC, 1, "A38 counted before a slave had it"),
    (BY_TESTS["ha-sent-before-the-sync"], SYNC, 3, "A38 sent before it was synced"),
    (BY_TESTS["ha-slave-far-behind-counts"], SYNC, 4, "A41 waits for no slave"),
    (
        BY_TESTS["ha-slave-that-has-gone-counts"],
        SYNC,
        10,
        "A38 counted otherwise than slaves have told",
    ),
    (BY_TESTS["ha-counted-before-the-sync"], None, 1, "A38 slave that tells what it may lose"),
    (BY_TESTS["ha-timeout-not-told"], None, 11, "A38 acknowledged before a slave had it"),
    (BY_TESTS["ha-resumed-at-the-end"], None, 3, "liveness"),
    (BY_TESTS["ha-slave-silent-to-its-readers"], None, 5, "A41 not read at a slave"),
    (BY_TESTS["slave-not-asked-while-the-master-is-gone"], None, 7, "A41 not read at a slave"),
    (ALL["offsets-not-replicated"], SYNC, 1, "A39 tables differ from the log"),
    (BY_TESTS["report-a-look-late"], SYNC, 2, "A41 slave that reports late"),
    (BY_TESTS["given-back-unasked"], SYNC, 25, "A24 offset given back unasked"),
    (BY_TESTS["slave-asks-from-its-end"], SYNC, 2, "A34 slave that compares nothing"),
    (
        BY_TESTS["first-slave-is-the-best"],
        SYNC,
        2,
        "A38 counted otherwise than slaves have told",
    ),
    (
        BY_TESTS["rest-of-a-share-waits-for-a-message"],
        SYNC,
        17,
        "A41 slave that is not sent the rest",
    ),
    (
        BY_TESTS["late-by-the-first-of-them"],
        SYNC,
        3,
        "A39 kept otherwise than its rules say",
    ),
)
"""Planted bug, mode (None: the seed's own), seed, oracle."""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", SEEDS + FOUND)
def test_no_oracle_finds_anything(seed):
    result = run_plan(draw_classic(seed))
    assert result.verdict == VALID, (result.oracle, result.text, result.evidence)
    assert result.counters.get("ok", 0) > 0


def test_consumers_go_on_at_a_slave():
    """Somebody looks: a master was gone for long enough, and a slave had what was to be read."""
    assert run_plan(draw_classic(5)).counters.get("absences", 0) > 0


@pytest.mark.parametrize("mode", [SYNC, ASYNC])
def test_same_seed_gives_the_same_run(mode):
    first, second = (run_seed(5, mode=mode, trace_lines=True) for _ in range(2))
    assert first.lines == second.lines
    assert (first.digest, first.events) == (second.digest, second.events)


def test_the_bugs_of_the_modes_are_those_that_are_found():
    shown = {mutant.name for mutant, *_ in KNOWN}
    assert shown == set(SHOWN_BY[SYNC])
    assert set(SHOWN_BY[ASYNC]) <= shown


@pytest.mark.parametrize(
    ("mutant", "mode", "seed", "oracle"), KNOWN, ids=[known[0].name for known in KNOWN]
)
def test_planted_bug_is_found_on_its_known_seed(mutant, mode, seed, oracle):
    with planted(mutant):
        result = run_plan(draw_classic(seed, mode))
    assert result.verdict in {VIOLATED, NOT_LIVE}, result.verdict
    assert result.oracle == oracle


@pytest.mark.parametrize(
    ("mode", "seed"),
    sorted(
        {(SYNC, TORN), *(known[1:3] for known in KNOWN)} - {(None, seed) for seed in SEEDS + FOUND},
        key=str,
    ),
)
def test_sound_build_passes_the_seeds_that_find_bugs(mode, seed):
    result = run_plan(draw_classic(seed, mode))
    assert result.verdict == VALID, (result.verdict, result.oracle, result.text)

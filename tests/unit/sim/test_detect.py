"""The search for detecting seeds: every mutant's own seeds in order, and what is told of it."""

import json

from mutants.patches import MUTANTS
from sim.detect import SEEDS_PER_TASK, Detection, _Search, known_seeds, may_show, run_mutant, table
from sim.faults.draw import draw
from sim.faults.plan import FaultKind


def test_every_fault_that_a_mutant_needs_exists():
    kinds = {kind.value for kind in FaultKind}
    for mutant in MUTANTS.values():
        assert set(mutant.needs.split()) <= kinds, mutant.name
        assert mutant.flush in {"", "SYNC_FLUSH", "ASYNC_FLUSH"}


def test_default_plans_have_what_a_bug_needs_often_enough():
    plans = [draw(seed) for seed in range(1, 201)]
    for mutant in MUTANTS.values():
        assert sum(may_show(mutant, plan) for plan in plans) >= 5, mutant.name


def test_seeds_are_run_in_order_and_mutants_in_turn():
    told = []
    search = _Search(["a", "b"], range(1, 26), lambda found, is_final: told.append(is_final))
    assert search.next_task() == ("a", range(1, 1 + SEEDS_PER_TASK))
    assert search.next_task() == ("b", range(1, 1 + SEEDS_PER_TASK))
    assert search.next_task() is None
    search.take("a", Detection("a", SEEDS_PER_TASK))
    search.take("b", Detection("b", 3, 3, "A30"))
    assert search.next_task() == ("a", range(11, 21))
    search.take("a", Detection("a", SEEDS_PER_TASK))
    assert search.next_task() == ("a", range(21, 26))
    search.take("a", Detection("a", 5))
    assert search.next_task() is None
    assert told == [False, True, False, True]
    assert (search.known["a"].seeds, search.known["a"].found) == (25, False)
    assert (search.known["b"].seeds, search.known["b"].seed) == (3, 3)


def test_the_matrix_names_who_found_what():
    found = [
        Detection("no-fsync", 7),
        Detection("old-term-commit", 3, 3, "A37 commit of an old term"),
    ]
    rows = table(found)
    assert "| old-term-commit | 3 | 3 | A37" in rows[2]
    assert "not in 7" in rows[3]
    assert json.loads(known_seeds(found)) == {
        "old-term-commit": {"seed": 3, "oracle": "A37 commit of an old term", "seeds": 3}
    }


def test_a_planted_bug_does_not_outlive_its_run():
    before = draw(30)
    run = run_mutant("old-term-commit", 30)
    assert run.seed == 30
    assert draw(30) == before
    from dledger.core import replication

    assert "term_at" in replication.maybe_commit.__code__.co_names

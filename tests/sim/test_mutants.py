"""Detection power, kept: each planted bug is found on the seed that has found it before.

The seeds in ``known_seeds.json`` were found as docs/simulation.md says. They are run without the
bug, too (most of them in `test_seeds`): it is the bug that must be found. Some have a plan of their
own in ``plans/``, which was drawn from that seed when less was drawn.

``make test`` runs one bug for each oracle, ``make further`` the others.
"""

import json
from pathlib import Path

import pytest

from mutants.patches import MUTANTS
from sim.detect import run_mutant
from sim.faults.plan import decode_plan
from sim.run import NOT_LIVE, VALID, VIOLATED
from tests.sim import test_seeds
from tests.sim.questions import bugs_of_questions

KNOWN = json.loads((Path(__file__).parent / "known_seeds.json").read_text())
PLANS = Path(__file__).parent / "plans"
SEEDS_MAX = 2_000
FIRST = {
    KNOWN[name]["oracle"]: name
    for name in sorted(KNOWN, key=lambda name: (KNOWN[name]["seed"], name), reverse=True)
}
"""By oracle, the bug that it finds on the smallest seed."""

pytestmark = pytest.mark.slow


def marks(*, is_first):
    """Those of a run that says little more than the others of its oracle: it takes its time."""
    return () if is_first else (pytest.mark.further,)


def named():
    """All bugs, those with a mark that are further ones of an oracle."""
    first = set(FIRST.values())
    return [pytest.param(name, marks=marks(is_first=name in first)) for name in sorted(KNOWN)]


def sound():
    """The seeds, and whether their plans are kept, but those that `test_seeds` runs."""
    first = {KNOWN[name]["seed"] for name in FIRST.values()}
    seeds = {(known["seed"], bool(known.get("kept"))) for known in KNOWN.values()}
    seeds -= {(seed, False) for seed in test_seeds.SEEDS + test_seeds.FOUND}
    return [pytest.param(*one, marks=marks(is_first=one[0] in first)) for one in sorted(seeds)]


def kept_plan(known):
    """The plan that was kept for a seed, None for the one that is drawn from it."""
    if not known.get("kept"):
        return None
    return decode_plan((PLANS / f"{known['seed']}.json").read_bytes())


def shown(known):
    """A seed as the handbook shows it."""
    seed = known["seed"]
    return f"[{seed}](../tests/sim/plans/{seed}.json)" if known.get("kept") else str(seed)


def test_every_kept_plan_is_of_some_bug():
    kept = {f"{known['seed']}.json" for known in KNOWN.values() if known.get("kept")}
    assert {path.name for path in PLANS.iterdir()} == kept


def test_every_mutant_was_found_within_the_limit():
    assert set(KNOWN) == set(MUTANTS)
    assert max(known["seeds"] for known in KNOWN.values()) <= SEEDS_MAX


def test_the_handbook_has_every_planted_bug_with_its_seed():
    """The table of docs/simulation.md is made of ``known_seeds.json`` and what each bug breaks."""
    rows = [
        f"| `{name}` | {shown(KNOWN[name])} | {KNOWN[name]['oracle']} | {MUTANTS[name].breaks} |"
        for name in sorted(MUTANTS, key=lambda name: (KNOWN[name]["seed"], name))
    ]
    page = (Path(__file__).parents[2] / "docs/simulation.md").read_text()
    table = page.split("| planted bug | seed that finds it |")[1].split("\n\n")[0]
    assert table.splitlines()[2:] == rows, "\n".join(rows)


def test_each_question_about_messages_has_two_bugs_that_the_simulator_finds():
    told = bugs_of_questions({name: known["oracle"] for name, known in KNOWN.items()})
    for question, bugs in told.items():
        assert len(bugs) >= 2, question
        assert set(bugs) <= set(MUTANTS), question
    rows = [f"| {one} | {', '.join(f'`{bug}`' for bug in bugs)} |" for one, bugs in told.items()]
    page = (Path(__file__).parents[2] / "docs/simulation.md").read_text()
    table = page.split("| question | planted bugs that stand for it |")[1].split("\n\n")[0]
    assert table.splitlines()[2:] == rows, "\n".join(rows)


def test_each_oracle_has_a_bug_that_is_always_run():
    assert set(FIRST) == {known["oracle"] for known in KNOWN.values()}
    assert set(FIRST.values()) <= set(KNOWN)


@pytest.mark.parametrize("name", named())
def test_planted_bug_is_found_on_its_known_seed(name):
    known = KNOWN[name]
    result = run_mutant(name, known["seed"], kept_plan(known))
    assert result.verdict in {VIOLATED, NOT_LIVE}, result.verdict


@pytest.mark.parametrize(("seed", "is_kept"), sound())
def test_sound_build_passes_the_seeds_that_find_bugs(seed, is_kept):
    result = run_mutant("", seed, kept_plan({"seed": seed, "kept": is_kept}))
    assert result.verdict == VALID, (result.verdict, result.oracle, result.text)

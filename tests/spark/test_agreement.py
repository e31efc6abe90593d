"""The Spark job and the in-process checker answer alike on generated histories."""

import os
import random

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from tests.spark.generate import PLANTED, random_history
from tests.spark.kinds import KIND_VIOLATIONS, plant_kinds
from tests.spark.logged import plant_logs
from tests.spark.reports import SPARK_MARKS, report_of
from tests.spark.serving import plant_service
from tests.spark.spoiled import chapters, differences, spoil

pytestmark = SPARK_MARKS
COMPARED = {*PLANTED, *(check for check, _, _ in KIND_VIOLATIONS.values()), "A60", "A61", "A62"}


def plant_all(run, rng):
    """A chapter more of every kind, lines of logs, and once in a while one of service."""
    planted = plant_kinds(run, rng)
    planted.update(plant_logs(run, rng))
    planted.update(plant_service(run, rng))  # a sum would drop what is planted 0 times
    return planted


@pytest.mark.parametrize(
    "seeds", [(0, 1, 2), pytest.param((3, 4, 5), marks=pytest.mark.further)], ids=str
)
def test_both_checkers_find_what_was_planted(session, tmp_path, seeds):
    planted = random_history(seeds, tmp_path / "run", plant_all)
    spark = {
        r.check: (r.verdict, r.count)
        for r in report_of(session, tmp_path / "run", tmp_path, only=COMPARED).results
    }
    other = {
        name: (result.verdict, result.count)
        for name, result in check_history(load_history(tmp_path / "run")).results.items()
        if name in COMPARED
    }
    assert spark == other
    assert {check: count for check, (_, count) in spark.items()} == planted


FIRST, LAST = map(int, os.environ.get("SPOILED_SEEDS", "1..1").split(".."))
CHAPTERS = SPOILS = 40


@pytest.mark.parametrize("seed", range(FIRST, LAST + 1))
def test_both_checkers_agree_on_spoiled_histories(session, tmp_path, seed):
    rng = random.Random(seed)
    run = chapters(rng, CHAPTERS)
    done = [spoil(run, rng) for _ in range(SPOILS)]
    path = run.write(tmp_path / "run")
    assert differences(path, report_of(session, path, tmp_path)) == [], "\n".join(done)


def test_what_is_not_spoiled_is_sound(tmp_path):
    run = chapters(random.Random(FIRST), CHAPTERS)
    assert check_history(load_history(run.write(tmp_path / "run"))).verdict == "valid"

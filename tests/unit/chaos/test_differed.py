"""The in-process checker over histories on which it and Spark differed, or both erred."""

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.spark.differed import DIFFERED
from tests.spark.minimal import write_minimal


def said(name, tmp_path):
    wanted, spoil = DIFFERED[name]
    found = check_history(load_history(write_minimal(spoil, tmp_path / name)))
    return {check: (found.results[check].verdict, found.results[check].count) for check in wanted}


@pytest.mark.parametrize("name", DIFFERED)
def test_each_check_says_what_both_are_to_say(name, tmp_path):
    assert said(name, tmp_path) == DIFFERED[name][0]


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        ("copies-say-who-reads", "an auditor and a dead letter"),
        ("falls-hidden-by-an-overlap", "a fall behind an overlap"),
    ],
)
def test_planted_misjudgement_is_seen(bug, name, tmp_path):
    with planted(HARNESS_BUGS[bug]):
        assert said(name, tmp_path) != DIFFERED[name][0]

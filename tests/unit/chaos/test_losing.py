"""Disks that were taken excuse what was lost with them, and nothing that happened apart."""

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.spark.losing import (
    FAILING,
    LOSING,
    NUMBERS,
    by_failing_calls,
    lost_with_disks,
    of_so_many,
)


@pytest.mark.parametrize("name", LOSING)
def test_only_what_disks_can_have_taken_is_excused(name, tmp_path):
    spoil, when, code, check = LOSING[name]
    found = check_history(load_history(lost_with_disks(spoil, when).write(tmp_path / "run")))
    assert found.results[check].verdict == "invalid"
    assert found.exit_code == code, found.reasons
    bad = {name for name, one in found.results.items() if one.details.get("not_excused")}
    assert bad == ({check} if code == 1 else set()), found.reasons


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("refused after", "loss-excuses-what-came-after"),
        ("lost soon", "loss-excuses-what-came-soon-after"),
        ("lost amid it, had by others", "loss-of-what-others-have"),
        ("lost amid it, on all logs", "loss-of-what-others-have"),
        ("lost amid it, of a whole group", "loss-of-any-group"),
        ("put where another came later", "loss-of-what-lies-anywhere"),
    ],
)
def test_an_excuse_without_end_is_found_out(name, bug, tmp_path):
    spoil, when, code, _ = LOSING[name]
    history = load_history(lost_with_disks(spoil, when).write(tmp_path / "run"))
    assert check_history(history).exit_code == code == 1
    with planted(HARNESS_BUGS[bug]):
        assert check_history(history).exit_code == 3


@pytest.mark.parametrize("name", NUMBERS)
def test_disks_are_a_majority_of_a_known_number(name, tmp_path):
    said, answered, code = NUMBERS[name]
    found = check_history(load_history(of_so_many(said, answered).write(tmp_path / "run")))
    assert (found.results["A1"].count, found.exit_code) == (1, code), found.reasons


def test_a_majority_of_nobody_knows_how_many_is_found_out(tmp_path):
    said, answered, _ = NUMBERS["nobody knows"]
    with planted(HARNESS_BUGS["majority-of-nobody"]):
        found = check_history(load_history(of_so_many(said, answered).write(tmp_path / "run")))
    assert found.exit_code == 3


@pytest.mark.parametrize("name", FAILING)
def test_calls_that_failed_and_took_nothing_excuse_no_loss(name, tmp_path):
    only_there, code = FAILING[name]
    history = load_history(by_failing_calls(only_there).write(tmp_path / "run"))
    assert check_history(history).exit_code == code
    with planted(HARNESS_BUGS["failed-calls-take-disks"]):
        assert check_history(load_history(tmp_path / "run")).exit_code == 3

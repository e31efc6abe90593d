"""Disks that were taken excuse what was lost with them, and nothing that happened apart."""

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.spark.losing import LOSING, lost_with_disks


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
        ("lost after", "loss-excuses-what-came-after"),
        ("all lost after", "loss-of-everything-excused"),
    ],
)
def test_an_excuse_without_end_is_found_out(name, bug, tmp_path):
    spoil, when, code, _ = LOSING[name]
    history = load_history(lost_with_disks(spoil, when).write(tmp_path / "run"))
    assert check_history(history).exit_code == code == 1
    with planted(HARNESS_BUGS[bug]):
        assert check_history(history).exit_code == 3

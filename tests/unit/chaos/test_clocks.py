"""Histories of several hosts: what their clocks explain is no anomaly, what they do not is one."""

import json

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from tests.spark.clocks import BEYOND, TOLERANCE_NS, WITHIN, declared
from tests.spark.minimal import VIOLATIONS, write_minimal

QUIET = {"valid", "not checked"}


def told(found):
    return {name for name, r in found.results.items() if r.count or r.verdict not in QUIET}


@pytest.mark.parametrize("name", WITHIN)
def test_difference_within_the_tolerance_is_quiet_and_without_it_told(name, tmp_path):
    check, spoil = WITHIN[name]
    found = check_history(load_history(write_minimal(spoil, tmp_path / "one")))
    assert told(found) == {check}, found.reasons
    found = check_history(load_history(write_minimal(declared(spoil), tmp_path / "two")))
    assert (told(found), found.exit_code) == (set(), 0), found.reasons


@pytest.mark.parametrize("name", BEYOND)
def test_difference_beyond_the_tolerance_is_told(name, tmp_path):
    check, spoil = BEYOND[name]
    found = check_history(load_history(write_minimal(declared(spoil), tmp_path)))
    assert told(found) == {check}, found.reasons


@pytest.mark.parametrize("name", [name for name, (check, _, _) in VIOLATIONS.items()
                                  if check not in {"A2", "A18"}])  # fmt: skip
def test_small_tolerance_hides_no_violation(name, tmp_path):
    check, verdict, spoil = VIOLATIONS[name]
    small = declared(spoil, 1)
    found = check_history(load_history(write_minimal(small, tmp_path)))
    if name in {"overtaken", "overtaken by an unknown one", "two calls at once"}:  # 1 ns apart
        assert told(found) == set()
    else:
        assert (told(found), found.results[check].verdict) == ({check}, verdict), found.reasons


@pytest.mark.parametrize("value", [-1, 60_000_000_001, "5 ms", 1.5])
def test_odd_tolerance_is_never_valid(value, tmp_path):
    run = write_minimal(None, tmp_path)
    about = json.loads((run / "run.json").read_text()) | {"clock_tolerance_ns": value}
    (run / "run.json").write_text(json.dumps(about))
    found = check_history(load_history(run))
    assert found.exit_code == 2
    assert any("clock_tolerance_ns" in reason for reason in found.reasons)


def test_commits_and_fetches_of_several_clocks_are_not_ordered(tmp_path):
    spoil = declared(VIOLATIONS["told less"][2], TOLERANCE_NS)
    found = check_history(load_history(write_minimal(spoil, tmp_path)))
    assert (found.results["A18"].verdict, found.exit_code) == ("not checked", 0)

"""The in-process checker: what others write, by somebody who has not read the checks."""

import json
import os

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from chaos.validate import complaints_about, usable_contract
from tests.spark.minimal import write_minimal
from tests.spark.outside import ODD


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ODD)
def test_odd_history_is_judged_for_what_it_is(name, tmp_path):
    spoil, wanted = ODD[name]
    found = check_history(load_history(write_minimal(spoil, tmp_path)))
    counts = {check: result.count for check, result in found.results.items() if result.count}
    assert counts == wanted, found.reasons
    assert found.exit_code == bool(wanted), found.reasons


def test_log_of_a_format_that_nobody_knows_is_a_problem(tmp_path):
    run = write_minimal(None, tmp_path)
    meta = run / "replicas" / "n1" / "meta.json"
    meta.write_text(meta.read_text().replace("{", '{"format": "rocks", ', 1))
    found = check_history(load_history(run))
    assert found.exit_code == 2
    assert "n1: needs meta.json" in found.results["A48"].summary
    assert "'rocks'" in found.results["A48"].summary


@pytest.mark.parametrize(
    ("bound", "is_fine"),
    [
        ("1", True),
        ("0.5", True),
        ("9" * 400, True),
        ("1e999", False),
        ("NaN", False),
        ("true", False),
    ],
)
def test_bound_is_a_number_of_any_size(bound, is_fine):
    """No float holds some of the numbers that JSON has."""
    about = json.loads(f'{{"contract": {{"recovery_ms_max": {bound}}}}}')
    assert (not complaints_about(about)) is is_fine


def test_bound_below_zero_and_run_json_that_is_a_pipe_are_refused(tmp_path):
    assert usable_contract({"redelivery_ratio_max": -1, "late_ms_max": 5}) == {"late_ms_max": 5}
    run = write_minimal(None, tmp_path)
    (run / "run.json").unlink()
    os.mkfifo(run / "run.json")
    assert "not a file" in check_history(load_history(run)).results["A48"].summary

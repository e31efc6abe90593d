"""The in-process checker takes runs of others for what they are, and never stumbles over them."""

from dataclasses import replace

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from tests.spark.foreign import CASES, write_case


@pytest.mark.parametrize("name", CASES)
def test_run_of_others_gets_the_right_verdict(name, tmp_path):
    case = CASES[name]
    found = check_history(load_history(write_case(case, tmp_path)))
    assert found.exit_code == case.exit_code, found.reasons
    assert not any("check failed" in reason for reason in found.reasons)
    if case.check:
        assert found.results[case.check].count == 1 or case.check in {"A35", "A15"}
        assert found.results[case.check].count > 0
        bad = {check for check, r in found.results.items() if r.verdict == "invalid"}
        assert bad <= {case.check}


def test_replicas_of_two_groups_are_not_compared(tmp_path):
    history = load_history(write_case(CASES["sound"], tmp_path))
    other = history.replicas[2]
    moved = replace(other, group="h", rows=[row._replace(entry_crc=1) for row in other.rows])
    found = check_history(replace(history, replicas=[*history.replicas[:2], moved]))
    assert found.results["A34"].count == found.results["A35"].details["divergent"] == 0

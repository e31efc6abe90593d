"""Without faults the verdict must be valid: a harness that sees ghosts proves nothing."""

import asyncio
import io

import pytest
from rich.console import Console

from chaos.parts import RunOptions
from chaos.run import run_scenario
from chaos.scenario import baseline
from chaos.verdict import check_in_process
from chaos.view import View
from ledgermq.runtime.clock import SystemClock


@pytest.mark.timeout(900)  # the scenario has a limit of its own; reading and checks follow
@pytest.mark.slow
def test_zero_fault_baseline_is_valid(tmp_path):
    run = tmp_path / "run"
    screen = io.StringIO()

    async def body() -> None:
        with View(Console(file=screen), SystemClock()) as view:
            async with asyncio.timeout(240):
                await run_scenario(baseline(seconds=3), RunOptions(run=run, seed=1), view)

    asyncio.run(body())
    found = check_in_process(run)
    assert found["verdict"] == "valid", (found["reasons"], screen.getvalue())
    counts = found["counts"]
    # The workload abandons some sends, which leaves their outcome unknown; listeners refuse some
    # messages, which come again. Nothing else may be unknown, and nothing may fail.
    assert counts["sent"] == counts["acknowledged"] + counts["unknown"] > 300
    assert counts["failed"] == 0
    assert counts["unknown"] < counts["sent"] * 0.05
    assert counts["delivered"] >= counts["acknowledged"]  # to each of several groups
    assert counts["lost"] == counts["phantom"] == 0
    assert counts["log_entries"] > 3 * counts["sent"]

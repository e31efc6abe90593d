"""The contract of each classic mode on real processes: kept by ours, broken by a planted bug."""

import asyncio
import io

import pytest
from rich.console import Console

from chaos.catalogue.contracts import ASYNC_MASTER, SYNC_MASTER
from chaos.convert import read_table
from chaos.pair_scenarios import disk_lost
from chaos.parts import RunOptions
from chaos.run import run_scenario
from chaos.scenario import Scenario, Workload
from chaos.verdict import check_in_process
from chaos.view import View
from ledgermq.runtime.clock import SystemClock

BUG = "ha-acknowledged-before-the-slave"


def scenario(mode: str) -> Scenario:
    return Scenario(
        name="disk-lost",
        mode=mode,
        workload=Workload(producers=2, consumers=1, batches=(1, 4), groups=(), joiner_s=None),
        timeline=disk_lost("1"),
        warmup_s=1.0,
        baseline_s=1.0,
        quiesce_s=1.0,
        coverage={"cut": 1, "wipe": 1},
    )


@pytest.mark.timeout(900)  # the scenario has a limit of its own; reading and checks follow
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "mutant", "verdict", "code"),
    [
        (SYNC_MASTER, None, "valid", 0),
        (SYNC_MASTER, BUG, "invalid", 1),
        (ASYNC_MASTER, None, "valid", 3),
    ],
)
def test_a_lost_disk_takes_what_the_mode_allows(tmp_path, mode, mutant, verdict, code):
    run, screen = tmp_path / "run", io.StringIO()

    async def body() -> None:
        with View(Console(file=screen), SystemClock()) as view:
            async with asyncio.timeout(240):
                await run_scenario(scenario(mode), RunOptions(run=run, seed=1, mutant=mutant), view)

    asyncio.run(body())
    found = check_in_process(run)
    said = (found["reasons"], screen.getvalue())
    assert (found["verdict"], found["exit_code"]) == (verdict, code), said
    wipe = next(row for row in read_table(run, "faults") if row["kind"] == "wipe")
    assert wipe["witness"]["effective"], wipe
    assert wipe["only_there"] > 0
    if mutant is not None:  # never delivered, or delivered and in no log any more
        assert found["checks"]["A1"]["count"] + found["checks"]["A35"]["count"] > 0, said
    if mode == ASYNC_MASTER:
        reasons = [line for line in found["reasons"] if not line.startswith("A8")]
        assert all("expected loss" in line for line in reasons), said

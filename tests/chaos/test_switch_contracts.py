"""Brokers with controllers as processes: their contract is kept by ours, broken by planted bugs."""

import asyncio
import io

import pytest
from rich.console import Console

from chaos.catalogue.contracts import CONTROLLER
from chaos.convert import read_table
from chaos.parts import RunOptions
from chaos.run import run_scenario
from chaos.scenario import Scenario, Workload
from chaos.switch_scenarios import disk_lost, master_cut_off, tail_left
from chaos.verdict import check_in_process
from chaos.view import View
from ledgermq.runtime.clock import SystemClock
from mutants.patches import BY_TESTS

ALONE = BY_TESTS["switch-acknowledged-alone"]
TAIL = BY_TESTS["switch-tail-kept"]
OLD = BY_TESTS["switch-old-epoch-acknowledged"]
ACTS = {"disk": disk_lost, "tail": tail_left, "cut off": master_cut_off}
LIMIT_S = 300


def scenario(act: str) -> Scenario:
    return Scenario(
        name="switch",
        mode=CONTROLLER,
        workload=Workload(producers=2, consumers=1, batches=(1, 4), groups=(), joiner_s=None),
        timeline=ACTS[act]("1"),
        warmup_s=1.0,
        baseline_s=1.0,
        quiesce_s=1.0,
    )


@pytest.mark.timeout(900)  # the scenario has a limit of its own; reading and checks follow
@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "mutant", "verdict"),
    [
        ("disk", None, "valid"),
        ("disk", ALONE, "invalid"),
        pytest.param("tail", TAIL, "invalid", marks=pytest.mark.further),
        pytest.param("cut off", OLD, "invalid", marks=pytest.mark.further),
    ],
)
def test_what_all_in_sync_replicas_have_is_kept(tmp_path, act, mutant, verdict):
    run, screen = tmp_path / "run", io.StringIO()
    options = RunOptions(run=run, seed=1, mutant=None if mutant is None else mutant.name)

    async def body() -> None:
        with View(Console(file=screen), SystemClock()) as view:
            async with asyncio.timeout(LIMIT_S):
                await run_scenario(scenario(act), options, view)

    asyncio.run(body())
    found = check_in_process(run)
    said = (found["reasons"], screen.getvalue())
    assert found["verdict"] == verdict, said
    told = read_table(run, "masters")
    assert len({row["epoch"] for row in told if row["node"]}) > 1, said
    if act == "disk":
        wipe = next(row for row in read_table(run, "faults") if row["kind"] == "wipe")
        assert wipe["only_there"] == 0, wipe
    if mutant is None:
        assert found["exit_code"] == 0, said

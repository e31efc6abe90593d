"""A harness that can only pass is worthless: a planted bug must be caught, by both checkers."""

import asyncio
import io

import pytest
from rich.console import Console

from chaos.convert import read_table
from chaos.parts import RunOptions
from chaos.run import run_scenario
from chaos.scenario import Scenario, Workload, minority_leader
from chaos.verdict import SparkOutcome, check_in_process, check_with_spark, combine
from chaos.view import View
from ledgermq.runtime.clock import SystemClock

# Two acts: where the machine stalls for an election timeout, the leader loses its lead before the
# second link is cut. Whoever is killed then held nothing of its own, and nothing is lost.
SHORT = Scenario(
    name="minority-leader",
    workload=Workload(producers=2, consumers=1, batches=(1, 4), groups=(), joiner_s=None),
    timeline=minority_leader("1") + minority_leader("2"),
    warmup_s=1.0,
    baseline_s=1.0,
    quiesce_s=1.0,
    crash_consumer_s=1.0,
    coverage={"kill": 1, "cut": 2, "pause": 1},
)


@pytest.mark.timeout(900)  # the scenario has a limit of its own; reading and checks follow
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("mutant", "verdict"), [(None, "valid"), ("ack-before-quorum", "invalid")])
def test_acknowledging_before_a_majority_has_it_is_caught_and_only_that(tmp_path, mutant, verdict):
    run, screen = tmp_path / "run", io.StringIO()

    async def body() -> SparkOutcome:
        with View(Console(file=screen), SystemClock()) as view:
            # What was refused and then lost is waited for until nothing has moved for 130 s.
            async with asyncio.timeout(480):
                await run_scenario(SHORT, RunOptions(run=run, seed=1, mutant=mutant), view)
        # One JVM is enough: a valid run is what the demo shows Spark every time.
        return await check_with_spark(run) if mutant is not None else SparkOutcome(found=None)

    spark = asyncio.run(body())
    combined = combine(check_in_process(run), spark.found, spark_wanted=mutant is not None)
    said = (combined.reasons, screen.getvalue())
    assert combined.disagreements == (), said
    assert combined.verdict == verdict, said
    lost = combined.local["checks"]["A1"]
    assert (lost["count"] > 10) is (mutant is not None)
    for item in lost["evidence"]:
        assert item["where"] == "vanished"
        assert {"1-cut", "2-cut"} & set(item["faults"])
    for fault in read_table(run, "faults"):
        assert fault["witness"]["effective"], fault
    assert {row["kind"] for row in read_table(run, "sends")} == {"plain", "batch", "orderly"}
    given = {row["consumer"] for row in read_table(run, "deliveries") if not row["auditor"]}
    assert given == {"consumer-0", "consumer-1"}

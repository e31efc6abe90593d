"""Runs that are watched, of real processes: one is stopped early by an alarm, one is sound."""

import json
from dataclasses import replace

import pytest

from chaos.convert import read_table
from chaos.demo import parser, run_and_check
from chaos.scenario import Scenario, Workload, pause_follower
from tests.spark.reports import SPARK_MARKS

pytestmark = [*SPARK_MARKS, pytest.mark.slow]

LONG = 60
"""So many pauses are minutes: a run with all of them was not stopped early."""
SHORT = Scenario(
    name="watched",
    workload=Workload(
        producers=1, consumers=1, batches=(1,), groups=(), joiner_s=None, hostile=False,
        ordered=0, transactional=2, rate=60.0,
    ),
    timeline=pause_follower("1"),
    warmup_s=1.0,
    baseline_s=1.0,
    quiesce_s=1.0,
    coverage={"pause": 1},
)  # fmt: skip


def made(run, scenario, *arguments):
    """Run and judge a scenario as the command does; return its exit code."""
    given = ["--seed", "1", "--report", "found", "--out", str(run), *arguments]
    return run_and_check(scenario, parser("ledgermq demo").parse_args(given))


def told(run):
    lines = (run / "watch" / "alarms.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def events(run):
    lines = (run / "raw" / "harness.jsonl").read_text().splitlines()
    return {row["f"] for _, table, row in map(json.loads, lines) if table == "events"}


@pytest.mark.timeout(900)
def test_an_alarm_ends_a_run_early(tmp_path, capsys):
    """Halves are delivered before their transactions are decided: no later word explains that."""
    run = tmp_path / "run"
    pauses = tuple(step for number in range(LONG) for step in pause_follower(str(number)))
    long = replace(SHORT, timeline=pauses, coverage={})
    code = made(run, long, "--break", "half-shown", "--stop-on", "critical", "--no-spark")
    said = capsys.readouterr().out
    assert code == 1, said
    assert "ALARM A54 " in said
    assert "the alarm ends the run early" in said
    assert "stopped_early" in events(run)
    faults = {row["fault_id"]: row["status"] for row in read_table(run, "faults")}
    assert len(faults) == LONG
    assert list(faults.values()).count("skipped") > 0, said
    judgement = json.loads((run / "verdict" / "judgement.json").read_text())
    assert judgement["verdict"] == "invalid"
    assert not any("A48" in reason for reason in judgement["reasons"]), judgement["reasons"]
    assert {line["check"] for line in told(run) if line["what"] == "alarm"} >= {"A54"}
    assert told(run)[-1]["whole"], told(run)[-1]


@pytest.mark.further
@pytest.mark.timeout(900)
def test_a_sound_run_is_watched_without_an_alarm(tmp_path, capsys):
    run = tmp_path / "run"
    code = made(run, SHORT, "--watch")
    said = capsys.readouterr().out
    assert code == 0, said
    assert "A48" not in "".join(line for line in said.splitlines() if "differ" in line)
    *batches, end = told(run)
    assert {line["what"] for line in batches} == {"batch"}
    assert end["whole"]
    sends = len(read_table(run, "sends"))
    assert end["rows"] > 2 * sends, (end, sends)  # each send, its end, and deliveries
    assert "stopped_early" not in events(run)

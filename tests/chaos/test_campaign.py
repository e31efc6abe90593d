"""A campaign of two real runs that is killed in the midst of the second, and gone on with."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos.backends.process import environment

SHORT = """
name: short
hunts: nothing; it is over soon
workload: {kind: plain, rate: 60}
phases: {warmup: 0.3, baseline: 0.3, quiesce: 0.3}
timeline:
  - do: [{pause: follower}]
    hold: 1
"""


def started(root: Path, scenario: Path) -> subprocess.Popen:
    words = ["chaos", "campaign", "--runs", "2", "--out", str(root), "--scenario", str(scenario)]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", *words], env=environment(), stdout=subprocess.PIPE, text=True
    )


def of_group(run: Path) -> list[int]:
    """Return the processes whose command line names the run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if str(run).encode() in line:
            found.append(int(entry.name))
    return found


@pytest.mark.slow
@pytest.mark.timeout(1_200)  # three runs: a minute on two idle cores, ten where others work
def test_a_campaign_that_was_killed_goes_on_where_it_was(tmp_path):
    root, scenario = tmp_path / "campaign", tmp_path / "short.yaml"
    scenario.write_text(SHORT)
    first = started(root, scenario)
    second_run = root / "runs" / "00001-short-2"
    while not (second_run / "run.json").exists():
        assert first.poll() is None, first.communicate()[0]
        time.sleep(0.1)
    first.kill()
    first.communicate()
    while of_group(second_run):  # its brokers end with it
        time.sleep(0.1)
    assert [path.name for path in (root / "outcomes").iterdir()] == ["00000.json"]
    assert (second_run / "raw").exists(), "something was left of the run that was broken off"
    (second_run / "left-over").write_text("of the run that was broken off")

    again = started(root, scenario)
    said = again.communicate()[0]
    assert again.returncode == 0, said
    assert "1 runs are done already" in said
    assert not (second_run / "left-over").exists(), "it was run again from the beginning"
    summary = json.loads((root / "summary.json").read_text())
    assert summary["verdicts"] == {"valid": 2}, said
    assert [run["faults"]["pause"]["overlapped"] for run in summary["runs"]] == [1, 1]
    assert "2/2/2" in (root / "index.html").read_text()

    idle = started(root, scenario)
    assert idle.communicate()[0].count("...") == 0, "all is done"
    assert idle.returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_campaign_that_is_interrupted_ends_its_run_and_does_not_count_it(tmp_path):
    root, scenario = tmp_path / "campaign", tmp_path / "short.yaml"
    scenario.write_text(SHORT)
    process = started(root, scenario)
    run = root / "runs" / "00000-short-1"
    while not (run / "raw" / "producer-0.jsonl").exists():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    other = started(root, scenario)
    assert "another process is at it" in other.communicate()[0]
    assert other.returncode == 254
    os.kill(process.pid, signal.SIGTERM)
    said = process.communicate()[0]
    assert process.returncode == 143, said
    assert "does not count" in said
    assert not of_group(run)
    assert not list((root / "outcomes").iterdir())
    assert json.loads((root / "summary.json").read_text())["runs"] == []

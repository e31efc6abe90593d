"""A failing run, from the finding to the files: shrunk, written, replayed, drawn."""

import xml.etree.ElementTree as ET

import pytest

from cli import sim_report
from mutants.patches import MUTANTS
from mutants.planting import planted
from sim.faults.draw import draw
from sim.faults.plan import decode_plan
from sim.run import VIOLATED, run_plan
from sim.shrink import Shrinker

SEED = 1
MUTANT = "one-short-of-a-majority"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def bug():
    with planted(MUTANTS[MUTANT]):
        yield


def test_shrinking_keeps_the_failure_and_leaves_less(monkeypatch):
    monkeypatch.setattr("sim.shrink.RUNS_MAX", 25)
    plan = draw(SEED)
    result = run_plan(plan)
    assert result.verdict == VIOLATED
    shrunk = Shrinker(plan, result).shrink()
    assert shrunk.result.signature == result.signature
    assert len(shrunk.plan.events) <= len(plan.events)
    assert shrunk.plan.options.safety_ms < plan.options.safety_ms
    assert run_plan(shrunk.plan).digest == shrunk.result.digest


def test_files_of_a_failure_repeat_and_draw_it(tmp_path, capsys):
    printer = sim_report.Printer(as_json=False)
    code = sim_report.one(printer, draw(SEED), tmp_path, trace=False, shrink=False)
    assert code == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"seed {SEED}\n")
    assert said.err.rstrip().endswith(f"seed {SEED}: {VIOLATED}")
    directory = tmp_path / f"seed-{SEED}"
    again = run_plan(decode_plan((directory / "plan.json").read_bytes()))
    assert again.verdict == VIOLATED
    assert again.text in said.out
    trace = (directory / "trace.txt").read_text().splitlines()
    assert " violation - " in trace[-1]
    svg = ET.parse(directory / "lamport.svg").getroot()
    classes = [element.get("class") for element in svg.iter()]
    assert classes.count("violation") == 1
    assert "message" in classes
    assert again.oracle in "".join(svg.itertext())

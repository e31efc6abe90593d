"""``ledgermq sim``: what it refuses, and what it says when asked for help."""

import json
import subprocess
import sys

import pytest

from cli.main import run

USAGE = 254


@pytest.mark.parametrize("seeds", ["7", "a..b", "9..3", "..", "1..x"])
def test_range_that_is_none_is_refused(seeds, capsys):
    assert run(["sim", "--seeds", seeds]) == USAGE
    assert "A..B" in capsys.readouterr().err


def test_unknown_option_is_wrong_usage(capsys):
    assert run(["sim", "--sede", "7"]) == USAGE
    assert "ledgermq sim --help" in capsys.readouterr().err


def test_plan_that_is_not_there_is_refused(tmp_path, capsys):
    assert run(["sim", "--plan", str(tmp_path / "none.json")]) == USAGE
    assert "none.json" in capsys.readouterr().err


def test_file_that_is_no_plan_is_refused(tmp_path, capsys):
    path = tmp_path / "plan.json"
    path.write_text('{"seed": "seven"}')
    assert run(["sim", "--plan", str(path)]) == USAGE
    assert "plan.json" in capsys.readouterr().err


def test_unknown_mutant_is_refused_and_the_known_ones_are_named(capsys):
    assert run(["sim", "--mutant", "no-such-bug"]) == USAGE
    assert "ack-before-quorum" in capsys.readouterr().err


def test_help_tells_the_exit_codes(capsys):
    assert run(["sim", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Exit code: 0 valid, 1 a bug was found" in said


@pytest.mark.parametrize(
    "words",
    [
        "--seed 1 --seeds 1..2",
        "--seed 1 --plan x.json",
        "--seed 1 --minutes 1",
        "--bench --seed 1",
        "--bench --seeds 1..2",
        "--bench --overkill",
        "--elections 5 --seeds 1..2",
        "--elections 5 --minutes 1",
        "--elections 5 --overkill",
        "--mutants --seed 4",
        "--mutants --minutes 1",
        "--elections 5 --mutants",
        "--plan x.json --overkill",
        "--seeds 1..2 --trace",
        "--mode sync-master --plan x.json",
        "--mode every --mutants",
        "--mode sync-master --bench",
        "--mode every --seed 1",
        "--mode fast --seeds 1..2",
    ],
)
def test_options_that_ask_for_different_things_are_refused(words, capsys):
    assert run(["sim", *words.split()]) == USAGE
    assert "--" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["--seed -3", "--seed 99999999999999999999", "--elections 0"])
def test_number_out_of_range_is_refused(words):
    assert run(["sim", *words.split()]) == USAGE


@pytest.mark.parametrize(
    "plan",
    [
        '{"seed": 1, "format": 2}',
        '{"seed": 1, "evnets": []}',
        '{"seed": 1, "options": {"brokers": 0}}',
        '{"seed": 1, "events": [{"at_ms": 1, "kind": "crash", "package": "crash",'
        ' "target": "n9"}]}',
    ],
)
def test_plan_that_cannot_be_run_is_refused(plan, tmp_path, capsys):
    path = tmp_path / "plan.json"
    path.write_text(plan)
    assert run(["sim", "--plan", str(path)]) == USAGE
    assert "plan.json" in capsys.readouterr().err


def test_json_is_all_there_is_on_stdout(capsys):
    assert run(["sim", "--seed", "1", "--json", "--trace"]) == 0
    said = capsys.readouterr()
    row = json.loads(said.out)
    assert row["verdict"] == "valid"
    assert row["faults"] or row["without_effect"]
    assert said.err.count("\n") > 100


def test_planted_bug_is_found_in_one_run(tmp_path, capsys):
    words = ["--seed", "3", "--mutant", "ack-before-quorum", "--no-shrink", "--out", str(tmp_path)]
    assert run(["sim", *words]) == 1
    plan = tmp_path / "seed-3" / "plan.json"
    found = capsys.readouterr().out.splitlines()[0]
    # The answer is judged as it leaves the broker, before A38 hears of it from the client.
    assert "A44" in found
    assert run(["sim", "--plan", str(plan), *words[2:]]) == 1
    assert found == capsys.readouterr().out.splitlines()[0]
    assert run(["sim", "--plan", str(plan)]) == 0


def test_directory_that_cannot_be_written_is_said_behind_the_verdict(tmp_path, capsys):
    out = tmp_path / "file"
    out.write_text("")
    words = ["--seed", "3", "--mutant", "ack-before-quorum", "--no-shrink", "--out", str(out)]
    assert run(["sim", *words]) == 1
    said = capsys.readouterr()
    assert "VIOLATION" in said.out
    assert "cannot write" in said.err


def test_faults_that_took_no_effect_are_not_counted_and_told(tmp_path, capsys):
    path = tmp_path / "plan.json"
    never = {"at_ms": 900, "kind": "isolate", "package": "partition", "target": "n0", "for_ms": 0}
    plan = {"seed": 1, "options": {"safety_ms": 1000}, "events": [never]}
    path.write_text(json.dumps(plan))
    assert run(["sim", "--plan", str(path)]) == 0
    assert "faults: none took effect; without effect: isolate=1" in capsys.readouterr().out


def test_reader_that_goes_away_is_no_verdict():
    """It was 1, as if a bug had been found."""
    command = [sys.executable, "-m", "cli", "sim", "--seed", "1", "--trace"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 255
        assert b"Traceback" not in process.stderr.read()

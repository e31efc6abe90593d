"""``ledgermq sim``: what it refuses, and what it says when asked for help."""

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

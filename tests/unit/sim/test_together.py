"""Bugs planted many at a time: halves until those that show are alone, and none that only seems."""

import os
import signal
import subprocess
import sys
from time import sleep

import pytest

from cli.main import run as command
from mutants.patches import MUTANTS
from mutants.planting import Mutant, patch
from sim.campaign import RAFT, Case
from sim.together import ENDED, FAILED, PASSED, TOGETHER_MAX, Outcome, Search, attempt, load

FILE = """
from mutants.patches import MUTANTS
from mutants.planting import Mutant, patch

BUGS = (
    Mutant(
        name="{name}",
        breaks="Nothing.",
        source="none",
        plant=patch("dledger.core.replication:tick_leader", ("{old}", "{old}  # as it was")),
    ),
)
"""


LISTENING = """
import signal, sys
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from cli.main import main
    sys.exit(main(sys.argv[1:]))
"""
"""The command, which hears Ctrl-C also where tests run in the background of a shell."""


def bugs(count):
    return [Mutant(name=f"b{n}", breaks="", source="", plant=lambda: None) for n in range(count)]


def world(fails, ends=()):
    """An attempt: a plan fails if a bug is planted that fails it alone."""

    def run(planted, case):
        names = {bug.name for bug in planted}
        if any(name in names for name, seed in ends if seed == case.seed):
            return Outcome(ENDED)
        failing = names & {name for name, seed in fails if seed == case.seed}
        return Outcome(FAILED, f"found {min(failing)}") if failing else Outcome(PASSED)

    return run


def found_by(search):
    return {name: (shown.case.seed, shown.outcome.kind) for name, shown in search.shown.items()}


def test_each_bug_is_found_on_the_first_plan_that_fails_with_it_alone():
    fails = {("b3", 1), ("b3", 2), ("b7", 2), ("b30", 2), ("b31", 5)}
    search = Search(bugs(40), world(fails))
    for seed in range(1, 7):
        search.look(Case(seed, RAFT))
    assert found_by(search) == {
        "b3": (1, FAILED), "b7": (2, FAILED), "b30": (2, FAILED), "b31": (5, FAILED),
    }  # fmt: skip
    assert len(search.left) == 36
    assert search.shown["b7"].outcome.oracle == "found b7"


def test_many_that_hide_share_their_runs():
    sizes = []

    def run(planted, case):
        sizes.append(len(planted))
        return Outcome(PASSED)

    search = Search(bugs(48), run)
    for seed in range(1, 21):
        search.look(Case(seed, RAFT))
    assert max(sizes) == TOGETHER_MAX
    assert search.runs == len(sizes) < 48 * 20 / 6
    assert not search.shown


def test_a_plan_that_fails_without_a_bug_shows_none():
    search = Search(bugs(3), lambda planted, case: Outcome(FAILED, "always"))
    search.look(Case(1, RAFT))
    assert not search.shown
    assert len(search.left) == 3
    assert search.runs == 2  # with the bugs, and without any


def test_two_that_fail_together_alone_are_not_shown():
    def run(planted, case):
        both = {"b0", "b1"} <= {bug.name for bug in planted}
        return Outcome(FAILED) if both else Outcome(PASSED)

    search = Search(bugs(2), run)
    for seed in range(1, 5):
        search.look(Case(seed, RAFT))
    assert not search.shown


def test_a_bug_that_ends_the_simulator_is_set_aside_by_name():
    search = Search(bugs(5), world({("b1", 1)}, ends={("b4", 1)}))
    search.look(Case(1, RAFT))
    assert found_by(search) == {"b1": (1, FAILED), "b4": (1, ENDED)}


def test_a_real_plan_fails_with_a_planted_bug_among_sound_code():
    bug = MUTANTS["ack-before-quorum"]
    assert attempt([], Case(1, RAFT)) == Outcome(PASSED)
    outcome = attempt([bug], Case(1, RAFT))
    assert outcome.kind == FAILED
    assert "A44" in outcome.oracle


def test_what_a_bug_does_to_the_simulator_ends_its_run_alone():
    def unplantable():
        raise OSError("no such bug")

    outcome = attempt([Mutant(name="x", breaks="", source="", plant=unplantable)], Case(1, RAFT))
    assert outcome == Outcome(ENDED, text="OSError: no such bug")


def test_a_bug_that_goes_round_for_ever_is_ended(monkeypatch):
    monkeypatch.setattr("sim.together.RUN_S_MAX", 0.2)
    outcome = attempt([], Case(1, RAFT))
    assert (outcome.kind, outcome.text) == (ENDED, "it runs for more than 0 s")


def test_two_bugs_of_one_function_are_not_planted_together():
    one = patch("dledger.core.replication:tick_leader", ("if state.rejoining:", "if True:"))
    two = patch("dledger.core.replication:tick_leader", ("if state.rejoining:", "if False:"))
    of_one = [Mutant(name=n, breaks="", source="", plant=p) for n, p in (("x", one), ("y", two))]
    groups = []

    def run(planted, case):
        groups.append({bug.name for bug in planted})
        return Outcome(PASSED)

    Search([*bugs(4), *of_one], run).look(Case(1, RAFT))
    assert set().union(*groups) == {"b0", "b1", "b2", "b3", "x", "y"}
    assert not any({"x", "y"} <= group for group in groups)


def test_a_process_that_ends_early_is_no_search_that_found_nothing(tmp_path, capsys):
    path = tmp_path / "mine.py"
    # It can be planted where it is checked, and ends the process that looks for it.
    dies = "import os, multiprocessing\nif multiprocessing.parent_process(): os._exit(9)\n"
    path.write_text(dies + FILE.format(name="x", old="if state.rejoining:"))
    assert command(["sim", "--bugs", str(path), "--seeds", "1..1"]) == 255
    assert "1 of 1 processes ended early" in capsys.readouterr().err


def test_an_interruption_ends_the_runs_and_tells_what_was_shown(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE.format(name="x", old="if state.rejoining:"))
    words = [sys.executable, "-c", LISTENING, "sim", "--bugs", str(path), "--jobs", "1"]
    own = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, start_new_session=True, **own) as process:
        assert process.stderr is not None
        assert any("left in part 0" in line for line in process.stderr)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "| x | | not shown |" in out
    assert "Traceback" not in err
    for _ in range(100):
        if not in_group(process.pid):
            return
        sleep(0.1)
    assert not in_group(process.pid)


def in_group(group):
    """Return whether a process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no BUGS"),
        ("BUGS = (1,)", "has no BUGS"),
        ("raise OSError('gone')", "does not run: OSError: gone"),
        (FILE.format(name="x", old="no such text"), "x: dledger.core.replication"),
        (FILE.format(name="x", old="if state.rejoining:") + "BUGS += BUGS", "two bugs named x"),
    ],
)
def test_a_file_that_cannot_be_planted_is_refused(tmp_path, text, says, capsys):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        load(path)
    assert command(["sim", "--bugs", str(path)]) == 254
    assert "--bugs" in capsys.readouterr().err


def test_the_command_says_which_bug_is_shown_and_which_is_not(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(
        FILE.format(name="rejoining", old="if state.rejoining:").replace(
            "BUGS = (", "BUGS = (MUTANTS['ack-before-quorum'],"
        )
    )
    assert command(["sim", "--bugs", str(path), "--seeds", "1..1", "--mode", "raft"]) == 1
    told = capsys.readouterr()
    assert "2 bugs of" in told.err
    assert "| ack-before-quorum | 1 | A44" in told.out
    assert "| rejoining | | not shown |" in told.out

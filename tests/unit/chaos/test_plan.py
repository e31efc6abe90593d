"""Scenarios, the undo journal, drain facts, and the composition of two checkers' verdicts."""

import errno
import os
from pathlib import Path

import pytest

from chaos.__main__ import main as chaos_main
from chaos.backends.base import both_ways, link_names
from chaos.backends.sparse import copy_extents, copy_used_prefix, used_bytes
from chaos.demo import main, parser
from chaos.nemesis.journal import UndoJournal, pending
from chaos.scenario import as_script, baseline, demo, failover, planned_faults, zombies
from chaos.verdict import combine
from chaos.workload.audit import QueueEnds, drain_rows
from chaos.workload.producer import try_of
from chaos.workload.worker import decode_status, encode_status
from ledgermq.client import Attempt, MessageQueue, Outcome


@pytest.mark.parametrize(
    "scenario", [demo(), demo(seconds=100), failover(kills=3), zombies(), baseline()]
)
def test_every_fault_is_lifted_and_has_a_name_of_its_own(scenario):
    started = [name for name, _ in planned_faults(scenario)]
    stopped = [step.name for step in scenario.timeline if step.do == "stop"]
    assert len(set(started)) == len(started)
    assert sorted(started) == sorted(stopped)
    for name in started:
        steps = [(s.do, s.name) for s in scenario.timeline]
        assert steps.index(("start", name)) < steps.index(("stop", name))


def test_demo_kills_a_leader_that_has_no_majority():
    kinds = [(s.do, s.kind or s.name) for s in demo().timeline if s.do in {"start", "stop"}]
    cut, wall, pause, kill = (kinds.index(("start", k)) for k in ("cut", "cut", "pause", "kill"))
    assert cut == wall
    kill = len(kinds) - kinds[::-1].index(("start", "kill")) - 1
    assert cut < pause < kill < kinds.index(("stop", "2-pause")) < kinds.index(("stop", "2-cut"))


def test_longer_demo_has_more_rounds():
    assert len(planned_faults(demo(seconds=54))) == 3 * len(planned_faults(demo(seconds=18)))


def test_script_carries_delays_in_nanoseconds():
    delay, op = as_script(demo())[1]
    assert (delay, op.f, op.value["kind"]) == (500_000_000, "start", "kill")


def test_links_of_three_nodes_are_six():
    assert len(link_names(("a", "b", "c"))) == 6
    assert both_ways("a", "b") == ["a>b", "b>a"]


def test_journal_keeps_what_is_not_lifted(tmp_path):
    path = tmp_path / "undo.jsonl"
    journal = UndoJournal(path)
    journal.will_apply("1", {"do": "heal", "links": ["a>b"]})
    journal.will_apply("2", {"do": "resume", "node": "b"})
    journal.undone("1")
    journal.close()
    assert pending(path) == {"2": {"do": "resume", "node": "b"}}
    assert pending(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("committed", "empty", "drained"), [(10, 2, True), (9, 2, False), (10, 1, False)]
)
def test_queue_is_drained_if_all_is_committed_and_the_end_was_seen(committed, empty, drained):
    queue = MessageQueue("t", "b", 3)
    row = drain_rows("g", {queue: QueueEnds(0, 10)}, {3: committed}, empty)[0]
    assert row["drained"] is drained


def attempt(code: int | None, outcome: Outcome | None, error: str = "X") -> Attempt:
    return Attempt("a:1", 0, 1, code, error, outcome)


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (attempt(0, None), "ok"),
        (attempt(14, Outcome.FAILED), "fail"),
        (attempt(2, Outcome.FAILED), "fail"),
        (attempt(14, Outcome.UNKNOWN), "info"),
        (attempt(10, Outcome.FAILED), "info"),
        (attempt(1, Outcome.FAILED), "info"),
        (attempt(None, Outcome.UNKNOWN), "info"),
        (attempt(None, Outcome.FAILED, "RequestTimeout"), "info"),
        (attempt(None, Outcome.FAILED, "ConnectionLost"), "info"),
        (attempt(None, Outcome.FAILED, "ConnectFailed"), "fail"),
    ],
)
def test_what_came_back_of_an_attempt_is_read_without_believing_the_library(one, word):
    assert try_of(one) == word


def test_status_survives_the_pipe():
    told = {"counts": {"ok": 3}, "committed": {"t/2": 70}, "first": {"t/2": 7}}
    status = decode_status(encode_status(told | {"last_ack_ns": 1 << 50}))
    assert (status.counts, status.committed) == ({"ok": 3}, {"t/2": 70})
    assert status.first == {"t/2": 7}
    assert status.last_ack_ns == 1 << 50


def said(verdict: str, *, sent: int = 5, **checks: str) -> dict[str, object]:
    return {
        "verdict": verdict, "reasons": [], "counts": {"sent": sent},
        "checks": {name: {"verdict": v} for name, v in checks.items()},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("local", "spark", "verdict", "code"),
    [
        (said("valid", A1="valid"), said("valid", A1="valid"), "valid", 0),
        (said("invalid", A1="invalid"), said("invalid", A1="invalid"), "invalid", 1),
        (said("valid", A1="valid"), said("invalid", A1="invalid"), "invalid", 1),
        (said("valid", A1="valid"), said("valid", A1="unknown"), "unknown", 2),
        (said("valid"), said("valid", sent=6), "unknown", 2),
        (said("unknown"), said("valid"), "unknown", 2),
        (said("valid"), None, "unknown", 2),
        (said("invalid"), None, "invalid", 1),
    ],
)
def test_verdict_of_two_checkers_is_the_worst_and_disagreement_is_not_valid(
    local, spark, verdict, code
):
    found = combine(local, spark, spark_wanted=True)
    assert (found.verdict, found.exit_code) == (verdict, code)


def test_without_spark_the_in_process_verdict_stands():
    assert combine(said("valid"), None, spark_wanted=False).exit_code == 0


def test_contract_exceeded_has_a_code_of_its_own():
    theirs = said("valid") | {"exit_code": 3}
    assert combine(said("valid"), theirs, spark_wanted=True).exit_code == 3


def test_used_prefix_of_a_sparse_file(tmp_path):
    path = tmp_path / "segment"
    with path.open("wb") as file:
        file.write(b"x" * 10_000)
        file.truncate(1 << 26)
    assert used_bytes(path) == 10_000
    copied = copy_used_prefix(path, tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_size == copied < 20_000
    assert (tmp_path / "copy").read_bytes().rstrip(b"\0") == b"x" * 10_000


def test_file_system_that_knows_of_no_holes_gives_the_whole_file(tmp_path, monkeypatch):
    path, copy = tmp_path / "segment", tmp_path / "copy"
    path.write_bytes(b"x" * 10_000 + bytes(90_000))

    def lseek(*_):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "lseek", lseek)
    assert used_bytes(path) == 10_000
    copy_extents(str(path), str(copy))
    assert copy.read_bytes() == path.read_bytes()
    assert copy_used_prefix(path, copy) == 10_000 + 4_096


def test_file_that_is_cut_while_it_is_copied_is_copied_as_far_as_it_goes(tmp_path, monkeypatch):
    path, copy = tmp_path / "segment", tmp_path / "copy"
    path.write_bytes(b"x" * 10_000)
    real = Path.open

    def cut(self, *mode, **more):
        if self == path:
            os.truncate(path, 6_000)
        return real(self, *mode, **more)

    monkeypatch.setattr(Path, "open", cut)
    assert copy_used_prefix(path, copy) == 6_000
    assert copy.read_bytes() == b"x" * 6_000


@pytest.mark.parametrize("arguments", [["--seconds", "1"], ["--rate", "x"], ["--oops"]])
def test_wrong_options_are_usage_errors(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 254
    assert "usage" in capsys.readouterr().err


def test_options_of_the_demo():
    options = parser("x").parse_args(["--break", "ack-before-quorum", "--no-spark", "--seed", "4"])
    assert (options.mutant, options.spark, options.seed) == ("ack-before-quorum", False, 4)


def test_chaos_command_explains_itself(capsys, tmp_path):
    assert chaos_main(["--help"]) == 0
    assert chaos_main(["run", "nothing"]) == 254
    assert chaos_main(["check", str(tmp_path)]) == 254
    assert "failover" in capsys.readouterr().out

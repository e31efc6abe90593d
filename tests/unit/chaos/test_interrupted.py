"""A run that is interrupted, and a Spark job that takes too long: what is said, what is kept."""

import asyncio
import contextlib
import io
import json
import time
from pathlib import Path

import pytest
from rich.console import Console

from chaos import demo, verdict
from chaos.backends.process import process_state
from chaos.checker import check_history
from chaos.convert import read_table, recorded_rows
from chaos.load import load_history
from chaos.record import Recorder
from chaos.verdict import combine, run_module, spark_limit_s
from cli.main import run as main
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.spark.generate import HistoryBuilder, write_table
from tests.spark.minimal import refused_for_good, write_minimal


def partial_run(run: Path) -> Path:
    """What a harness leaves that was ended in the middle: recordings, and no tables."""
    run.mkdir()
    about = {"run_id": "r", "scenario": "demo", "seed": 1, "backend": "local", "plan": {}}
    about |= {"t0_wall_us": 0, "contract": {}, "problems": ["the run was interrupted"]}
    (run / "run.json").write_text(json.dumps(about))
    row = {"worker": 0, "process": 0, "role": "harness", "type": "info", "f": "phase"}
    with Recorder(run / "raw" / "harness.jsonl") as recorder:
        recorder.write("events", row | {"t_mono_ns": 5, "value": {"name": "main"}})
    return run


def test_a_directory_called_latest_keeps_nobody_from_a_run(tmp_path: Path):
    """One that somebody has copied ended each demo before it began."""
    first = demo.new_run_directory(tmp_path)
    assert (tmp_path / "latest").readlink() == Path(first.name)
    (tmp_path / "latest").unlink()
    (tmp_path / "latest" / "kept").mkdir(parents=True)
    assert demo.new_run_directory(tmp_path).parent == tmp_path
    assert (tmp_path / "latest" / "kept").is_dir()


@pytest.mark.parametrize("about", [{"run_id": "r"}, [], {"contract": {}}])
def test_recordings_beside_a_file_of_something_else_make_no_tables(about: object, tmp_path: Path):
    run = partial_run(tmp_path / "run")
    (run / "run.json").write_text(json.dumps(about))
    assert main(["export", str(run), "--format", "elle"]) == 2
    assert main(["chaos", "check", str(run)]) == 2


def test_damaged_recording_is_why_nothing_is_exported(tmp_path: Path, capsys):
    run = partial_run(tmp_path / "run")
    (run / "raw" / "harness.jsonl").write_text('garbage\n[0, "events", {}]\n')
    assert main(["export", str(run), "--format", "elle"]) == 2
    assert "the recording cannot be read: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt, 130), (asyncio.CancelledError, 143)]
)
def test_an_interrupted_demo_says_where_its_run_is_and_check_reads_it(
    error: type[BaseException], code: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    run = tmp_path / "run"

    async def ended(*_: object) -> int:
        partial_run(run)
        raise error

    monkeypatch.setattr(demo, "_go", ended)
    options = demo.parser("x").parse_args(["--out", str(run)])
    assert demo.run_and_check(demo.demo(seconds=5, rate=10), options) == code
    said = capsys.readouterr().out.replace("\n", "")
    assert f"Partial run: {run}" in said
    assert f"ledgermq check {run}" in said
    assert [row["f"] for row in read_table(run, "events")] == ["phase"]
    found = check_history(load_history(run))
    assert found.verdict == "unknown"
    assert any("the run was interrupted" in reason for reason in found.reasons)


@pytest.mark.parametrize("error", [AssertionError("odd"), KeyError("x"), OSError("no room")])
def test_a_harness_that_fails_does_not_say_that_the_run_is_invalid(
    error: Exception, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """An exception that nobody foresaw ends Python with 1: in a campaign a defect was found."""

    async def failed(*_: object) -> int:
        raise error

    monkeypatch.setattr(demo, "_go", failed)
    options = demo.parser("x").parse_args(["--out", str(tmp_path / "run")])
    assert demo.run_and_check(demo.demo(seconds=5, rate=10), options) == 255
    assert "the run failed" in capsys.readouterr().out


def test_nothing_is_promised_of_a_run_that_had_not_begun(tmp_path: Path) -> None:
    screen = io.StringIO()
    demo.say_interrupted(Console(file=screen, width=200), tmp_path)
    assert "nothing was recorded" in screen.getvalue()
    assert "Partial run" not in screen.getvalue()


@pytest.mark.parametrize(
    ("drain", "expected"), [("drained", "invalid"), ("undrained", "unknown"), ("none", "unknown")]
)
def test_what_was_refused_is_undecided_unless_all_was_drained(
    drain: str, expected: str, tmp_path: Path
) -> None:
    def spoil(run: HistoryBuilder, messages: list) -> None:
        refused_for_good(run, messages)
        run.drained = drain != "none"

    run = write_minimal(spoil, tmp_path)
    if drain == "undrained":
        rows = [row | {"drained": False} for row in read_table(run, "drain")]
        for path in (run / "tables" / "drain").glob("*.parquet"):
            path.unlink()
        write_table(run, "drain", rows)
    assert check_history(load_history(run)).results["A27"].verdict == expected


def test_the_limit_of_the_spark_job_grows_with_the_history(tmp_path: Path) -> None:
    empty = spark_limit_s(tmp_path)
    rows = [{"run_id": "r", "op_id": n, "msg_key": n, "topic": "t", "t_inv": n} for n in range(500)]
    write_table(tmp_path, "sends", rows)
    (tmp_path / "tables" / "deliveries").mkdir()
    (tmp_path / "tables" / "deliveries" / "part-0.parquet").write_bytes(b"PAR1 damaged")
    assert recorded_rows(tmp_path, ("sends", "deliveries")) == 500
    assert spark_limit_s(tmp_path) == empty + 500 / verdict.SPARK_ROWS_PER_S
    assert empty == verdict.SPARK_START_S


def too_slow(run: Path) -> str:
    """Return why there is no result of a job that would take longer than it may."""
    (run / "logs").mkdir(exist_ok=True)
    (run / "tables").mkdir(exist_ok=True)
    return asyncio.run(verdict.check_with_spark(run, 0.01)).why


def test_a_job_that_reaches_its_limit_is_named_as_the_reason(tmp_path: Path) -> None:
    why = too_slow(tmp_path)
    assert "it was ended after 0 s, its limit for 0 sends and deliveries" in why
    local = {"verdict": "valid", "reasons": [], "counts": {}, "checks": {}}
    found = combine(local, None, spark_wanted=True, why=why)
    assert (found.verdict, found.exit_code) == ("unknown", 2)
    assert found.reasons == (f"the Spark job gave no result: {why}",)
    with planted(HARNESS_BUGS["spark-without-a-word"]):
        assert "limit" not in too_slow(tmp_path)


def test_a_job_ends_with_whoever_waits_for_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    job = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"

    async def body() -> None:
        words = ["timeit", "-n1", "-r1", job]
        task = asyncio.create_task(run_module(words, tmp_path / "log", 60.0))
        while not (pid.exists() and pid.read_text()):
            await asyncio.sleep(0.02)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    begin = time.monotonic()
    asyncio.run(asyncio.wait_for(body(), 30))
    assert time.monotonic() - begin < 30
    assert process_state(int(pid.read_text())) == "gone"

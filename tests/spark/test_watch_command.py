"""``ledgermq chaos watch`` as a user meets it: a process, its words, and its exit code."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledgermq.runtime.disk import RealDisk
from spark.stream.place import SCRATCH
from tests.spark.recording import Recording, plants
from tests.spark.reports import SPARK_MARKS

pytestmark = SPARK_MARKS
COMMAND = [sys.executable, "-m", "cli.main", "chaos", "watch"]
LIMIT_S = 300
ROOT = Path(__file__).parents[2]


def watch(*arguments):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=ROOT, check=False, capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip


def words(done):
    return " ".join(done.stdout.split())


@contextmanager
def recorded(run):
    """Hold a run as its harness does while it records."""
    lock = RealDisk().lock(str(run.run / "running"))
    try:
        yield
    finally:
        lock.close()


def begun(run, errors):
    """Start to watch, ``errors`` its stderr; return the process once it has seen something."""
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [*COMMAND, str(run.run), "--json"], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=stderr,
        )  # fmt: skip
    first = process.stdout.readline()
    assert json.loads(first)["what"] == "batch", first + errors.read_text()
    return process


def test_a_run_that_is_over_is_told_whole(tmp_path):
    run = Recording(tmp_path / "run")
    run.traffic(10, 2)
    run.end()
    done = watch(run.run)
    assert done.returncode == 0, done
    assert words(done).endswith("0 alarms; all of the run was seen")
    assert not any((run.run / "watch" / name).exists() for name in SCRATCH)


def test_a_run_that_died_is_told_as_far_as_it_came(tmp_path):
    """It was killed: its recordings end somewhere, and nobody made tables."""
    run = Recording(tmp_path / "run")
    run.traffic(10, 2)
    quiet = watch(run.run)
    assert quiet.returncode == 2, quiet
    why = "whoever recorded it is gone, and did not end it"
    assert words(quiet).endswith(f"0 alarms; not all was seen: {why}")
    next(plants(run))  # the anomaly is on record before it is named
    run.clock += 1
    loud = watch(run.run, "--json")
    assert loud.returncode == 1, loud
    alarms = [line for line in map(json.loads, loud.stdout.splitlines()) if line["what"] == "alarm"]
    assert [line["check"] for line in alarms] == ["A5"]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_a_watch_is_alone_until_it_is_interrupted(tmp_path, number, code):
    run = Recording(tmp_path / "run")
    run.traffic(5, 1)
    errors = tmp_path / "stderr"
    with recorded(run):
        process = begun(run, errors)
        try:
            second = watch(run.run)
            assert second.returncode == 254, second
            assert "is watched already" in words(second)
            os.kill(process.pid, number)
            rest, _ = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == code, rest + errors.read_text()
    end = json.loads(rest.splitlines()[-1])
    assert (end["what"], end["whole"], end["why"]) == ("end", False, "interrupted")
    assert "Traceback" not in errors.read_text()
    assert not any((run.run / "watch" / name).exists() for name in SCRATCH)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere is no run of ours: there is nothing of that name"),
        (["tests"], "tests is no run of ours: it has no run.json and raw/"),
    ],
)
def test_what_is_no_run_is_refused(arguments, said):
    done = watch(*arguments)
    assert done.returncode == 254
    assert words(done) == f"chaos watch: {said}"


def test_wrong_usage_has_its_code():
    for arguments in ([], ["runs", "--jason"]):
        done = watch(*arguments)
        assert done.returncode == 254
        assert "ledgermq chaos watch: " in done.stderr


def test_a_disk_that_takes_nothing_is_named(tmp_path):
    run = Recording(tmp_path / "run")
    run.traffic(5, 1)
    run.end()
    (run.run / "watch").write_text("in the way")
    done = watch(run.run)
    assert done.returncode == 255
    assert "run/watch cannot be used: " in words(done)
    (run.run / "watch").unlink()
    (run.run / "watch").mkdir()
    (run.run / "watch" / "alarms.jsonl").symlink_to("/dev/full")
    done = watch(run.run)
    assert done.returncode == 255, done
    assert words(done).endswith("run/watch cannot be used: [Errno 28] No space left on device")
    assert "Traceback" not in done.stdout + done.stderr

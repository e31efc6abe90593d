"""``ledgermq store``: what is printed, exit codes, and that nothing is written."""

import fcntl
import json
import os
import subprocess
import sys

import pytest

from cli.main import run
from cli.store_output import write_parquet
from tests.unit.store.offline.stores import SEGMENT, PlainStore, state, write


@pytest.fixture
def store(tmp_path):
    made = PlainStore()
    write(tmp_path, made.files())
    return tmp_path, made


def call(capsys, *arguments):
    code = run(["store", *map(str, arguments)])
    output = capsys.readouterr()
    return code, output.out, output.err


def damage(root):
    path = root / f"commitlog/{0:020}"
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    return path


def test_verify_says_healthy_last_and_exits_0(store, capsys):
    code, out, err = call(capsys, "verify", store[0])
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "healthy: nothing is wrong"


def test_verify_names_file_and_offset_of_damage_and_exits_1(store, capsys):
    root, _ = store
    damage(root)
    code, out, _ = call(capsys, "verify", root)
    assert code == 1
    assert f"damage    log: commitlog/{0:020} offset 0" in out
    assert out.splitlines()[-1].startswith("damaged:")


def test_verify_after_a_crash_exits_0(store, capsys):
    root, _ = store
    (root / "abort").touch()
    code, out, _ = call(capsys, "verify", root)
    assert (code, out.splitlines()[-1].partition(":")[0]) == (0, "harmless")


def test_verify_as_json_has_the_findings(store, capsys):
    root, _ = store
    path = damage(root)
    code, out, _ = call(capsys, "verify", root, "--json")
    report = json.loads(out)
    assert (code, report["health"], report["kind"]) == (1, "damaged", "plain")
    first = report["findings"][0]
    assert (first["severity"], first["path"], first["offset"]) == ("damage", str(path), 0)


@pytest.mark.parametrize("command", ["verify", "dump", "stat"])
def test_what_is_no_store_is_one_line_and_exit_code_2(command, tmp_path, capsys):
    code, out, err = call(capsys, command, tmp_path)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "expected a storePathRootDir" in err
    assert "found an empty folder" in err


def test_dump_prints_a_line_a_message(store, capsys):
    root, made = store
    code, out, err = call(capsys, "dump", root)
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == len(made.records)
    assert out.splitlines()[0] == (
        "2023-11-14T22:13:20.000Z t0/0 0 U0 tags=g0 keys=a0 b 7 bytes: body 0 "
    )


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (["-t", "t1"], range(1, 114, 3)),
        (["-t", "t1", "-q", "1"], range(1, 114, 6)),
        (["--topic", "t1", "--queue", "1", "--from", "3", "--to", "4"], [19, 25]),
        (["--from", "18"], range(108, 114)),
        (["--limit", "3"], [0, 1, 2]),
        (["--limit", "0"], []),
        (["--since", "1700000025000", "--until", "1700000026000"], [100, 101, 102, 103]),
        (["--since", "2023-11-14T22:13:45", "--limit", "1"], [100]),
        (["-t", "none"], []),
    ],
)
def test_dump_selects(store, capsys, options, numbers):
    root, made = store
    code, out, _ = call(capsys, "dump", root, "--json", *options)
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    found = [row["commitLogOffset"] for row in rows if "queue" not in row]
    assert found == [made.records[number].physical_offset for number in numbers]


def test_dump_passes_over_damage_names_it_and_exits_1(store, capsys):
    root, made = store
    path = damage(root)
    code, out, err = call(capsys, "dump", root)
    assert (code, len(out.splitlines())) == (1, len(made.records) - 1)
    assert err == f"ledgermq: damaged: {path} offset 0: CRC of the body does not match\n"


def test_dump_writes_parquet_with_the_same_fields(store, capsys, tmp_path):
    from pyarrow import parquet

    root, _ = store
    target = tmp_path / "messages.parquet"
    assert call(capsys, "dump", root, "--parquet", target) == (0, "", "")
    rows = parquet.read_table(target).to_pylist()
    _, out, _ = call(capsys, "dump", root, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    messages = [line for line in lines if "queue" not in line]
    assert len(rows) == len(messages)
    for row, line in zip(rows, messages, strict=True):
        assert dict(row.pop("properties")) == line.pop("properties")
        row.pop("body"), line.pop("bodyBase64")
        assert row == line
    code, _, err = call(capsys, "dump", root, "--parquet", target)
    assert (code, "exists" in err) == (2, True)


def test_dump_that_is_interrupted_leaves_no_half_of_a_file(tmp_path):
    class Interrupted:
        def message_rows(self):
            raise KeyboardInterrupt
            yield

    with pytest.raises(KeyboardInterrupt):
        write_parquet(Interrupted(), tmp_path / "messages.parquet")
    assert list(tmp_path.iterdir()) == []


def test_dump_as_json_and_parquet_at_once_is_refused(store, capsys):
    code, _, err = call(capsys, "dump", store[0], "--json", "--parquet", "x.parquet")
    assert (code, "--parquet with --json" in err) == (2, True)


def test_time_that_is_none_is_refused(store, capsys):
    code, _, err = call(capsys, "dump", store[0], "--since", "yesterday")
    assert (code, "'yesterday' is no time" in err) == (2, True)


def test_stat_counts(store, capsys):
    root, made = store
    code, out, _ = call(capsys, "stat", root, "--json")
    found = json.loads(out)
    assert code == 0
    assert [row["messages"] for row in found["queues"]] == [19] * 6
    assert found["logs"][0]["records"] == len(made.records)
    assert found["logs"][0]["segmentBytes"] == SEGMENT
    assert sum(row["entries"] for row in found["index"]) == len(made.index)
    code, out, _ = call(capsys, "stat", root)
    assert code == 0
    assert "topic  queue  messages  min  max" in out


def test_files_are_opened_for_reading_only(store, capsys, monkeypatch):
    """So the right to write is not needed, which a test run by root could not show."""
    root, _ = store
    opened = []
    real = os.open

    def spy(path, flags, *rest, **named):
        opened.append((path, flags))
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", spy)
    for command in ("verify", "dump", "stat"):
        assert call(capsys, command, root)[0] == 0
    below = [flags for path, flags in opened if str(path).startswith(str(root))]
    assert len(below) > 20
    assert not any(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC) for flags in below)


def test_nothing_is_written(store, capsys):
    root, _ = store
    before = state(root)
    for command in ("verify", "dump", "stat"):
        assert call(capsys, command, root)[0] == 0
    assert state(root) == before


HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_store_in_use_is_read_and_said_to_be(store, capsys):
    root, _ = store
    (root / "abort").touch()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, root / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        for command in ("verify", "dump", "stat"):
            code, out, err = call(capsys, command, root)
            assert code == 0
            assert err == f"ledgermq: in use by process {holder.pid}: this is what is there now\n"
        code, out, _ = call(capsys, "verify", root)
        assert (code, out.splitlines()[-1].partition(":")[0]) == (0, "healthy")
        holder.stdin.close()
        assert holder.wait(10) == 0
    with (root / "lock").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert call(capsys, "verify", root)[2] == ""


def test_rebuild_only_says_what_it_would_do(store, capsys):
    root, _ = store
    before = state(root)
    code, out, err = call(capsys, "rebuild", root)
    assert (code, err) == (0, "")
    assert out == (
        "would make consumequeue and index anew: 114 messages in 6 queues with files of 400 bytes,"
        " 114 of them with keys; nothing was written, --yes does it\n"
    )
    assert state(root) == before


def test_rebuild_that_is_told_to_heals_the_queues(store, capsys):
    root, _ = store
    (root / f"consumequeue/t1/1/{0:020}").unlink()
    assert call(capsys, "verify", root)[0] == 1
    code, out, _ = call(capsys, "rebuild", root, "--yes")
    assert (code, out.startswith("made consumequeue and index anew: 114 messages")) == (0, True)
    assert call(capsys, "verify", root)[0] == 0


def test_rebuild_of_a_store_in_use_is_refused(store, capsys):
    root, _ = store
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, root / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        before = state(root)
        code, _, err = call(capsys, "rebuild", root, "--yes")
        assert (code, "in use" in err) == (2, True)
        assert state(root) == before


def test_reader_that_goes_away_is_no_error(store):
    root, _ = store
    with subprocess.Popen(
        [sys.executable, "-m", "cli", "store", "dump", str(root), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0

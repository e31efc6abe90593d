"""The logs of a run's processes become rows: files of any bytes, and times of the run's clock."""

from datetime import datetime

import pytest

from chaos.convert import read_table
from chaos.node_log import (
    LINE_BYTES_MAX,
    ahead_of_wall_ns,
    read_logs,
    roles_of,
    write_node_log,
)

STAMP = "2026-11-30T01:34:11.375Z"
WALL_NS = round(datetime.fromisoformat(STAMP).timestamp() * 1000) * 1_000_000
MS = 1_000_000


def read(tmp_path, content, ahead_ns=None):
    (tmp_path / "n0.log").write_bytes(content)
    return read_logs(tmp_path, {"n0": "broker"}, {"broker": ahead_ns})


def test_each_process_has_a_log():
    assert roles_of(("n0", "n1"), 2, ["producer-0"]) == {
        "n0": "broker", "n1": "broker", "ns0": "namesrv", "ns1": "namesrv", "producer-0": "client",
    }  # fmt: skip


def test_bytes_that_are_no_text_are_read_on(tmp_path):
    rows, dropped = read(tmp_path, b"\xff\xfe\x00\n" + f"{STAMP} ERROR x ".encode() + b"\xc3\n")
    assert ([row["line"] for row in rows], dropped) == (["x \N{REPLACEMENT CHARACTER}"], {})


def test_a_huge_line_is_cut_and_the_next_is_read(tmp_path):
    huge = f"{STAMP} ERROR x " + "event=bug " * LINE_BYTES_MAX
    rows, _ = read(tmp_path, f"{huge}\n{STAMP} ERROR y event=other\n".encode())
    assert [row["event"] for row in rows] == ["bug", "other"]


def test_the_last_line_may_be_torn(tmp_path):
    rows, _ = read(tmp_path, f"{STAMP} ERROR x event=bu".encode())
    assert [row["event"] for row in rows] == ["bu"]
    assert read(tmp_path, STAMP.encode()) == ([], {})


def test_times_are_of_the_runs_clock_where_that_is_known(tmp_path):
    content = f"{STAMP} ERROR x\n".encode()
    ahead_ns = 77 * MS - WALL_NS
    assert [row["t"] for row in read(tmp_path, content, ahead_ns)[0]] == [77 * MS]
    assert [row["t"] for row in read(tmp_path, content)[0]] == [None]
    assert [row["t"] for row in read(tmp_path, content, -WALL_NS - 1)[0]] == [None]
    impossible = content.replace(b"11-30", b"11-31")
    assert [row["t"] for row in read(tmp_path, impossible, ahead_ns)[0]] == [None]


def test_a_wall_clock_that_was_set_tells_no_times():
    assert ahead_of_wall_ns(1_000 * MS, 400, 600 * MS + 5) == 600 * MS
    assert ahead_of_wall_ns(1_000 * MS, 400, 1_601 * MS) is None


def test_what_is_in_no_row_is_counted(tmp_path):
    content = "".join(f"{STAMP} ERROR {chr(at + 9_000)}\n" for at in range(60))
    rows, dropped = read(tmp_path, content.encode())
    assert (len(rows), dropped) == (50, {"n0": 10})


def test_a_log_that_is_not_there_is_named(tmp_path):
    with pytest.raises(OSError, match="n7"):
        read_logs(tmp_path, {"n7": "broker"}, {})


def test_rows_become_a_table(tmp_path):
    rows, _ = read(tmp_path, f"{STAMP} CRITICAL x event=fatal exit_code=3\n".encode(), -WALL_NS)
    write_node_log(tmp_path, "a-run", rows)
    (row,) = read_table(tmp_path, "node_log")
    assert row == {
        "run_id": "a-run", "node": "n0", "role": "broker", "kind": "error", "level": "CRITICAL",
        "event": "fatal", "exception": None, "t": 0, "t_last": 0, "count": 1,
        "line": "x event=fatal exit_code=3",
    }  # fmt: skip

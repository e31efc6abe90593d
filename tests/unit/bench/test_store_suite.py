"""``ledgermq bench --store``: parts, aims, options."""

import json

import pytest

from bench import store_start, store_suite
from bench.__main__ import main as bench_main


def fake(figures):
    asked = []

    def run(arguments):
        asked.append(arguments)
        return figures[arguments[0]]

    return run, asked


def test_parts_run_in_their_order_with_their_options(tmp_path, capsys):
    run, asked = fake(
        {
            "bench.store_reads": {"store_messages_per_s": 99_999.5, "other": 1.0},
            "bench.store_index": {"query_p99_ms": 0.5},
        }
    )
    file = tmp_path / "found.json"
    arguments = ["--part", "reads", "--part", "index", "--kind", "raft", "--json", str(file)]
    assert store_suite.main(arguments, run) == 1
    assert asked == [
        ["bench.store_reads", "--kind", "raft"],
        ["bench.store_index", "--keys", "10000000"],
    ]
    found = json.loads(file.read_text())
    assert found["missed"] == ["reads: store_messages_per_s 99,999.5, aim >= 100,000"]
    assert found["parts"]["index"] == {"query_p99_ms": 0.5}
    assert "missed" in capsys.readouterr().out


def test_without_a_choice_all_parts_run():
    modules = [f"bench.store_{part.removesuffix('-many')}" for part in store_suite.AIMS]
    run, asked = fake({module: {} for module in modules})
    assert store_suite.main([], run) == 0
    assert [one[0] for one in asked] == modules
    few, many = (one for one in asked if one[0] == "bench.store_start")
    assert "--queues" not in few
    assert many[many.index("--queues") + 1] == "50000"


def test_the_store_is_a_part_of_the_bench(capsys):
    with pytest.raises(SystemExit) as ended:
        bench_main(["--store", "--part", "nothing"])
    assert ended.value.code == 2
    assert "invalid choice: 'nothing'" in capsys.readouterr().err


def test_a_sparse_disk_leaves_pages_of_zeros_out(tmp_path):
    disk = store_start.SparseDisk()
    size = 1 << 20
    file = disk.open(str(tmp_path / "log"), size=size)
    content = b"head" * 30 + bytes(300_000) + b"tail" * 3000 + bytes(20_000)
    file.pwrite(5000, (content[:100], content[100:]))
    file.pwrite(400_000, (b"small" + bytes(50),))
    expected = bytearray(size)
    expected[5000 : 5000 + len(content)] = content
    expected[400_000:400_005] = b"small"
    assert file.pread(0, size) == expected
    file.close()
    assert (tmp_path / "log").stat().st_blocks * 512 < 60_000

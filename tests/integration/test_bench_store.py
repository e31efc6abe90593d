"""Each part of ``ledgermq bench --store`` once, very small: it measures what has an aim."""

import json

import pytest

from bench import store_index, store_queues, store_reads, store_start, store_suite
from bench.single_node import Kind


@pytest.mark.parametrize("kind", [kind.value for kind in Kind])
@pytest.mark.parametrize(
    ("part", "arguments"),
    [
        (store_queues, ["--queues", "40", "--messages", "300", "--rounds", "1"]),
        (store_reads, ["--messages", "400", "--sends", "20", "--rounds", "1"]),
        (store_start, ["--gib", "0.01", "--queues", "5", "--small", "100", "--lost", "50"]),
    ],
)
def test_each_part_measures_what_has_an_aim(part, arguments, kind, capsys):
    assert part.main([*arguments, "--kind", kind]) == 0
    name = part.__name__.removeprefix("bench.store_")
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {aim.figure for aim in store_suite.AIMS[name]} <= set(figures)


def test_the_index_measures_what_has_an_aim(capsys):
    assert store_index.main(["--keys", "2000", "--queries", "20"]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "query_p99_ms" in figures

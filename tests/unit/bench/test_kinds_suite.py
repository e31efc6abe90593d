"""``ledgermq bench --kinds`` and ``--list``: parts, aims, options."""

import importlib
import json

import pytest

from bench import kinds_suite, store_suite
from bench.__main__ import OUR_ROWS, PEER_ROWS
from bench.__main__ import main as bench_main
from bench.consuming import kinds
from bench.delays import _percentiles
from bench.rebalance import Shares
from bench.sql_filter import measure as measure_sql
from ledgermq.client import MessageQueue


def test_parts_run_in_their_order_and_what_is_missed_is_told(tmp_path):
    asked = []

    def run(arguments):
        asked.append(arguments)
        return {"p99_ms": 501.0, "lost": 0, "wrong": 1} if "bench.failover" in arguments else {}

    file = tmp_path / "found.json"
    arguments = ["--part", "sql", "--part", "failover", "--json", str(file)]
    assert kinds_suite.main(arguments, run) == 1
    assert asked == [["bench.sql_filter"], ["bench.failover", "--kills", "50"]]
    assert json.loads(file.read_text())["missed"] == [
        "failover: p99_ms 501, aim <= 500",
        "failover: wrong 1, aim <= 0",
    ]


def test_every_part_has_a_module_and_an_aim():
    assert list(kinds_suite.AIMS) == list(kinds_suite.COMMANDS)
    for module, *_ in kinds_suite.COMMANDS.values():
        assert callable(importlib.import_module(module).main)
    assert all(kinds_suite.AIMS.values())


@pytest.mark.parametrize("part", kinds_suite.COMMANDS)
def test_every_part_tells_its_options(part, capsys):
    module = importlib.import_module(kinds_suite.COMMANDS[part][0])
    with pytest.raises(SystemExit) as ended:
        module.main(["--help"])
    assert ended.value.code == 0
    assert kinds_suite.COMMANDS[part][0] in capsys.readouterr().out


def test_the_list_names_every_row_and_every_aim(capsys):
    assert bench_main(["--list"]) == 0
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for part in (*store_suite.AIMS, *kinds_suite.AIMS):
        assert part in told
    for name in (*OUR_ROWS, *PEER_ROWS):
        assert name.split(",")[0] in told


def test_an_evaluation_of_sql_is_measured_for_each_expression():
    found = measure_sql(rounds=1, evaluations=10)
    assert found["worst_us"] == max(found["numbers_us"], found["texts_us"], found["mixed_us"])


def test_shares_are_even_when_each_queue_has_one_owner():
    queues = [MessageQueue("shared", "b", number) for number in range(5)]
    shares = Shares(5)
    shares.held = {"a": queues[:3], "b": queues[3:]}
    assert shares.are_even(2)
    assert not shares.are_even(3)
    shares.held["c"] = queues[4:]
    assert not shares.are_even(3), "a queue has two owners"
    shares.held = {"a": queues[:4], "b": queues[4:]}
    assert not shares.are_even(2), "one has more than its share"
    shares.held = {"a": queues[:2], "b": queues[3:]}
    assert not shares.are_even(2), "a queue has no owner"


def test_consumers_differ_in_what_is_compared_alone():
    plain, sql, orderly = (kinds(32)[name] for name in ("plain", "sql", "orderly"))
    assert plain[0] == sql[0]
    assert plain[1] != sql[1]
    assert plain[1] == orderly[1]
    assert orderly[0].orderly
    assert orderly[0].consume_batch_count == plain[0].consume_batch_count


def test_percentiles_are_of_the_ordered_values():
    figures = _percentiles("late", [float(number) for number in range(101)])
    assert figures == {"late_p50_ms": 50.0, "late_p99_ms": 99.0, "late_max_ms": 100.0}

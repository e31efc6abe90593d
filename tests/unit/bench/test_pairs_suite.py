"""``ledgermq bench --pairs``: parts, and what they make of what they saw."""

import asyncio
import importlib
import json
import time
from struct import pack

import pytest

from bench import pairs_suite
from bench.__main__ import JAVA_ROWS
from bench.__main__ import main as bench_main
from bench.catch_up import p99_ms
from bench.failover import Told, kill_leaders, summarize
from bench.slave_lag import LogEnd, lags_ms
from bench.steady import Sent

RECORD = pack(">i", 8) + b"body"


@pytest.mark.parametrize("part", pairs_suite.COMMANDS)
def test_every_part_tells_its_options_and_has_an_aim(part, capsys):
    name, *_ = pairs_suite.COMMANDS[part]
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(name).main(["--help"])
    assert ended.value.code == 0
    assert name in capsys.readouterr().out
    assert pairs_suite.AIMS[part]


def test_what_is_missed_is_told(tmp_path):
    file = tmp_path / "found.json"
    figures = {"mb_per_s": 199.0, "send_p99_ratio": 2.0}
    arguments = ["--part", "catch-up", "--json", str(file)]
    assert pairs_suite.main(arguments, lambda _: figures) == 1
    assert json.loads(file.read_text())["missed"] == ["catch-up: mb_per_s 199, aim >= 200"]


def test_the_list_names_parts_and_rows_of_pairs(capsys):
    assert bench_main(["--list"]) == 0
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for part in pairs_suite.AIMS:
        assert f"--pairs --part {part}" in told
    pairs = [row for row in JAVA_ROWS.values() if row.replicas == 2]
    assert [row.real for row in pairs] == [False, True]


def test_a_lag_is_from_the_acknowledgement_to_the_first_look_that_finds_the_record():
    log = bytearray(100)
    end = LogEnd(log)
    end.look(1_000_000)
    log[:8] = RECORD
    end.look(2_000_000)
    log[8:24] = RECORD * 2
    end.look(5_000_000)
    assert [end.when_had(at) for at in (0, 8, 16, 24)] == [2_000_000, 5_000_000, 5_000_000, None]
    sent = [Sent(0, 3_000_000, 0), Sent(0, 3_000_000, 8), Sent(0, 100, 8), Sent(0, 9, 24)]
    assert lags_ms(sent, end, 1_000) == ([0.0, 2.0], 1)


class SlowToEnd:
    """A cluster whose broker takes a while to end; sends wait for that, as this process does."""

    def leader(self):
        return 0

    def kill(self, _node):
        time.sleep(0.05)

    def restart(self, _node):
        pass


class AtOnce:
    async def send(self, _producer):
        return True


def test_a_switch_is_timed_from_the_signal_on(monkeypatch):
    monkeypatch.setattr("bench.failover.PAUSE_S", 0)

    async def recovered(_cluster):
        pass

    (took_s,) = asyncio.run(kill_leaders(SlowToEnd(), (None, AtOnce()), (1, 0), recovered))
    assert took_s >= 0.05


def test_sends_are_judged_by_what_they_were_told():
    told = Told()
    told.acknowledged, told.failed, told.unknown = {1, 2}, {3, 4}, {5}
    judged = told.judge({1, 3, 5})
    assert (judged["lost"], judged["wrong"]) == (1, 1)
    assert summarize([0.2, 0.1, 0.3], judged)["max_ms"] == 300.0


def test_no_acknowledged_send_is_no_fast_one():
    sent = [Sent(0, (number + 1) * 1_000_000, 0) for number in range(200)]
    assert p99_ms(sent) == 199.0
    with pytest.raises(RuntimeError, match="no send was acknowledged"):
        p99_ms([])

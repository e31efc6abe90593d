"""The benchmark's options, rows and ratios."""

import pytest

from bench.__main__ import OURS, OURS_SINGLY, PEER, _parser, _plan, _ratios, _settings
from bench.result import Measurement


def row(window: int, rate: float) -> Measurement:
    return Measurement(window=window, rate=rate, errors=0, p50_ms=1.0, p99_ms=2.0)


def test_only_keeps_the_rows_that_contain_the_text():
    options = _parser().parse_args(["--only", "sync flush"])
    names = [name for name, _ in _plan(options, [1])]
    assert names
    assert all("sync flush" in name for name in names)


def test_ratios_are_taken_between_rows_of_one_run():
    results = {OURS: {64: row(64, 200.0)}, PEER: {64: row(64, 50.0)}}
    assert _ratios(results)["ours / PySyncObj best"] == {64: 4.0}


def test_a_missing_row_gives_no_ratio():
    assert _ratios({OURS: {64: row(64, 200.0)}}) == {}


@pytest.mark.parametrize("windows", ["", "0", "1,,2", "x", "1,999999", "-4"])
def test_windows_outside_the_limits_are_refused_by_name(windows, capsys):
    with pytest.raises(SystemExit):
        _parser().parse_args([f"--windows={windows}"])
    assert "is not a whole number from 1 to 10000" in capsys.readouterr().err


def test_windows_default_to_the_four_of_the_figures():
    assert _parser().parse_args([]).windows == [1, 16, 64, 256]


def test_settings_say_how_each_row_of_ours_and_the_peers_was_driven():
    settings = _settings()
    rows = [name for name, _ in _plan(_parser().parse_args([]), [1])]
    assert set(settings) == set(rows) - {"echo of the same frames (ceiling)"}
    assert settings[OURS]["client"] == {
        "auto_batch": True, "auto_batch_messages_max": 64, "auto_batch_bytes_max": 131_072,
    }  # fmt: skip
    assert settings[OURS_SINGLY]["client"]["auto_batch"] is False
    assert settings[OURS] | {"client": {}} == settings[OURS_SINGLY] | {"client": {}}
    assert settings[PEER]["modes"] == ["thread-batch", "ticked-single", "ticked-batch"]


def test_the_peer_is_compared_with_the_default_client_and_the_echo_with_single_requests():
    results = {
        OURS: {64: row(64, 200.0)},
        OURS_SINGLY: {64: row(64, 100.0)},
        PEER: {64: row(64, 50.0)},
        "echo of the same frames (ceiling)": {64: row(64, 400.0)},
    }
    assert _ratios(results) == {
        "ours / PySyncObj best": {64: 4.0},
        "ours / ours, auto_batch off": {64: 2.0},
        "ours, auto_batch off / echo": {64: 0.25},
    }

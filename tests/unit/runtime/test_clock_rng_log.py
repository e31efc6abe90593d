"""Clocks, randomness, errors and log lines."""

import logging
import sys
import time

import pytest

from ledgermq.runtime.clock import SystemClock, local_stamp
from ledgermq.runtime.errors import EXIT_BAD_INPUT, FatalError
from ledgermq.runtime.log_format import (
    LINE_CHARACTERS_MAX,
    LINES_PER_KIND,
    PERIOD_S,
    TRACE_CHARACTERS_MAX,
    KeyValueFormatter,
    Throttle,
    configure_logging,
)
from ledgermq.runtime.rng import SystemRng
from mutants.patches import BY_TESTS
from mutants.planting import planted


def test_the_clocks_agree_on_their_units():
    clock = SystemClock()
    before = clock.monotonic_ns()
    assert before // 1_000_000 <= clock.monotonic_ms() <= clock.monotonic_ns() // 1_000_000
    assert clock.wall_ms() > 1_600_000_000_000


def test_the_hour_is_that_of_the_place(monkeypatch):
    for zone, hour in (("UTC", 8), ("JST-9", 17)):
        with monkeypatch.context() as place:
            place.setenv("TZ", zone)
            time.tzset()
            clock = SystemClock()
            assert clock.local(1_700_036_000_000).tm_hour == hour
            stamp = local_stamp(clock, 1_700_036_000_007)
            assert stamp == f"20231115{hour:02d}1320007"
    time.tzset()


def test_a_seeded_generator_repeats_itself():
    first, second = SystemRng(7), SystemRng(7)
    rows = [(one.randint(1, 6), one.random()) for one in (first, second)]
    assert rows[0] == rows[1]
    assert 1 <= rows[0][0] <= 6
    assert 0 <= rows[0][1] < 1
    assert 0 <= SystemRng().random() < 1


def test_a_fatal_error_carries_its_exit_code():
    error = FatalError("port 1 is in use")
    assert (error.message, error.exit_code, str(error)) == (
        "port 1 is in use",
        EXIT_BAD_INPUT,
        "port 1 is in use",
    )


def test_a_log_line_has_time_level_node_name_and_text():
    record = logging.LogRecord("broker.x", logging.INFO, "f", 1, "event=%s", ("up",), None)
    record.created, record.msecs = 0.0, 5.0
    assert KeyValueFormatter("n0").format(record) == (
        "1970-01-01T00:00:00.005Z INFO node=n0 broker.x event=up"
    )
    assert KeyValueFormatter().format(record) == "1970-01-01T00:00:00.005Z INFO broker.x event=up"


def test_configuring_twice_leaves_one_handler():
    root = logging.getLogger()
    configure_logging("n0", "WARNING")
    configure_logging("n1", "DEBUG")
    assert len(root.handlers) == 1
    assert root.level == logging.DEBUG


def test_line_that_names_a_node_is_not_given_another():
    def line(text):
        record = logging.LogRecord("dledger.x", logging.INFO, "f", 1, text, (), None)
        return KeyValueFormatter("n0").format(record)

    assert line("node=n0 event=role term=1").count("node=n0") == 1
    assert line("event=opened node=n0 group=g").count("node=n0") == 1
    assert line("event=up subnode=n1").count(" node=n0 ") == 1


def log_record(text, *values, level=logging.WARNING):
    return logging.LogRecord("x", level, "f", 1, text, values, None)


def test_what_a_client_sends_ends_no_line_and_fills_none():
    line = KeyValueFormatter().format(
        log_record("event=bad topic=%s", "a\nevent=fatal\x1b[2J\u2028")
    )
    assert len(line.splitlines()) == 1
    assert r"a\x0aevent=fatal\x1b[2J\x2028" in line
    long = KeyValueFormatter().format(log_record("event=bad topic=%s", "y" * 100_000))
    assert len(long) < LINE_CHARACTERS_MAX + 200


def raised(error: Exception) -> str:
    """Return what is logged of an error that was raised."""
    record = log_record("event=uncaught")
    try:
        try:
            {}["first"]
        except KeyError as cause:
            raise error from cause
    except Exception:  # noqa: BLE001 - whatever it is
        record.exc_info = sys.exc_info()
    return KeyValueFormatter("n0").format(record)


def test_the_text_of_an_error_is_one_line_of_its_trace():
    forged = "1970-01-01T00:00:00.005Z CRITICAL broker event=fatal"
    lines = raised(ValueError(f"no topic a\n{forged}")).split("\n")
    assert lines.count("Traceback (most recent call last):") == 2
    assert "KeyError: 'first'" in lines
    assert lines[-1] == rf"ValueError: no topic a\x0a{forged}"
    assert not any(line.startswith(forged) for line in lines)
    assert len(raised(ValueError("y" * 1_000_000))) < 2 * LINE_CHARACTERS_MAX
    group = raised(ExceptionGroup("z" * 1_000_000, [ValueError(f"a\n{forged}")]))
    assert len(group) <= TRACE_CHARACTERS_MAX + 200
    assert not any(line.startswith(forged) for line in group.split("\n"))


def test_a_kind_of_line_is_written_so_often_and_then_counted():
    now = [0.0]
    throttle = Throttle(lambda: now[0])
    passed = [throttle.filter(log_record("event=bad n=%d", n)) for n in range(100)]
    assert sum(passed) == LINES_PER_KIND
    assert throttle.filter(log_record("event=other"))
    assert throttle.filter(log_record("event=bad n=%d", 1, level=logging.CRITICAL))
    now[0] = PERIOD_S
    again = log_record("event=bad n=%d", 101)
    assert throttle.filter(again)
    assert again.getMessage() == f"event=bad n=101 held_back={100 - LINES_PER_KIND}"


def test_a_planted_flood_of_lines_is_seen():
    with planted(BY_TESTS["lines-not-throttled"]), pytest.raises(AssertionError):
        test_a_kind_of_line_is_written_so_often_and_then_counted()

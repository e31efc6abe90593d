"""Clocks, randomness, errors and log lines."""

import logging
import time

from runtime.clock import SystemClock, local_stamp
from runtime.errors import EXIT_BAD_INPUT, FatalError
from runtime.log_format import KeyValueFormatter, configure_logging
from runtime.rng import SystemRng


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
    handlers, level = root.handlers[:], root.level
    try:
        configure_logging("n0", "WARNING")
        configure_logging("n1", "DEBUG")
        assert len(root.handlers) == 1
        assert root.level == logging.DEBUG
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def test_line_that_names_a_node_is_not_given_another():
    def line(text):
        record = logging.LogRecord("dledger.x", logging.INFO, "f", 1, text, (), None)
        return KeyValueFormatter("n0").format(record)

    assert line("node=n0 event=role term=1").count("node=n0") == 1
    assert line("event=opened node=n0 group=g").count("node=n0") == 1
    assert line("event=up subnode=n1").count(" node=n0 ") == 1

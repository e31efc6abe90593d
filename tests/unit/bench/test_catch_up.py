"""What `bench.catch_up` and `bench.waiting` tell of what they counted."""

from bench.catch_up import figures_of
from bench.steady import Sent
from bench.waiting import sent_figures

MS = 1_000_000


def test_sends_while_the_slave_starts_are_neither_before_nor_meanwhile():
    sent = [
        Sent(sent_ns=0, acknowledged_ns=2 * MS, position=0),
        Sent(sent_ns=90 * MS, acknowledged_ns=190 * MS, position=0),  # its process starts
        Sent(sent_ns=200 * MS, acknowledged_ns=206 * MS, position=0),
    ]
    times = {"started_ns": 80 * MS, "begin_ns": 195 * MS, "end_ns": 300 * MS}
    assert figures_of({**times, "behind_mb": 7.0}, sent) == {
        "behind_mb": 7.0,
        "send_p99_before_ms": 2.0,
        "send_p99_meanwhile_ms": 6.0,
        "send_p99_ratio": 3.0,
    }


def test_what_was_asked_for_is_not_told_as_what_is_there():
    assert sent_figures(1_000, 10, 2.0) == {
        "asked_for": 1_000,
        "messages": 990,
        "failed_sends": 10,
        "sends_per_s": 495,
    }

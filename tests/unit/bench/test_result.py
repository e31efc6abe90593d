"""The arithmetic of benchmark rows."""

from bench.result import Measurement, summarize


def test_rate_counts_acknowledged_operations_per_second():
    row = summarize(4, [0.001] * 500, elapsed_s=2.0, errors=3)
    assert row == Measurement(window=4, rate=250.0, errors=3, p50_ms=1.0, p99_ms=1.0)


def test_percentiles_are_of_the_sorted_latencies():
    row = summarize(1, [i / 1000 for i in range(100, 0, -1)], elapsed_s=1.0, errors=0)
    assert (row.p50_ms, row.p99_ms) == (51.0, 100.0)


def test_nothing_acknowledged_shows_as_minus_one_and_not_as_fast():
    row = summarize(1, [], elapsed_s=1.0, errors=7)
    assert (row.rate, row.p50_ms, row.p99_ms) == (0.0, -1.0, -1.0)

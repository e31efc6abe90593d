"""Store times against the clocks that brokers have shown."""

from types import SimpleNamespace

import pytest

from sim.clock import EPOCH_MS, SimClock
from sim.oracles.base import Violation
from sim.oracles.truth import Truth

MS = 1_000_000


def clock_at(now_ms):
    return SimClock(SimpleNamespace(now_ns=now_ms * MS, drifting=False))


def test_a_clock_remembers_the_latest_time_that_it_has_shown():
    clock = clock_at(5_000)
    clock.jump(30_000)
    clock.jump(-60_000)
    assert clock.wall_ms() == EPOCH_MS - 25_000
    assert clock.highest_ms == EPOCH_MS + 35_000
    clock.jump(100_000)
    assert clock.highest_ms == clock.wall_ms() == EPOCH_MS + 75_000


@pytest.mark.parametrize(
    ("ahead_ms", "allowed_ms", "is_found"),
    [(500, 1_000, False), (1_500, 1_000, True), (50_000, 61_000, False), (62_000, 61_000, True)],
)
def test_a_store_time_is_not_ahead_of_all_clocks(ahead_ms, allowed_ms, is_found):
    truth = Truth(("n0",))
    truth.ahead_ms = allowed_ms
    truth.latest_ms = lambda: EPOCH_MS
    truth.times[0, 1] = EPOCH_MS + ahead_ms
    if not is_found:
        truth._check_time(0, 1)
        return
    with pytest.raises(Violation, match="A39 store time ahead of all clocks"):
        truth._check_time(0, 1)

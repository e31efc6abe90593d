"""Store times against the clocks that brokers have shown."""

from types import SimpleNamespace

import pytest

from sim.clock import EPOCH_MS, SimClock, latest_stamp_ms
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


@pytest.mark.parametrize(("back_ms", "latest_ms"), [(30_000, 35_000), (90_000, 37_000)])
def test_stamps_go_on_at_half_the_pace_once_a_clock_was_set_far_back(back_ms, latest_ms):
    time = SimpleNamespace(now_ns=5_000 * MS, drifting=False)
    own, other = SimClock(time), SimClock(time)
    for clock in (own, other):
        clock.jump(30_000)
        clock.jump(-back_ms)
    assert latest_stamp_ms([own, other]) == EPOCH_MS + 35_000
    time.now_ns += 4_000 * MS
    assert latest_stamp_ms([own, other]) == EPOCH_MS + max(latest_ms, 39_000 - back_ms)


def test_stamps_have_gone_on_while_a_clock_was_far_behind_that_is_near_again():
    time = SimpleNamespace(now_ns=5_000 * MS, drifting=False)
    own, other = SimClock(time), SimClock(time)
    own.jump(62_000)
    own.jump(-62_000)
    time.now_ns += 10_000 * MS
    assert own.highest_ms - other.wall_ms() == 52_000
    assert latest_stamp_ms([own, other]) == EPOCH_MS + 67_000 + 5_000


def test_a_slow_clock_paces_stamps_no_faster_and_a_fast_one_does():
    time = SimpleNamespace(now_ns=5_000 * MS, drifting=False)
    own, other = SimClock(time), SimClock(time)
    own.jump(90_000)
    own.jump(-90_000)
    other.set_rate(2.0)
    time.now_ns += 4_000 * MS
    assert latest_stamp_ms([own, other]) == EPOCH_MS + 99_000


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

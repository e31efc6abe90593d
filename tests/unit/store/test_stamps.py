"""Store timestamps under wrong clocks: they never fall, and a leap does not take them along."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.layout import read_record
from store.stamps import FOLLOW_MS, IDLE_MAX_MS, JUMP_MS, Stamps
from tests.unit.store.fakes import World

T0 = 1_700_000_000_000
HOUR = 3_600_000
YEARS = 10 * 365 * 24 * HOUR
TICK = 100


class TwoClocks:
    """A wall clock that can be set, and one that cannot."""

    def __init__(self, wall=T0):
        self.wall = wall
        self.monotonic = 5

    def wall_ms(self):
        return self.wall

    def monotonic_ms(self):
        return self.monotonic

    def monotonic_ns(self):
        return self.monotonic * 1_000_000

    def local(self, wall_ms):
        return time.gmtime(wall_ms / 1000)

    def run(self, stamps, ms, step=60_000):
        for _ in range(0, ms, step):
            self.wall += step
            self.monotonic += step
            stamps.tick()


@pytest.fixture
def clock():
    return TwoClocks()


def test_a_leap_ahead_for_one_message_leaves_no_trace(clock, caplog):
    stamps = Stamps(clock)
    stamps.carry_on(T0 - 5)
    assert stamps.now() == T0
    clock.wall += YEARS
    assert stamps.now() == T0
    clock.monotonic += 10
    clock.wall += 10
    assert stamps.now() == T0 + 10
    assert stamps.status()["clock_ahead_ms"] == YEARS
    clock.wall -= YEARS
    assert stamps.now() == T0 + 10
    stamps.tick()
    assert stamps.status() == {"clock_ahead_ms": 0, "log_ahead_of_clock_ms": 0}
    clock.wall += 7
    assert stamps.now() == T0 + 17
    told = [record.getMessage().split(" ")[0] for record in caplog.records]
    assert told == ["event=clock_leapt", "event=clock_is_back"]


def test_a_leap_that_lasts_is_followed_and_told(clock, caplog):
    stamps = Stamps(clock)
    clock.wall += 24 * HOUR
    clock.run(stamps, FOLLOW_MS - 120_000)
    assert stamps.now() == clock.wall - 24 * HOUR
    clock.run(stamps, 240_000)
    assert stamps.now() == clock.wall
    assert "event=clock_followed" in caplog.text


def test_a_second_leap_waits_anew(clock):
    stamps = Stamps(clock)
    clock.wall += HOUR
    clock.run(stamps, FOLLOW_MS - 120_000)
    clock.wall += YEARS
    clock.run(stamps, 240_000)
    assert stamps.now() < T0 + 2 * HOUR


def test_a_clock_that_is_set_back_makes_stamps_wait_and_no_leap_of_its_return(clock, caplog):
    stamps = Stamps(clock)
    assert stamps.now() == T0
    clock.wall -= YEARS
    clock.run(stamps, 3 * HOUR)
    assert stamps.now() == T0
    assert stamps.status()["log_ahead_of_clock_ms"] == YEARS - 3 * HOUR
    clock.wall += YEARS
    assert stamps.now() == T0 + 3 * HOUR
    assert not caplog.records


def test_drift_is_followed(clock, caplog):
    stamps = Stamps(clock)
    for _ in range(100):
        clock.wall += 50_000  # in an hour: more than 1 %
        clock.run(stamps, HOUR)
        assert stamps.now() == clock.wall
    assert not caplog.records


def test_a_start_with_a_clock_that_is_years_ahead_goes_on_from_the_log():
    clock = TwoClocks(T0 + YEARS)
    stamps = Stamps(clock)
    stamps.carry_on(T0)
    clock.run(stamps, 120_000)
    assert stamps.now() == T0 + 120_000


def test_a_silent_week_is_no_leap(caplog):
    clock = TwoClocks()
    stamps = Stamps(clock)
    stamps.carry_on(T0 - IDLE_MAX_MS + 1)
    assert stamps.now() == T0
    assert not caplog.records


def test_a_log_that_is_ahead_is_not_undercut_and_the_right_clock_is_no_leap(caplog):
    """The machine begins in 1970, and its clock is put right later."""
    clock = TwoClocks(1000)
    stamps = Stamps(clock)
    stamps.carry_on(T0)
    assert stamps.now() == T0
    clock.run(stamps, 5 * 60_000)
    clock.wall = T0 + 5 * 60_000
    assert stamps.now() == T0 + 5 * 60_000
    assert not caplog.records


@given(
    st.lists(
        st.tuples(st.integers(-YEARS, YEARS) | st.integers(-200_000, 200_000), st.integers(0, 10)),
        max_size=30,
    )
)
@settings(max_examples=200)
def test_stamps_never_fall_nor_outrun_the_line_before_a_leap_is_followed(steps):
    clock = TwoClocks()
    stamps = Stamps(clock)
    last = stamps.now()
    for jump, minutes in steps:
        clock.wall = max(1, clock.wall + jump)
        for _ in range(minutes):
            clock.run(stamps, 60_000)
            stamp = stamps.now()
            assert stamp >= last
            last = stamp
    if clock.monotonic < FOLLOW_MS:
        assert last <= T0 + clock.monotonic + JUMP_MS


def stored(world, index):
    return read_record(world.node.entries[index][2])[4]


def stamps_around_a_leap():
    world = World()
    clock = TwoClocks()
    world.store._commit_log.stamps = stamps = Stamps(clock)
    world.store._commit_log._timestamp = stamps.now
    world.begin()
    world.node.lead()
    world.put()
    clock.wall += YEARS
    world.put()
    world.store.propose_state("k", b"", lambda status: None)
    clock.wall -= YEARS
    clock.wall += 10
    world.put()
    return [stored(world, index) for index in range(1, 5)]


def test_messages_and_state_are_stamped_so():
    assert stamps_around_a_leap() == [T0, T0, T0, T0 + 10]


def test_planted_stamps_that_follow_a_leap_are_found_here():
    with planted(BY_TESTS["stamps-follow-a-leap"]):
        assert stamps_around_a_leap() == [T0, T0 + YEARS, T0 + YEARS, T0 + YEARS]

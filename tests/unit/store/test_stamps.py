"""Store timestamps under wrong clocks: they never fall, and a leap does not take them along."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mutants.patches import ALL, BY_TESTS
from mutants.planting import planted
from store.layout import read_record
from store.write.stamps import FOLLOW_MS, HEAL_MS, IDLE_MAX_MS, JUMP_MS, UNHEARD_MS, Stamps
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
    assert not any(stamps.status().values())
    clock.wall += 7
    assert stamps.now() == T0 + 17
    told = [record.getMessage().split(" ")[0] for record in caplog.records]
    assert told == ["event=clock_leapt", "event=clock_is_back"]


def around_a_leap_from_a_little_ahead(clock):
    stamps = Stamps(clock)
    clock.wall += JUMP_MS
    before = stamps.now()
    clock.wall += YEARS
    return stamps.now() - before


def test_a_leap_from_a_little_ahead_takes_no_stamp_back(clock):
    assert around_a_leap_from_a_little_ahead(clock) == 0


def test_planted_stamps_that_fall_are_found_here(clock):
    with planted(ALL["stamps-fall-as-a-clock-leaps"]):
        assert around_a_leap_from_a_little_ahead(clock) == -JUMP_MS


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


def test_a_clock_that_is_set_back_slows_stamps_down_and_is_no_leap_when_it_returns(clock, caplog):
    stamps = Stamps(clock)
    assert stamps.now() == T0
    clock.wall -= YEARS
    clock.run(stamps, 3 * HOUR)
    assert stamps.now() == T0 + 3 * HOUR // 2
    assert stamps.status()["log_ahead_of_clock_ms"] == YEARS - 3 * HOUR // 2
    clock.wall += YEARS
    assert stamps.now() == T0 + 3 * HOUR
    assert not caplog.records


def test_a_clock_that_is_a_little_behind_makes_stamps_wait(clock):
    stamps = Stamps(clock)
    assert stamps.now() == T0
    clock.wall -= JUMP_MS
    clock.run(stamps, JUMP_MS, step=TICK)
    assert stamps.now() == T0
    clock.run(stamps, TICK, step=TICK)
    assert stamps.now() == T0 + TICK


def test_stamps_wait_again_when_the_clock_has_come_near(clock):
    stamps = Stamps(clock)
    assert stamps.now() == T0
    clock.wall -= JUMP_MS + 10_000
    clock.run(stamps, 19_800, step=TICK)
    assert stamps.now() == T0 + 9_900
    clock.run(stamps, JUMP_MS, step=TICK)
    assert stamps.now() == T0 + 9_900
    clock.run(stamps, 200, step=TICK)
    assert stamps.now() == T0 + 10_000 == clock.wall


def test_what_waited_before_a_leadership_counts_for_nothing(clock):
    """Its log is ahead of its clock since it has read the log, not since it was started."""
    stamps = Stamps(clock)
    clock.monotonic += HOUR
    stamps.carry_on(T0 + HOUR)
    stamps.tick()
    assert stamps.now() == T0 + HOUR


def waits_for(clock, delay_ms):
    """Return how long what was stored as the clock was set back by hours waits for ``delay_ms``."""
    stamps = Stamps(clock)
    clock.run(stamps, HOUR)
    stamps.now()
    clock.wall -= 5 * HOUR
    due_ms, begun_ms = stamps.now() + delay_ms, clock.monotonic
    while stamps.now() < due_ms and clock.monotonic < begun_ms + HOUR:
        clock.run(stamps, TICK, step=TICK)
    return clock.monotonic - begun_ms


@pytest.mark.parametrize("delay_ms", [1_000, 60_000])
def test_what_waits_by_stamps_does_not_wait_for_the_clock(clock, delay_ms):
    assert waits_for(clock, delay_ms) == 2 * delay_ms, "not early, and twice as long at most"


def test_planted_stamps_that_stand_still_are_found_here(clock):
    with planted(BY_TESTS["stamps-stand-still-as-a-clock-is-set-back"]):
        assert waits_for(clock, 1_000) == HOUR


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
    world.store.writer.propose_state("k", b"", lambda status: None)
    clock.wall -= YEARS
    clock.wall += 10
    world.put()
    return [stored(world, index) for index in range(1, 5)]


def test_messages_and_state_are_stamped_so():
    assert stamps_around_a_leap() == [T0, T0, T0, T0 + 10]


def test_planted_stamps_that_follow_a_leap_are_found_here():
    with planted(BY_TESTS["stamps-follow-a-leap"]):
        assert stamps_around_a_leap() == [T0, T0 + YEARS, T0 + YEARS, T0 + YEARS]


# What the others say


class Group:
    """A majority that says something, or nothing."""

    def __init__(self, correction=None):
        self.correction = correction

    def correction_ms(self):
        return self.correction


def grouped(clock, correction=None):
    stamps = Stamps(clock)
    stamps.group = Group(correction)
    return stamps


DAYS = 100 * 24 * HOUR


@pytest.mark.parametrize("wrong", [DAYS, -DAYS])
def test_a_majority_corrects_a_clock_that_was_wrong_from_the_start(clock, wrong):
    clock.wall += wrong
    stamps = grouped(clock)
    stamps.carry_on(T0 - HOUR)
    assert stamps.now() <= T0 - HOUR + JUMP_MS or wrong < 0
    stamps.group.correction = -wrong
    stamps.tick()
    assert stamps.now() == T0
    assert stamps.status()["clock_correction_ms"] == -wrong
    clock.wall, stamps.group.correction = T0 + 1_000, 0
    clock.monotonic += 1_000
    stamps.tick()
    assert stamps.now() == T0 + 1_000


def test_a_leader_that_has_heard_nobody_waits_a_moment(clock):
    stamps = grouped(clock)
    stamps.carry_on(T0 - DAYS)
    assert stamps.now() == T0 - DAYS
    clock.run(stamps, UNHEARD_MS - 1_000, step=1_000)
    assert stamps.now() == T0 - DAYS + UNHEARD_MS - 1_000
    clock.run(stamps, 1_000, step=1_000)
    assert stamps.now() == clock.wall
    stamps.carry_on(T0 - DAYS)
    assert stamps.now() == clock.wall, "only at its first leadership"


def test_a_leader_that_has_heard_the_others_does_not_wait(clock):
    stamps = grouped(clock, 0)
    stamps.tick()
    stamps.carry_on(T0 - DAYS)
    assert stamps.now() == T0


def heals(clock, correction):
    stamps = grouped(clock, correction)
    stamps.carry_on(T0 + YEARS)
    assert stamps.now() == T0 + YEARS
    stamps.tick()
    return stamps.now() == T0


def test_a_poisoned_log_heals_once_a_majority_agrees_on_the_time(clock, caplog):
    assert heals(clock, 0)
    assert "event=stamps_healed" in caplog.text
    assert not heals(TwoClocks(), None)
    with planted(BY_TESTS["poisoned-stamps-stay"]):
        assert not heals(TwoClocks(), 0)


def test_stamps_a_little_ahead_wait_for_the_time(clock):
    stamps = grouped(clock, 0)
    stamps.carry_on(T0 + HEAL_MS)
    stamps.tick()
    assert stamps.now() == T0 + HEAL_MS


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=30),
    st.integers(0, 30),
    st.integers(1, 8),
    st.integers(-5, 70),
)
@settings(max_examples=300, deadline=None)
def test_a_search_by_time_in_a_healed_queue_skips_nothing(steps, at, poisoned, wanted):
    """Messages stored at ``wanted`` or later are never before what the search answers."""
    true, now = [], 0
    for step in steps:
        now += step % 4
        true.append(now)
    stored = [t + 1_000 if at <= i < at + poisoned else t for i, t in enumerate(true)]
    low, high = 0, len(stored)
    while low < high:  # as `Reader.offset_by_time` does
        middle = (low + high) // 2
        if stored[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    right = next((i for i, t in enumerate(true) if t >= wanted), len(true))
    assert low <= right or not any(t < 1_000 for t in stored[right:low])

"""Search by time (spec/disk.md 5.3) against a model that looks at every message."""

from hypothesis import given
from hypothesis import strategies as st

from store.results import Boundary
from tests.unit.store.fakes import World

UNITS_PER_FILE = 10  # of 200 bytes, as the fakes have it
TIMES = st.lists(st.integers(10, 40), min_size=1, max_size=35).map(sorted)


def timed(times, dropped):
    """Return a store whose messages have these times; the first ``dropped`` are gone."""
    world = World().begin()
    world.node.lead()
    world.clock.now = 0
    for time in times:
        world.clock.now = time
        stamps = world.store._commit_log.stamps
        stamps.last = min(time, stamps.last)
        world.put()
    world.node.commit()
    if dropped:
        world.store.log_start.advance_to(world.answers[dropped][3])
    return world.store


def nearest(times, dropped, timestamp):
    """Return all that 4.9 may answer: it takes one file, and in it the nearest, the earlier of two.

    Of several messages with exactly that time it takes whichever its halving meets.
    """
    kept = range(dropped, len(times))
    files = [
        [n for n in kept if n // UNITS_PER_FILE == number]
        for number in range(len(times) // UNITS_PER_FILE + 1)
    ]
    files = [file for file in files if file]
    file = next((file for file in files if times[file[-1]] >= timestamp), files[-1])
    exact = {n for n in file if times[n] == timestamp}
    if exact:
        return exact
    before = [n for n in file if times[n] < timestamp]
    after = [n for n in file if times[n] > timestamp]
    if not before:
        return {after[0]}
    if not after:
        return {before[-1]}
    is_later = timestamp - times[before[-1]] > times[after[0]] - timestamp
    return {after[0] if is_later else before[-1]}


@given(TIMES, st.integers(0, 50), st.integers(0, 34))
def test_without_a_boundary_it_is_as_4_9_does_it(times, timestamp, dropped):
    dropped = min(dropped, len(times) - 1)
    store = timed(times, dropped)
    assert store.reader.offset_by_time("t", 0, timestamp) in nearest(times, dropped, timestamp)


@given(TIMES, st.integers(0, 50), st.integers(0, 34))
def test_with_a_boundary_it_is_as_5_does_it(times, timestamp, dropped):
    dropped = min(dropped, len(times) - 1)
    store = timed(times, dropped)
    kept = range(dropped, len(times))
    lower = store.reader.offset_by_time("t", 0, timestamp, Boundary.LOWER)
    assert lower == next((n for n in kept if times[n] >= timestamp), len(times))
    upper = store.reader.offset_by_time("t", 0, timestamp, Boundary.UPPER)
    assert upper == next((n for n in reversed(kept) if times[n] <= timestamp), 0)


@given(TIMES)
def test_a_time_after_all_and_one_before_all(times):
    store = timed(times, 0)
    last = len(times) - 1
    assert store.reader.offset_by_time("t", 0, 10**15) == last
    assert store.reader.offset_by_time("t", 0, 10**15, Boundary.LOWER) == last + 1
    assert store.reader.offset_by_time("t", 0, 10**15, Boundary.UPPER) == last
    for boundary in (None, Boundary.LOWER, Boundary.UPPER):
        assert store.reader.offset_by_time("t", 0, -(10**15), boundary) == 0
        assert store.reader.offset_by_time("t", 1, 20, boundary) == 0
    assert store.reader.earliest_store_time("t", 0) == times[0]
    assert store.reader.earliest_store_time("t", 1) == -1


def test_a_queue_of_many_files_is_not_asked_for_the_time_of_each(monkeypatch):
    """Each question may cost a read of the disk, in which nobody else is served."""
    times = range(100, 100 + 50 * UNITS_PER_FILE)
    store = timed(times, 0)
    body_at, asked = store._log.body_at, []
    monkeypatch.setattr(
        store.reader._log, "body_at", lambda *place: asked.append(place) or body_at(*place)
    )
    for timestamp in (0, 100, 333, 590, 10**15):
        asked.clear()
        found = store.reader.offset_by_time("t", 0, timestamp)
        assert times[found] == min(max(timestamp, times[0]), times[-1])
        assert len(asked) <= 6 + 4

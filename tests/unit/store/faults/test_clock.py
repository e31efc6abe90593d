"""A wall clock that jumps, both ways, while sending and between lives: the log's own time does not.

Timestamps never fall along a log, so that a search by time finds what it found before the jump,
and messages are as old for retention as they were when they came.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.results import Boundary
from store.write.stamps import Stamps
from tests.unit.store.faults.crashes import check_service
from tests.unit.store.faults.damage import disk_of
from tests.unit.store.faults.test_crash_anywhere import MODES
from tests.unit.store.faults.world import QUEUE_FILE, Cluster, no_hang

FAULTS = settings(settings.get_profile("faults"), max_examples=40)
HOUR = 3_600_000
FILE_UNITS = QUEUE_FILE // 20
JUMPS = st.one_of(
    st.integers(-100 * 24 * HOUR, 100 * 24 * HOUR), st.sampled_from((-1, 1, -HOUR, HOUR, 0))
)
STEPS = st.lists(
    st.tuples(JUMPS, st.integers(1, 8), st.sampled_from(("send", "stop", "kill"))),
    min_size=2,
    max_size=8,
)


def live(cluster, steps):
    """Send between jumps of the clock, and begin new lives."""
    assert cluster.start() is None
    for number, (jump, count, end) in enumerate(steps):
        cluster.hosts["n0"].clock.jump(jump)
        for k in range(count):
            cluster.put("t", 0, b"%d.%d" % (number, k))
            cluster.run_for(Random(number * 100 + k).choice((0, 1, 30)))
        if end == "stop":
            assert cluster.stop() is None
        elif end == "kill":
            cluster.kill()
        if end != "send":
            assert cluster.start() is None


def search(stamps, when):
    """Return what LOWER and UPPER must find among stamps that never fall."""
    lower = sum(1 for stamp in stamps if stamp < when)
    upper = max(0, sum(1 for stamp in stamps if stamp <= when) - 1)
    return lower, upper


def least_distance(stamps, when):
    """Return how near a search of RocketMQ 4.9 comes, which looks into one queue file."""
    files = [stamps[at : at + FILE_UNITS] for at in range(0, len(stamps), FILE_UNITS)]
    chosen = next((file for file in files if file[-1] >= when), files[-1])
    return min(abs(stamp - when) for stamp in chosen)


def check(steps, *, raft):
    cluster = Cluster({"n0": disk_of({})}, raft=raft)
    with no_hang():
        try:
            live(cluster, steps)
            queue = check_service(cluster)["t", 0]
            stamps = [message.store_timestamp for message in queue.values()]
            assert stamps == sorted(stamps)
            store = cluster.store()
            for when in {*stamps, *(stamp + 1 for stamp in stamps), stamps[0] - 1}:
                lower, upper = search(stamps, when)
                assert store.reader.offset_by_time("t", 0, when, Boundary.LOWER) == lower
                assert store.reader.offset_by_time("t", 0, when, Boundary.UPPER) == upper
                nearest = stamps[store.reader.offset_by_time("t", 0, when)]
                assert abs(nearest - when) == least_distance(stamps, when)
            segments = cluster.brokers["n0"]._mode.retained.segments()
            closed = [segment.closed_ms for segment in segments if segment.closed_ms is not None]
            assert closed == sorted(closed), "a segment in front counts as younger"
        finally:
            cluster.close()


@pytest.mark.parametrize("raft", MODES)
def test_timestamps_never_fall_and_searches_by_time_find_the_same(raft):
    @FAULTS
    @given(STEPS)
    def jump(steps):
        check(steps, raft=raft)

    jump()


@pytest.mark.parametrize("raft", MODES)
def test_a_store_that_believes_the_clock_would_be_found(raft, monkeypatch):
    monkeypatch.setattr(Stamps, "now", lambda stamps: stamps._wall_ms())
    with pytest.raises(AssertionError):
        check([(0, 5, "send"), (-HOUR, 5, "send")], raft=raft)

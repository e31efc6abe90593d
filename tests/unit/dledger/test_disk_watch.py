"""A disk that hangs is noticed at the limit, and so is its coming back."""

import pytest

from dledger.disk.watch import DiskWatch
from mutants.patches import BY_TESTS
from mutants.planting import planted

HANG_MS = 100
TICK_MS = 10


class Worker:
    """One that has been at it for as long as the test says."""

    def __init__(self):
        self.ms = 0

    def waiting_ms(self):
        return self.ms


class Clock:
    """It goes on when the test says."""

    def __init__(self):
        self.ms = 5_000

    def monotonic_ms(self):
        return self.ms


def looks(at, hang_ms=HANG_MS):
    """What a watch says at each look: ticks before it, how long the two workers have waited."""
    clock, log, votes = Clock(), Worker(), Worker()
    watch = DiskWatch("n0", hang_ms, TICK_MS, clock)
    clock.ms += 60_000  # it is made long before it is started
    watch.start(log, votes)
    told = []
    for ticks, log.ms, votes.ms in at:
        clock.ms += ticks * TICK_MS
        told.append((watch.look(), watch.is_hung))
    return told


def test_a_disk_hangs_from_the_limit_until_it_answers():
    at = [(1, 0, 0), (1, 99, 0), (1, 0, 100), (1, 0, 500), (1, 99, 99), (1, 0, 0)]
    assert looks(at) == [
        (False, False), (False, False), (True, True), (False, True), (True, False), (False, False),
    ]  # fmt: skip


def test_a_watch_that_notices_nothing_is_seen():
    with planted(BY_TESTS["hung-disk-not-noticed"]), pytest.raises(AssertionError):
        test_a_disk_hangs_from_the_limit_until_it_answers()


def test_a_process_that_stood_still_does_not_blame_its_disk():
    """What was under way has ended meanwhile, and is heard of after this look."""
    assert looks([(1, 5, 0), (300, 3_005, 0), (1, 0, 0)]) == [(False, False)] * 3
    # It has not ended: the disk hangs.
    assert looks([(1, 5, 0), (300, 3_005, 0), (1, 3_015, 0)])[-1] == (True, True)


def test_a_limit_of_less_than_a_few_ticks_is_noticed():
    assert looks([(1, 5, 0), (1, 15, 0), (1, 25, 0)], hang_ms=10)[-1] == (False, True)


def test_a_watch_that_takes_a_stall_for_a_hung_disk_is_seen():
    with planted(BY_TESTS["stall-taken-for-a-hung-disk"]), pytest.raises(AssertionError):
        test_a_process_that_stood_still_does_not_blame_its_disk()

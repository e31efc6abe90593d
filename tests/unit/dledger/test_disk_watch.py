"""A disk that hangs is noticed at the limit, and so is its coming back."""

import pytest

from dledger.disk.watch import DiskWatch
from mutants.patches import BY_TESTS
from mutants.planting import planted


class Worker:
    """One that has been at it for as long as the test says."""

    def __init__(self):
        self.ms = 0

    def waiting_ms(self):
        return self.ms


def test_a_disk_hangs_from_the_limit_until_it_answers():
    watch, log, votes = DiskWatch("n0", 100), Worker(), Worker()
    watch.start(log, votes)
    told = []
    for log.ms, votes.ms in ((0, 0), (99, 0), (0, 100), (0, 500), (99, 99), (0, 0)):
        told.append((watch.look(), watch.is_hung))
    assert told == [
        (False, False), (False, False), (True, True), (False, True), (True, False), (False, False),
    ]  # fmt: skip


def test_a_watch_that_notices_nothing_is_seen():
    with planted(BY_TESTS["hung-disk-not-noticed"]), pytest.raises(AssertionError):
        test_a_disk_hangs_from_the_limit_until_it_answers()

"""Group commit: one sync at a time, and each covers all that was written before it began."""

import pytest

from dledger.segments.sync import GroupSync


class Log:
    """Counts what is written and what is durable; its thread runs when told to."""

    def __init__(self):
        self.written = self.taken = self.durable = 0
        self.calls = []
        self.waiting = []
        self.syncs = GroupSync(take=self.take, sync=self.sync, end=self.end)
        self.syncs.start(self, lambda end: end())

    def write(self):
        self.written += 1

    def take(self):
        if self.taken == self.written:
            return None
        self.taken = self.written
        return self.taken

    def sync(self, upto):
        self.calls.append(upto)

    def end(self, upto):
        self.durable = upto

    def submit(self, work, then):
        self.waiting.append((work, then))

    def run(self):
        work, then = self.waiting.pop(0)
        work()
        then()


@pytest.fixture
def log():
    return Log()


def test_sync_covers_what_was_written_before_it_began(log):
    log.write()
    log.write()
    assert log.syncs.begin()
    log.write()
    assert log.syncs.begin()
    assert len(log.waiting) == 1
    log.run()
    assert (log.calls, log.durable) == ([2], 2)
    assert log.syncs.begin()
    log.run()
    assert (log.calls, log.durable) == ([2, 3], 3)
    assert not log.syncs.begin()


def test_end_repeats_the_sync_that_was_under_way_and_adds_the_rest(log):
    log.write()
    log.syncs.begin()
    log.write()
    log.syncs.save_all()
    assert (log.calls, log.durable) == ([1, 2], 2)
    log.syncs.save_all()
    assert log.calls == [1, 2]

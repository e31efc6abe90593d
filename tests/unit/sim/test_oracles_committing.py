"""A consumer commits what is its own, and where it is since it last moved; it moves when sure."""

import asyncio
from types import SimpleNamespace

import pytest

from ledgermq.client import MessageQueue, PullStatus
from ledgermq.client.process_queue import ProcessQueue
from sim.oracles.base import Findings
from sim.oracles.committing import AT_ONCE, LOST, PATIENCE_MS, STALE, Committing

QUEUE = MessageQueue("orders", "b", 0)


class Push:
    """A consumer that does as it is told, of one queue that it took at 5 and has pulled up to 9."""

    client_id = "c"

    def __init__(self):
        self.now_ms = 0
        self.clock = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        self.jumps_to = None
        self.assignment = SimpleNamespace(_hold=self.hold, _held={}, move=self.move)
        self.api = SimpleNamespace(commit_offset=self.commit)
        self.findings = Findings()
        Committing(self.findings).follow(self)
        self.assignment._hold(QUEUE, 5)
        self.queue.put([], 9)

    @property
    def queue(self):
        return self.assignment._held[QUEUE].process_queue

    def hold(self, queue, offset):
        puller = SimpleNamespace(_take=self.take, _on_illegal_offset=self.on_illegal)
        held = SimpleNamespace(process_queue=ProcessQueue(queue, offset), puller=puller)
        self.assignment._held[queue] = held
        return held

    def move(self, offsets):
        for queue, offset in offsets.items():
            self.assignment._held[queue].process_queue.move(offset)

    async def commit(self, addr, queue, offset, claim):
        pass

    async def take(self, result, t_start_ns, addr):
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await self.assignment._held[QUEUE].puller._on_illegal_offset(result)

    async def on_illegal(self, result):
        if self.jumps_to is not None:
            self.queue.reset(self.jumps_to)

    def hear(self, status, after_ms=0):
        self.now_ms += after_ms
        result = SimpleNamespace(status=status, min_offset=0, max_offset=4)
        asyncio.run(self.assignment._held[QUEUE].puller._take(result, 0, "a"))
        return self.found

    def commits(self, offset):
        asyncio.run(self.api.commit_offset("a", QUEUE, offset))
        return self.found

    @property
    def found(self):
        return None if self.findings.first is None else self.findings.first.oracle


@pytest.mark.parametrize(("offset", "found"), [(5, None), (9, None), (4, STALE), (10, STALE)])
def test_what_is_committed_lies_between_where_it_began_and_where_it_pulls(offset, found):
    assert Push().commits(offset) == found


@pytest.mark.parametrize(("offset", "found"), [(2, None), (7, STALE)])
def test_who_was_moved_back_commits_nothing_from_before(offset, found):
    push = Push()
    push.assignment.move({QUEUE: 2})
    assert push.commits(offset) == found


@pytest.mark.parametrize(("offset", "found"), [(20, None), (9, STALE)])
def test_who_was_moved_on_commits_nothing_from_before(offset, found):
    push = Push()
    push.assignment.move({QUEUE: 20})
    assert push.commits(offset) == found


def test_a_queue_that_is_lost_is_not_committed():
    push = Push()
    push.queue.lost = True
    assert push.commits(9) == LOST


def test_a_queue_that_was_given_back_is_not_committed():
    push = Push()
    del push.assignment._held[QUEUE]
    assert push.commits(9) == LOST


def test_who_is_told_twice_may_move():
    push = Push()
    assert push.hear(PullStatus.OFFSET_ILLEGAL) is None
    push.jumps_to = 3
    assert push.hear(PullStatus.OFFSET_ILLEGAL, PATIENCE_MS) is None
    assert push.commits(3) is None


def test_who_is_told_once_may_not_move():
    push = Push()
    push.jumps_to = 3
    assert push.hear(PullStatus.OFFSET_ILLEGAL) == AT_ONCE


def test_an_answer_that_has_none_of_it_begins_the_patience_anew():
    push = Push()
    push.hear(PullStatus.OFFSET_ILLEGAL)
    push.hear(PullStatus.NO_NEW_MESSAGE, PATIENCE_MS)
    push.jumps_to = 3
    assert push.hear(PullStatus.OFFSET_ILLEGAL) == AT_ONCE


def test_a_reset_that_names_a_legal_offset_is_followed_at_once():
    push = Push()
    push.queue.reset(2)
    push.jumps_to = 3
    assert push.hear(PullStatus.OFFSET_ILLEGAL) is None

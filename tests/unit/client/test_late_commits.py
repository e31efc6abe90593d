"""A commit that waited while its queue was given back is not sent: another member may have it."""

import asyncio
from types import SimpleNamespace

import pytest

from ledgermq.client import MessageQueue
from ledgermq.client.assignment import Assignment, Held
from ledgermq.client.process_queue import ProcessQueue
from mutants.patches import ALL, BY_TESTS
from mutants.planting import planted

QUEUE = MessageQueue("orders", "b", 0)


class Host:
    """A consumer whose broker takes what it is told."""

    def __init__(self):
        self.sent = []
        self.local = self.locks = None
        self.claims = False
        self.clock = SimpleNamespace(monotonic_ns=lambda: 0)
        self.leaders = SimpleNamespace(call=self.call)
        self.api = SimpleNamespace(commit_offset=self.commit_offset)

    async def call(self, _queue, ask, *, slaves):
        assert slaves
        await ask("addr")

    async def commit_offset(self, _addr, _queue, offset, _claim):
        self.sent.append(offset)
        await asyncio.sleep(0)

    async def settled(self, _process_queue):
        return True


async def commits(*, after_the_release):
    """Have two commits wait for each other, the first one of a queue that is given back."""
    host = Host()
    assignment = Assignment(host, None)
    process_queue = ProcessQueue(QUEUE, 7)
    process_queue.begin()
    task = asyncio.ensure_future(asyncio.sleep(60))
    held = assignment._held[QUEUE] = Held(process_queue, SimpleNamespace(), task)
    if after_the_release:
        releasing = asyncio.ensure_future(assignment._release(QUEUE))
        while not host.sent:
            await asyncio.sleep(0)
        await asyncio.gather(releasing, assignment._commit(held))
    else:
        await asyncio.gather(assignment._commit(held), assignment._commit(held))
        task.cancel()
    return host.sent


@pytest.mark.parametrize(("after_the_release", "sent"), [(False, [7, 7]), (True, [7])])
def test_who_has_given_a_queue_back_commits_nothing_more(after_the_release, sent):
    assert asyncio.run(commits(after_the_release=after_the_release)) == sent


def is_due_after_a_move():
    """Whether an offset is due that was committed before the queue was set back."""
    queue = ProcessQueue(QUEUE, 0)
    queue.put([], 2)
    held = Held(queue, None, None)
    held.committed, held.taken_by = 2, "addr"
    assert not held.is_due("addr")
    queue.reset(0)
    queue.put([], 2)
    return held.is_due("addr")


def test_what_was_committed_before_a_move_is_committed_again():
    assert is_due_after_a_move()
    with planted(ALL["committed-before-the-move-counts"]):
        assert not is_due_after_a_move()


class Observer:
    """Notes what it is told of commits."""

    def __init__(self):
        self.told = []

    def on_commit(self, _queue, offset, ok, _t_start_ns, _t_end_ns):
        self.told.append((offset, ok))


async def told_of_a_commit_that_is_not_sent():
    """Have a commit fail and the queue move before it is tried again; return what is told."""
    host, observer = Host(), Observer()
    assignment = Assignment(host, observer)
    process_queue = ProcessQueue(QUEUE, 7)
    process_queue.begin()
    held = assignment._held[QUEUE] = Held(process_queue, SimpleNamespace(), SimpleNamespace())

    async def call(_queue, ask, *, slaves):
        assert slaves
        process_queue.move(3)  # While the first try failed.
        await ask("addr")

    host.leaders = SimpleNamespace(call=call)
    await assignment._commit(held)
    assert host.sent == []
    host.leaders = SimpleNamespace(call=host.call)
    await assignment._commit(held)
    assert host.sent == [3]
    return observer.told


def test_a_commit_that_is_not_sent_is_told_as_no_success():
    assert asyncio.run(told_of_a_commit_that_is_not_sent()) == [(7, False), (3, True)]
    with planted(BY_TESTS["unsent-commit-told-as-done"]):
        assert asyncio.run(told_of_a_commit_that_is_not_sent()) == [(7, True), (3, True)]


async def sent_where_a_tool_moves_it_meanwhile(*, is_tried_again):
    """Move a queue amid its last commit, before it is sent or behind; return what is sent."""
    host = Host()
    assignment = Assignment(host, None)
    process_queue = ProcessQueue(QUEUE, 7)
    process_queue.begin()
    task = asyncio.ensure_future(asyncio.sleep(60))
    assignment._held[QUEUE] = Held(process_queue, SimpleNamespace(), task)

    async def call(_queue, ask, *, slaves):
        assert slaves
        host.leaders = SimpleNamespace(call=host.call)
        if not is_tried_again:
            await ask("addr")
        assignment.move({QUEUE: 3})
        if is_tried_again:
            await ask("addr")

    host.leaders = SimpleNamespace(call=call)
    assert await assignment._release(QUEUE)
    assert assignment.queues == []
    return host.sent


@pytest.mark.parametrize(("is_tried_again", "sent"), [(True, [3]), (False, [7, 3])])
def test_where_a_tool_has_moved_a_queue_is_committed_as_it_is_given_away(is_tried_again, sent):
    def told():
        return asyncio.run(sent_where_a_tool_moves_it_meanwhile(is_tried_again=is_tried_again))

    assert told() == sent
    with planted(BY_TESTS["moved-as-it-is-given-away"]):
        assert told() == sent[:-1]


async def commits_beside_a_broker_that_stands_still():
    """Commit queues of a broker that does not answer, and one of another; return what is sent."""
    host = Host()
    assignment = Assignment(host, None)

    async def call(queue, ask, *, slaves):
        assert slaves
        await (asyncio.Event().wait() if queue.broker_name == "a" else ask("addr"))

    host.leaders = SimpleNamespace(call=call)
    for queue in [*(MessageQueue("orders", "a", number) for number in range(40)), QUEUE]:
        process_queue = ProcessQueue(queue, 7)
        process_queue.begin()
        assignment._held[queue] = Held(process_queue, SimpleNamespace(), SimpleNamespace())
    committing = asyncio.ensure_future(assignment.commit_all())
    await asyncio.sleep(0.05)
    committing.cancel()
    await asyncio.gather(committing, return_exceptions=True)
    return host.sent


def test_a_broker_that_stands_still_keeps_no_commit_from_the_others():
    assert asyncio.run(commits_beside_a_broker_that_stands_still()) == [7]
    with planted(BY_TESTS["slots-of-all-brokers"]):
        assert asyncio.run(commits_beside_a_broker_that_stands_still()) == []

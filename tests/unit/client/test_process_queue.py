"""The committed offset is the smallest unfinished one, whatever order messages finish in."""

from hypothesis import given
from hypothesis import strategies as st

from ledgermq.client.config import ConsumeOptions
from ledgermq.client.message import MessageQueue
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.remoting.protocol.message import MessageExt
from mutants.patches import BY_TESTS
from mutants.planting import planted

QUEUE = MessageQueue("t", "b", 0)


def message(offset: int, size: int = 1) -> MessageExt:
    return MessageExt(
        "t", 0, 0, 0, offset, offset * 100, 0, b"", 0, b"", 0, 0, b"x" * size, b""
    )  # fmt: skip


def test_nothing_is_committed_before_the_first_pull():
    assert ProcessQueue(QUEUE, 7).maybe_commit_offset() is None


def test_commit_is_the_smallest_unfinished_offset():
    queue = ProcessQueue(QUEUE, 5)
    messages = [message(i) for i in (5, 6, 7)]
    queue.put(messages, 8)
    queue.finish(messages[1:2])
    assert queue.maybe_commit_offset() == 5
    queue.finish(messages[:1])
    assert queue.maybe_commit_offset() == 7
    queue.finish(messages[2:])
    assert queue.maybe_commit_offset() == 8


def test_commit_follows_filtered_messages_when_nothing_is_left():
    queue = ProcessQueue(QUEUE, 5)
    queue.put([], 40)
    assert queue.maybe_commit_offset() == 40


def test_flow_control_by_count_bytes_and_span():
    options = ConsumeOptions(max_cached_messages=3, max_cached_bytes=100, max_offset_span=50)
    queue = ProcessQueue(QUEUE, 0)
    first = [message(i) for i in range(4)]
    queue.put(first[:3], 3)
    assert queue.maybe_flow_control(options) is None
    queue.put(first[3:], 4)
    assert queue.maybe_flow_control(options) == "4 messages cached"
    queue.finish(first[1:3])
    queue.put([message(60)], 61)
    assert queue.maybe_flow_control(options) == "offset span 60"
    queue.finish([first[0], first[3]])
    assert queue.maybe_flow_control(options) is None
    queue.put([message(61, size=100)], 62)
    assert queue.maybe_flow_control(options) == "101 bytes cached"


def test_what_finishes_after_a_reset_is_ignored():
    queue = ProcessQueue(QUEUE, 0)
    old = [message(0), message(1)]
    queue.put(old, 2)
    queue.reset(10)
    queue.finish(old)
    assert (queue.maybe_commit_offset(), queue.cached_count) == (10, 0)


def finish_what_was_lost() -> ProcessQueue:
    """A log has lost its end from offset 2 on; others come there, while the first are worked at."""
    queue = ProcessQueue(QUEUE, 0)
    lost = [message(i) for i in range(5)]
    queue.put(lost, 5)
    queue.reset(2)
    queue.put([message(2, size=7), message(3)], 4)
    queue.finish(lost)
    return queue


def test_what_was_lost_finishes_nothing_that_came_in_its_place():
    queue = finish_what_was_lost()
    assert (queue.maybe_commit_offset(), queue.cached_count, queue.cached_bytes) == (2, 2, 8)
    with planted(BY_TESTS["finished-by-offset-alone"]):
        assert finish_what_was_lost().maybe_commit_offset() == 4


@given(st.lists(st.integers(1, 3), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_commit_never_passes_an_unfinished_message(gaps, rng):
    queue = ProcessQueue(QUEUE, 0)
    offsets = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    messages = [message(offset) for offset in offsets]
    queue.put(messages, offsets[-1] + 1)
    rng.shuffle(messages)
    unfinished, last = set(offsets), 0
    for one in messages:
        queue.finish([one])
        unfinished.discard(one.queue_offset)
        commit = queue.maybe_commit_offset()
        assert commit == min(unfinished, default=offsets[-1] + 1)
        assert commit >= last
        last = commit

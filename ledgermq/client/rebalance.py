"""How the queues of a topic are shared between the consumers of a group.

Pure: every consumer computes its own part from the same two sorted lists, so no coordinator is
needed; two consumers that see different lists overlap until the next rebalance.
Source: AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle.
"""

from collections.abc import Callable, Sequence

from ledgermq.client.message import MessageQueue

Allocate = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]


def allocate_averagely(
    consumer_id: str, queues: Sequence[MessageQueue], consumer_ids: Sequence[str]
) -> list[MessageQueue]:
    """Return the contiguous run of queues of ``consumer_id`` (strategy AVG).

    With ``n`` queues and ``k`` consumers the first ``n mod k`` get one more than the others.
    A consumer that is not in the list gets nothing.
    """
    ordered, ids = sorted(queues), sorted(consumer_ids)
    if consumer_id not in ids:
        return []
    index = ids.index(consumer_id)
    size, larger = divmod(len(ordered), len(ids))
    start = index * size + min(index, larger)
    return ordered[start : start + size + (index < larger)]


def allocate_by_circle(
    consumer_id: str, queues: Sequence[MessageQueue], consumer_ids: Sequence[str]
) -> list[MessageQueue]:
    """Return every ``k``-th queue, beginning at the consumer's index (strategy AVG_BY_CIRCLE)."""
    ordered, ids = sorted(queues), sorted(consumer_ids)
    if consumer_id not in ids:
        return []
    return ordered[ids.index(consumer_id) :: len(ids)]

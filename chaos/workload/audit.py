"""The auditor: after the last fault it reads every queue from its first to its last message.

It separates what the log holds from what the group was given: a message that the auditor finds and
the group never got was lost in delivery, not in storage. Source: spec/proof.md 3.0 (Auditor,
DRAINED).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from chaos.record import Recorder
from chaos.workload.consumer import delivery_row
from ledgermq.client import ClientConfig, MessageQueue, PullConsumer, PullStatus
from ledgermq.remoting.protocol.properties import RETRY_TOPIC
from ledgermq.runtime.clock import Clock

GROUP = "auditor"
EMPTY_POLLS = 2
PULL_COUNT = 256
BLOCK_MS = 200
_MARGIN_POLLS = 1_000
TOGETHER = 4
"""So many queues are read at a time."""


@dataclass(frozen=True, slots=True)
class QueueEnds:
    """First offset kept and next offset to be written of a queue."""

    min_off: int
    end_off: int


async def queue_ends(consumer: PullConsumer, topic: str) -> dict[MessageQueue, QueueEnds]:
    """Return the ends of all queues of a topic. Errors: ``RemotingError``."""
    queues = await consumer.fetch_subscribe_queues(topic)
    return {
        queue: QueueEnds(await consumer.min_offset(queue), await consumer.max_offset(queue))
        for queue in queues
    }


def auditor(namesrv_addrs: tuple[str, ...]) -> PullConsumer:
    """Return a consumer of a group of its own; it takes part in no rebalance."""
    config = ClientConfig(namesrv_addrs=namesrv_addrs, group=GROUP, instance_name=GROUP)
    return PullConsumer(config)


async def in_turns(
    queues: Iterable[MessageQueue], read: Callable[[MessageQueue], Awaitable[None]]
) -> None:
    """Read queues, `TOGETHER` of them at a time: at its end each waits for what does not come.

    Errors: that of the first that fails; the others are given up.
    """
    left = iter(queues)

    async def read_some() -> None:
        for queue in left:
            await read(queue)

    try:
        async with asyncio.TaskGroup() as readers:
            for _ in range(TOGETHER):
                readers.create_task(read_some())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors


async def audit_queue(
    consumer: PullConsumer,
    queue: MessageQueue,
    recorder: Recorder,
    clock: Clock,
    letters_of: str = "",
) -> tuple[QueueEnds, int]:
    """Read one queue to its end; return its ends and how many polls at the end were empty.

    ``letters_of``: the group whose dead letters lie there; they stand under the topic that they
    were sent to.

    Errors: ``RemotingError`` after the client's own retries.
    """
    ends = QueueEnds(await consumer.min_offset(queue), await consumer.max_offset(queue))
    offset, empty, polls = ends.min_off, 0, 0
    polls_max = ends.end_off - ends.min_off + _MARGIN_POLLS
    while empty < EMPTY_POLLS and polls < polls_max:
        polls += 1
        t0 = clock.monotonic_ns()
        result = await consumer.pull(queue, offset=offset, max_count=PULL_COUNT, block_ms=BLOCK_MS)
        t1 = clock.monotonic_ns()
        for pos, message in enumerate(result.messages):
            row = delivery_row(message, message.content())
            row |= {"op_id": polls, "pos": pos, "grp": GROUP, "consumer": GROUP, "auditor": True}
            row |= {"t_fetch_inv": t0, "t_recv": t1, "generation": 0}
            if letters_of:
                topic = message.maybe_property(RETRY_TOPIC) or message.topic
                row |= {"grp": letters_of, "topic": topic, "auditor": False}
                row |= {"is_dlq": True, "is_retry": False}
            recorder.write("deliveries", row)
        empty = 0 if result.messages else empty + 1
        if result.status is PullStatus.NO_NEW_MESSAGE and offset < ends.end_off:
            empty = 0  # the broker says that there is more: not the end
        offset = max(offset, result.next_offset)
    return ends, empty


def drain_rows(
    group: str, ends: Mapping[MessageQueue, QueueEnds], committed: Mapping[int, int], empty: int
) -> list[dict[str, object]]:
    """Return the ``drain`` rows: a queue is drained if the group committed all of it."""
    rows: list[dict[str, object]] = []
    for queue, end in sorted(ends.items()):
        read_to = committed.get(queue.queue_id, 0)
        rows.append(
            {
                "grp": group,
                "topic": queue.topic,
                "queue_id": queue.queue_id,
                "min_off": end.min_off,
                "end_off": end.end_off,
                "read_to": read_to,
                "empty_polls": empty,
                "drained": empty >= EMPTY_POLLS and read_to >= end.end_off,
            }
        )
    return rows

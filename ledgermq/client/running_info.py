"""What a consumer tells of itself to a tool that asks how it runs (307).

Looks at a consumer and changes nothing. Source: RocketMQ ConsumerRunningInfo, ProcessQueueInfo,
ConsumeStatus; DefaultMQPushConsumerImpl.consumerRunningInfo.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol

from ledgermq.client.config import ClientConfig, ConsumeOptions
from ledgermq.client.figures import Figures
from ledgermq.client.limits import STACKS_BYTES_MAX, TOOL_ROWS_MAX
from ledgermq.client.subscription import Subscription
from ledgermq.remoting.protocol.administration import (
    ConsumeFigures,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from ledgermq.remoting.protocol.bodies import QueueKey, queue_map
from ledgermq.runtime.clock import Clock

if TYPE_CHECKING:
    from ledgermq.client.assignment import Assignment, Held
    from ledgermq.client.queue_locks import QueueLocks

FRAMES_MAX = 24
"""Frames shown of a task."""


class RunningConsumer(Protocol):
    """The consumer, as a tool sees it."""

    CONSUME_TYPE: ClassVar[str]
    assignment: "Assignment"
    clock: Clock
    config: ClientConfig
    figures: Figures
    locks: "QueueLocks | None"
    options: ConsumeOptions

    @property
    def client_id(self) -> str:
        """The id under which brokers know it."""
        ...

    @property
    def started_wall_ms(self) -> int:
        """When it was started."""
        ...

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """What it subscribes to, by topic."""
        ...


def running_info(consumer: RunningConsumer, *, stacks: bool) -> ConsumerRunningInfo:
    """Return what ``consumer`` does, with the stacks of the loop's tasks if they are wanted."""
    held = sorted(consumer.assignment.held, key=lambda one: one.process_queue.queue)
    subscriptions = sorted(consumer.subscriptions.items())
    return ConsumerRunningInfo(
        jstack=_stacks(asyncio.all_tasks()) if stacks else None,
        mq_table=queue_map(
            (QueueKey(broker_name, queue_id, topic), _queue_info(consumer, one))
            for one in held[:TOOL_ROWS_MAX]
            for topic, broker_name, queue_id in [one.process_queue.queue]
        ),
        properties=_properties(consumer),
        status_table={
            topic: _figures(consumer, topic) for topic, _ in subscriptions[:TOOL_ROWS_MAX]
        },
        subscription_set=[one.to_wire() for _, one in subscriptions[:TOOL_ROWS_MAX]],
    )


def _properties(consumer: RunningConsumer) -> dict[str, str]:
    config, options = consumer.config, consumer.options
    found: dict[str, object] = {
        "PROP_CLIENT_VERSION": "V4_9_7",
        "PROP_CONSUMEORDERLY": str(options.orderly).lower(),
        "PROP_CONSUMER_START_TIMESTAMP": consumer.started_wall_ms,
        "PROP_CONSUME_TYPE": consumer.CONSUME_TYPE,
        "PROP_NAMESERVER_ADDR": ";".join(config.namesrv_addrs),
        "PROP_THREADPOOL_CORE_SIZE": options.concurrency,
        "consumeConcurrentlyMaxSpan": options.max_offset_span,
        "consumeFromWhere": options.consume_from.value,
        "consumeMessageBatchMaxSize": options.consume_batch_count,
        "consumerGroup": config.group,
        "instanceName": consumer.client_id.partition("@")[2],
        "maxReconsumeTimes": options.max_reconsume_times,
        "messageModel": options.model.value,
        "pullBatchSize": options.pull_batch_count,
        "pullThresholdForQueue": options.max_cached_messages,
        "pullThresholdSizeForQueue": options.max_cached_bytes >> 20,
        "suspendCurrentQueueTimeMillis": options.order_suspend_ms,
    }
    return {name: str(value) for name, value in found.items()}


def _queue_info(consumer: RunningConsumer, held: "Held") -> ProcessQueueInfo:
    one, clock = held.process_queue, consumer.clock
    wall_less_monotonic_ms = clock.wall_ms() - clock.monotonic_ms()

    def wall_ms(monotonic_ms: int | None) -> int:
        return 0 if monotonic_ms is None else wall_less_monotonic_ms + monotonic_ms

    locked_ms = None if consumer.locks is None else consumer.locks.maybe_locked_ms(one.queue)
    low, high = one.cached_span
    return ProcessQueueInfo(
        cached_msg_count=one.cached_count,
        cached_msg_max_offset=high,
        cached_msg_min_offset=low,
        cached_msg_size_in_mi_b=one.cached_bytes >> 20,
        commit_offset=one.position,
        droped=one.dropped,
        last_consume_timestamp=wall_ms(held.maybe_consumed_ms),
        last_lock_timestamp=wall_ms(locked_ms),
        last_pull_timestamp=wall_ms(held.puller.maybe_pulled_ms),
        locked=locked_ms is not None,
    )


def _figures(consumer: RunningConsumer, topic: str) -> ConsumeFigures:
    one, now_ms = consumer.figures.of(topic), consumer.clock.monotonic_ms()
    return ConsumeFigures(
        consume_failed_msgs=int(one.failed_hour.sums(now_ms).total),
        consume_failed_tps=one.failed.sums(now_ms).per_second,
        consume_ok_tps=one.ok.sums(now_ms).per_second,
        consume_rt=one.consume_ms.sums(now_ms).mean,
        pull_rt=one.pull_ms.sums(now_ms).mean,
        pull_tps=one.pulled.sums(now_ms).per_second,
    )


def _stacks(tasks: Iterable[asyncio.Task[object]]) -> str:
    """Return where tasks are: names of files and functions, no values; cut where it is long."""
    shown: list[str] = []
    left = int(STACKS_BYTES_MAX)
    for task in sorted(tasks, key=asyncio.Task.get_name):
        if left <= 0:
            break
        shown.append("\n".join([task.get_name(), *_frames(task.get_coro()), "", ""]))
        left -= len(shown[-1].encode("utf-8", "replace"))
    return "".join(shown).encode("utf-8", "replace")[:STACKS_BYTES_MAX].decode("utf-8", "ignore")


def _frames(awaited: object) -> Iterator[str]:
    """Return the frames of a coroutine, and of those that it waits for, the outermost first."""
    for _ in range(FRAMES_MAX):
        frame = getattr(awaited, "cr_frame", None)
        if frame is None:
            return
        yield f"    {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}"
        awaited = getattr(awaited, "cr_await", None)

"""What can become of messages, a chapter each: many lie side by side in one history.

A job takes seconds, whatever it is asked. Each chapter has a topic, a group, a producer and a time
of its own, and says which anomalies lie in it; `tests.spark.test_messages` asks for all at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.spark.generate import (
    MS,
    HistoryBuilder,
    Message,
    plant_aborted,
    plant_copy,
    plant_corrupt,
    plant_lost,
    plant_phantom,
)

Story = Callable[[HistoryBuilder], list[Message]]


@dataclass
class Chapter:
    """One story as it was told: its number, what it wants found, its messages."""

    number: int
    wanted: dict[str, int]
    only: Sequence[str] = ()
    """The checks that are asked of it; all where it is empty."""
    messages: list[Message] = field(default_factory=list)


def again(run: HistoryBuilder, message: Message, gap: int = 50 * MS, **row: Any) -> dict[str, Any]:
    run.clock = max(run.clock, message.delivery["t_recv"]) + gap
    return run.deliver(message, **row)


def told_apart(run: HistoryBuilder) -> list[Message]:
    messages = run.traffic(10)
    plant_phantom(run, messages[0])
    plant_corrupt(run, messages[1])
    plant_aborted(run, messages[2])
    return messages


def without_keys(run: HistoryBuilder) -> list[Message]:
    """At an acknowledged place it is a corrupt body, elsewhere a phantom."""
    messages = run.traffic(6)
    messages[2].delivery.update(msg_key=None, payload_run_id=None, body_hash=7, is_retry=True)
    nobody = Message(0, 0, 999, b"?" * 30, -1, 0, messages[0].send)
    run.deliver(nobody, msg_key=None, payload_run_id=None)
    return messages


def neither_phantom_nor_corrupt(run: HistoryBuilder) -> list[Message]:
    """Another run's message, a control topic, unknown hashes."""
    messages = run.traffic(6)
    plant_phantom(run, messages[2])
    run.tables["deliveries"][-1]["payload_run_id"] = "f" * 32
    plant_phantom(run, messages[2])
    run.tables["deliveries"][-1]["topic"] = "warm-up"
    messages[3].delivery["body_hash"] = None
    messages[4].send["body_hash"] = None
    return messages


def not_aborted(run: HistoryBuilder) -> list[Message]:
    """An unknown outcome; a refusal under a code that proves nothing."""
    messages = run.traffic(3)
    run.deliver(run.send(outcome="info", stored=True))
    run.deliver(run.send(outcome="fail", err_code=2, stored=True))
    return messages


def copies(run: HistoryBuilder) -> list[Message]:
    messages = run.traffic(6)
    plant_copy(run, messages[0])
    plant_copy(run, messages[1])
    messages[1].send["attempts"] = 2
    return messages


def retry_copy(run: HistoryBuilder) -> list[Message]:
    messages = run.traffic(6)
    run.deliver(messages[0], topic="%RETRY%billing", queue_offset=3, is_retry=True, reconsume=1)
    return messages


def causes(run: HistoryBuilder) -> list[Message]:
    messages = run.traffic(9, queue_id=0)
    # Everything so far is committed, so that "not committed yet" explains nothing.
    run.commit(0, 9, t=run.clock + 10 * MS)
    run.clock += 20 * MS
    run.add("acks", op_id=run.op(), grp=run.grp, kind="nack", msg_key=messages[0].key,
            t_inv=run.clock, t_cmp=run.clock + MS, outcome="ok", delay_ms=10)  # fmt: skip
    again(run, messages[0], reconsume=1, is_retry=True)
    run.add("acks", op_id=run.op(), grp=run.grp, kind="nack", msg_key=messages[1].key,
            t_inv=run.clock + 10 * MS, t_cmp=run.clock + 11 * MS, outcome="ok")  # fmt: skip
    again(run, messages[1])
    again(run, messages[2])  # unexplained
    again(run, messages[3], generation=2)
    again(run, messages[4], consumer="c1")
    again(run, messages[5])  # unexplained
    late = run.send(queue_id=0)
    run.deliver(late)
    again(run, late)  # unexplained: that nobody had committed it yet is no reason
    plant_copy(run, messages[7])
    messages[7].send["attempts"] = 2
    copy = run.logs["n0"][-1]
    again(run, messages[7], queue_offset=copy.queue_offset)
    return messages


def crash_and_change(run: HistoryBuilder) -> list[Message]:
    messages = run.traffic(4, queue_id=0)
    run.commit(0, 4, t=run.clock + 10 * MS)
    run.probe("n0", "leader", 1, run.clock)
    run.clock += 20 * MS
    crash = run.clock + 20 * MS
    run.fault("kill", ["consumer:c0"], crash, crash + MS)
    again(run, messages[0])
    run.clock += 1000 * MS
    first = run.deliver(messages[1], consumer="c9")
    run.clock += 10 * MS
    run.commit(0, 4)
    run.probe("n1", "leader", 2, first["t_recv"] + 20 * MS)
    run.clock = first["t_recv"] + 40 * MS
    run.deliver(messages[1], consumer="c9")
    return messages


def clean(run: HistoryBuilder) -> list[Message]:
    messages = run.traffic(10)
    run.send(outcome="info")
    run.deliver(run.send(outcome="info", stored=True))
    run.send(outcome="fail")
    return messages


def hole(run: HistoryBuilder) -> list[Message]:
    messages = run.traffic(8)
    run.fault("kill", ["n1"], messages[2].t, messages[2].t + MS)
    plant_lost(run, messages[2])
    return messages


def suffix(run: HistoryBuilder) -> list[Message]:
    messages = run.traffic(6)
    plant_lost(run, messages[-1])
    return messages


def two_groups(run: HistoryBuilder) -> list[Message]:
    """Each group owes each message of its topics, and of no others."""
    shipping, clicks = f"shipping-{run.pid}", f"clicks-{run.pid}"
    run.consumes[shipping] = {run.topic, clicks}
    messages = run.traffic(6)
    for message in messages:
        run.deliver(message, grp=shipping)
    for message in [run.send(topic=clicks) for _ in range(4)]:
        run.deliver(message, grp=shipping)
    plant_lost(run, messages[1])
    return messages


def read_to(run: HistoryBuilder, grp: str, low: int, end: int) -> None:
    for queue_id in range(2):
        run.add("drain", grp=grp, topic=run.topic, queue_id=queue_id, min_off=low, end_off=end,
                read_to=end, empty_polls=2, drained=True)  # fmt: skip


def no_loss(run: HistoryBuilder) -> list[Message]:
    """Removed by retention; begun later; in the dead letter queue."""
    messages = run.traffic(12)
    plant_lost(run, messages[0])
    plant_lost(run, messages[1])
    read_to(run, run.grp, 1, 6)
    # A group that began at the fourth place of each queue, and got everything from there on.
    late = f"late-{run.pid}"
    run.consumes[late] = {run.topic}
    read_to(run, late, 4, 6)
    for message in messages[8:]:
        run.deliver(message, grp=late)
    messages[4].delivery.update(is_dlq=True, topic=f"%DLQ%{run.grp}")
    return messages


def older_epoch(run: HistoryBuilder) -> list[Message]:
    messages = run.traffic(8, epoch=1)
    messages[6].send["epoch"] = 0
    plant_lost(run, messages[6])
    return messages


STORIES: dict[Story, Chapter] = {
    told_apart: Chapter(1, {"A5": 1, "A6": 1, "A7": 1, "A15": 1}),
    without_keys: Chapter(2, {"A5": 1, "A6": 1}, only=("A5", "A6")),
    neither_phantom_nor_corrupt: Chapter(3, {}, only=("A5", "A6")),
    not_aborted: Chapter(4, {}),
    copies: Chapter(5, {"A8": 1}),
    retry_copy: Chapter(6, {"A26": 1}),  # nobody had refused it
    causes: Chapter(7, {"A9": 3}, only=("A9",)),
    crash_and_change: Chapter(8, {}, only=("A9",)),
    clean: Chapter(10, {}),
    hole: Chapter(11, {"A1": 1}),
    suffix: Chapter(12, {"A1": 1}),
    two_groups: Chapter(15, {"A1": 1}),
    no_loss: Chapter(16, {}, only=("A1", "A5")),
    older_epoch: Chapter(17, {}),
}


def tell_all(run: HistoryBuilder) -> None:
    """Tell every story in one history."""
    for story, chapter in STORIES.items():
        chapter.messages = story(run.chapter(chapter.number))

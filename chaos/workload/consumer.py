"""A consumer process: one member of the group; records what it is given and what it commits.

A delivery is on record before the listener returns, so before its offset can be committed.

Run: ``python -m chaos.workload.consumer SPEC.json``.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from chaos.history.payload import body_hash, decode_body
from chaos.record import Recorder
from chaos.workload.requests import Replier
from chaos.workload.worker import WorkerSpec, run_worker, say, until_stopped
from ledgermq.client import (
    ClientConfig,
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    MessageExt,
    MessageModel,
    MessageQueue,
    PushConsumer,
    Sql92,
)
from ledgermq.runtime.clock import Clock, SystemClock

BROADCASTING, CLUSTERING = MessageModel.BROADCASTING, MessageModel.CLUSTERING
ORDER_SUSPEND_MS = 200
HELD_S, HELD_LONG_S, LONG_EVERY = 0.002, 0.5, 40
"""For so long an orderly listener has a call, and any listener each such call: then two calls of
one queue are seen, and a consumer is killed amid its work."""
LADDER_FROM = 3
"""The level of what is refused for the first time, where the listener names none."""
ASKED_LEVELS = (1, 2, 5)
"""The levels that listeners name in turn: brokers that take another one are too early or late."""
PERSIST_OFFSET_MS = 1_000
REBALANCE_MS = 5_000


def delivery_row(message: MessageExt, body: bytes | None) -> dict[str, Any]:
    """Return the columns of ``deliveries`` that the message itself gives."""
    payload = None if body is None else decode_body(body)
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "msg_key": None if payload is None else payload.msg_key,
        "payload_run_id": None if payload is None else payload.run_tag,
        "body_hash": None if body is None else body_hash(body),
        "reconsume": message.reconsume_times,
        "is_retry": message.reconsume_times > 0,
        "is_dlq": False,
    }


class ListenerFailedError(Exception):
    """A listener may raise in place of refusing: its client owes it the same."""


def is_unplanned(record: logging.LogRecord) -> bool:
    """Tell whether a line of the client's log is about something else than what we raise."""
    return record.exc_info is None or not isinstance(record.exc_info[1], ListenerFailedError)


class Witnessed:
    """Listener and observer of one consumer: writes everything down."""

    def __init__(
        self, spec: WorkerSpec, recorder: Recorder, clock: Clock, replier: Replier | None = None
    ) -> None:
        self.delivered = 0
        self.refused = self.again = self._refusals = 0
        self.committed: dict[str, int] = {}
        self.first: dict[str, int] = {}
        self._spec = spec
        self._recorder = recorder
        self._clock = clock
        self._replier = replier
        self._generation = 0
        self._next_op = self._calls = 0

    async def listen(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        """Record the messages and accept them, or, now and then, refuse them.

        Errors: ListenerFailedError, each other time, of what it refuses.
        """
        begun_ns = self._clock.monotonic_ns()
        self._calls += 1
        held_s = HELD_S if self._calls % LONG_EVERY else HELD_LONG_S
        if self._spec.mode == "orderly":
            await asyncio.sleep(held_s)
        status = self._hear(messages, context, begun_ns)
        if self._spec.mode != "orderly" and held_s == HELD_LONG_S:
            # Only now: other calls of the queue go on, and a kill would leave a hole in the record.
            await asyncio.sleep(held_s)
        if self._replier is not None:
            await self._replier.reply(messages)
        if status is ConsumeStatus.RECONSUME_LATER and self._refusals % 2 == 0:
            raise ListenerFailedError
        return status

    def _hear(
        self, messages: list[MessageExt], context: ConsumeContext, begun_ns: int
    ) -> ConsumeStatus:
        op_id = self._op_id()
        now_ns = self._clock.monotonic_ns()
        rows = []
        for pos, message in enumerate(messages):
            row = delivery_row(message, message.content())
            row |= {
                "op_id": op_id,
                "pos": pos,
                "grp": self._spec.history_group,
                "consumer": self._spec.name,
                "process": self._spec.first_process,
                "generation": self._generation,
                "t_fetch_inv": context.t_pull_start_ns or None,
                "t_recv": context.t_pull_end_ns or begun_ns,
                "t_proc_begin": begun_ns,
                "t_proc_end": now_ns,
                "auditor": False,
            }
            rows.append(row)
        self._recorder.write_all("deliveries", rows)
        self.delivered += len(messages)
        self.again += sum(message.reconsume_times > 0 for message in messages)
        if not self._refuses(messages):
            return ConsumeStatus.CONSUME_SUCCESS
        # Whoever refuses for good climbs the ladder, the others name a level, each time another.
        asked = ASKED_LEVELS[self._refusals % len(ASKED_LEVELS)]
        context.delay_level = 0 if self._spec.refuse_every else asked
        context.suspend_ms = ORDER_SUSPEND_MS
        for message in messages:
            self._record_refusal(message, context.delay_level)
        self.refused += len(messages)
        self._refusals += 1
        return ConsumeStatus.RECONSUME_LATER

    def _refuses(self, messages: list[MessageExt]) -> bool:
        payload, spec = decode_body(messages[0].content() or b""), self._spec
        if payload is None:
            return False
        if spec.refuse_every:
            return payload.msg_key % spec.refuse_every == 0
        fresh = all(message.reconsume_times == 0 for message in messages)
        return bool(spec.fail_every) and fresh and payload.msg_key % spec.fail_every == 0

    def _record_refusal(self, message: MessageExt, level: int) -> None:
        row = delivery_row(message, message.content())
        times, delays_ms = message.reconsume_times, self._spec.delays_ms
        climbed = min(level or LADDER_FROM + times, len(delays_ms))
        orderly = self._spec.mode == "orderly"
        t_ns = self._clock.monotonic_ns()
        told = {name: row[name] for name in ("topic", "queue_id", "queue_offset", "msg_key")}
        told |= {"op_id": self._op_id(), "consumer": self._spec.name, "reconsume": times}
        told |= {"grp": self._spec.history_group}
        told |= {"delay_ms": ORDER_SUSPEND_MS if orderly else delays_ms[climbed - 1]}
        told |= {"kind": "nack", "t_inv": t_ns, "t_cmp": t_ns, "outcome": "info"}
        self._recorder.write("acks", told)

    def on_assignment(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        """Record which queues the consumer holds from now on."""
        if topic not in subscribed(self._spec):
            return
        self._generation += 1
        queue_ids = [queue.queue_id for queue in queues]
        told = {"topic": topic, "queues": queue_ids, "generation": self._generation}
        self.mark("rebalance", told)

    def on_commit(
        self,
        queue: MessageQueue,
        offset: int,
        ok: bool,  # noqa: FBT001 - the client's protocol passes it by position
        t_start_ns: int,
        t_end_ns: int,
    ) -> None:
        """Record a commit of the group's offset."""
        if queue.topic not in subscribed(self._spec):
            return
        if ok:
            name = f"{queue.topic}/{queue.queue_id}"
            self.committed[name] = max(self.committed.get(name, 0), offset)
            self.first.setdefault(name, offset)
        row = {
            "op_id": self._op_id(),
            "grp": self._spec.history_group,
            "consumer": self._spec.name,
            "generation": self._generation,
            "topic": queue.topic,
            "queue_id": queue.queue_id,
            "kind": "commit",
            "value_offset": offset,
            "t_inv": t_start_ns,
            "t_cmp": t_end_ns,
            "outcome": "ok" if ok else "info",
        }
        self._recorder.write("acks", row)

    def on_fetch(self, queue: MessageQueue, offset: int, t_start_ns: int, t_end_ns: int) -> None:
        """Record which offset the group was told; it begins there."""
        if queue.topic not in subscribed(self._spec) or offset < 0:
            return
        told = {"topic": queue.topic, "queue_id": queue.queue_id, "value_offset": offset}
        told |= {"op_id": self._op_id(), "consumer": self._spec.name}
        told |= {"grp": self._spec.history_group}
        told |= {"kind": "fetch", "t_inv": t_start_ns, "t_cmp": t_end_ns, "outcome": "ok"}
        self._recorder.write("acks", told)

    def mark(self, f: str, value: dict[str, Any]) -> None:
        """Record an event of the consumer's life."""
        row = {
            "worker": self._spec.worker,
            "process": self._spec.first_process,
            "role": "consumer",
            "type": "info",
            "f": f,
            "op_id": self._op_id(),
            "t_mono_ns": self._clock.monotonic_ns(),
            "value": {"consumer": self._spec.name, "grp": self._spec.history_group, **value},
        }
        self._recorder.write("events", row)

    def report(self, *, done: bool = False) -> dict[str, Any]:
        """Return the status line."""
        counts = {"delivered": self.delivered, "refused": self.refused, "again": self.again}
        said = {"counts": counts, "committed": self.committed, "first": self.first}
        return said | {"done": done}

    def _op_id(self) -> int:
        self._next_op += 1
        return self._spec.worker << 40 | self._next_op


def subscribed(spec: WorkerSpec) -> dict[str, str]:
    """Return what a consumer subscribes to: an expression by topic."""
    return spec.expressions or {spec.topic: "*"}


async def main(spec: WorkerSpec) -> None:
    """Consume until told to stop."""
    config = ClientConfig(
        namesrv_addrs=spec.namesrv_addrs,
        group=spec.group,
        instance_name=spec.instance,
        persist_offset_ms=PERSIST_OFFSET_MS,
        rebalance_ms=REBALANCE_MS,
    )
    options = ConsumeOptions(
        consume_from=ConsumeFrom.LAST_OFFSET if spec.from_last else ConsumeFrom.FIRST_OFFSET,
        # One by one where one of several would be refused for good, with all beside it.
        consume_batch_count=1 if spec.refuse_every else 16,
        suspend_ms=spec.suspend_ms,
        orderly=spec.mode == "orderly",
        model=BROADCASTING if spec.mode == "broadcast" else CLUSTERING,
        local_offsets_dir=spec.offsets_dir,
        max_reconsume_times=-1 if spec.reconsume_max is None else spec.reconsume_max,
    )
    with Recorder(Path(spec.raw)) as recorder:
        name = f"{spec.instance}-replies"
        replier = Replier(replace(config, instance_name=name)) if spec.replies else None
        seen = Witnessed(spec, recorder, SystemClock(), replier)
        consumer = PushConsumer(config, seen.listen, options, observer=seen)
        for topic, expression in subscribed(spec).items():
            consumer.subscribe(topic, Sql92(expression) if spec.sql else expression)
        logging.getLogger("ledgermq.client.listening").addFilter(is_unplanned)
        seen.mark("start", {})
        async with contextlib.AsyncExitStack() as stack:
            if replier is not None:
                await stack.enter_async_context(replier)
            await stack.enter_async_context(consumer)
            await until_stopped(spec.seconds_max, seen.report, asyncio.Event())
        seen.mark("stop", {})
        say(seen.report(done=True))


if __name__ == "__main__":
    raise SystemExit(run_worker(main))

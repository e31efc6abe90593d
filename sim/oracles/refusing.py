"""A message that a listener has refused is done with when somebody has it, and then for good.

Its broker has taken it back, or the listener has taken it after all: not before that is anything
committed past it. And what a broker has taken back is handed out no more. Messages are told apart
by identity, as the queue that they came from does: at the same offset of the same queue another one
may lie since the log lost its end, or the queue was given back and taken again.
Source: docs/consumption.md; RocketMQ ConsumeMessageConcurrentlyService.processConsumeResult.
"""

from __future__ import annotations

from collections import defaultdict
from inspect import isawaitable
from typing import TYPE_CHECKING, Final

from ledgermq.client import ConsumeContext, ConsumeStatus
from ledgermq.client.consume import ConsumeService
from sim.oracles.base import Findings, Violation

if TYPE_CHECKING:
    from ledgermq.client import MessageExt, PushConsumer
    from ledgermq.client.process_queue import ProcessQueue

NAME: Final = "A27 done with, and neither consumed nor given back"
AGAIN: Final = "A10 handed out again though it was given back"


class Refusing:
    """Listens to the consumers of a run."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def follow(self, push: PushConsumer) -> None:
        """Judge what a consumer does from now on; before it starts."""
        Refuser(push, self._findings)


class Refuser:
    """One life of one consumer."""

    def __init__(self, push: PushConsumer, findings: Findings) -> None:
        self._push, self._findings = push, findings
        self._refused: dict[tuple[ProcessQueue, int], set[int]] = defaultdict(set)
        """By queue and era, offsets that the listener has refused and no broker has."""
        self._given_back: dict[int, MessageExt] = {}
        """What a broker has taken back, by identity."""
        service = push.service
        self._listener, self._send_back = service._listener, service._send_back
        service._listener = self._noted_listener
        service._send_back = self._noted_send_back

    async def _noted_listener(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> ConsumeStatus:  # fmt: skip
        for message in messages:
            if id(message) in self._given_back:
                self._report(AGAIN, message)
        held = self._push.assignment._held.get(context.queue)
        one = None if held is None else held.process_queue
        now = [] if one is None else [message for message in messages if _is_of(one, message)]
        era, status = one.era if one else 0, ConsumeStatus.RECONSUME_LATER
        try:
            outcome = self._listener(messages, context)
            status = await outcome if isawaitable(outcome) else outcome
        finally:
            if one is not None:
                self._note(one, era, now, status)
        return status

    def _note(
        self, one: ProcessQueue, era: int, messages: list[MessageExt], status: ConsumeStatus
    ) -> None:
        refused, offsets = self._refused[one, era], {one.queue_offset for one in messages}
        if status is ConsumeStatus.CONSUME_SUCCESS:
            refused -= offsets
        else:
            refused |= offsets
        up_to = one.maybe_commit_offset() if one.era == era else None
        passed = [offset for offset in refused - offsets if up_to is not None and offset < up_to]
        if passed and isinstance(self._push.service, ConsumeService):
            queue = one.queue
            text = f"{queue.topic}/{queue.queue_id}@{min(passed)}, and may commit {up_to}"
            self._findings.report(Violation(NAME, f"{self._push.client_id}: {text}"))

    async def _noted_send_back(
        self, process_queue: ProcessQueue, message: MessageExt, delay_level: int
    ) -> None:
        era, is_of = process_queue.era, _is_of(process_queue, message)
        await self._send_back(process_queue, message, delay_level)
        self._given_back[id(message)] = message
        if is_of:
            self._refused[process_queue, era].discard(message.queue_offset)

    def _report(self, oracle: str, message: MessageExt) -> None:
        text = f"{message.topic}/{message.queue_id}@{message.queue_offset}"
        self._findings.report(Violation(oracle, f"{self._push.client_id}: {text}"))


def _is_of(process_queue: ProcessQueue, message: MessageExt) -> bool:
    """Tell whether a queue has this very message in hand."""
    known, _ = process_queue._cached.get(message.queue_offset, (None, 0))
    return known is message

"""What a push consumer hands to its listener: of the queues it holds, and each message once.

What hindered its pulls of a queue is told no more once the queue has been pulled.

Looked at in the consumer itself, where the cause of a second time is known: it gave the queue back
and took it again, the listener failed, or a broker called its offset illegal. Nothing else is one.
Source: spec/proof.md 3.3 (A9, A10: redeliveries without a cause); RocketMQ ProcessQueue.isDropped.
"""

from __future__ import annotations

from collections import defaultdict
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

from ledgermq.client import ConsumeContext, ConsumeStatus
from sim.oracles.base import Findings, Violation

if TYPE_CHECKING:
    from ledgermq.client import MessageExt, MessageQueue, PushConsumer

AGAIN: Final = "A10 handed out again without a cause"
GIVEN_BACK: Final = "A10 handed out from a queue that was given back"
BEGUN: Final = "A41 calls of a listener that are over are remembered"
OTHERS_MAX: Final = 8
"""Calls that were begun elsewhere: an operator may have a message consumed once more."""
HINDERED: Final = "A41 a problem that is over is told"


class Consuming:
    """Listens to the consumers of a run."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def follow(self, push: PushConsumer) -> None:
        """Judge what a consumer does from now on; before it starts."""
        Member(push, self._findings)


class Member:
    """One life of one consumer."""

    def __init__(self, push: PushConsumer, findings: Findings) -> None:
        self._push = push
        self._findings = findings
        self._held: set[MessageQueue] = set()
        self._calls = 0
        """Calls of the listener that are under way."""
        self._done: dict[MessageQueue, set[tuple[int, int]]] = defaultdict(set)
        assignment, service = push.assignment, push.service
        self._take, self._release = assignment._take, assignment._release
        self._listener = service._listener
        assignment._take = self._checked_take  # type: ignore[method-assign]  # to listen to it
        assignment._release = self._checked_release  # type: ignore[method-assign]  # likewise
        service._listener = self._checked_listener

    async def _checked_take(self, queue: MessageQueue) -> bool:
        self._held.add(queue)
        self._done[queue] = set()
        if not await self._take(queue):
            self._held.discard(queue)
            return False
        puller = self._push.assignment._held[queue].puller
        move = puller._on_illegal_offset

        async def moved(result: Any) -> None:  # noqa: ANN401  # as the puller has it
            await move(result)
            self._done[queue] = set()

        puller._on_illegal_offset = moved  # type: ignore[method-assign]  # to listen to it
        take = puller._take

        async def taken(result: Any, *about: Any) -> None:  # noqa: ANN401  # as the puller has it
            self._check_told(queue)
            await take(result, *about)

        puller._take = taken  # type: ignore[method-assign, assignment]  # likewise
        return True

    async def _checked_release(self, queue: MessageQueue) -> bool:
        is_released = await self._release(queue)
        if is_released:
            self._held.discard(queue)
        return is_released

    async def _checked_listener(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> ConsumeStatus:  # fmt: skip
        queue = context.queue
        if queue not in self._held:
            self._report(GIVEN_BACK, queue, messages[0].queue_offset)
        done = self._done[queue]  # what was under way before the queue was taken anew is no cause
        self._calls += 1
        try:
            outcome = self._listener(messages, context)
            status = await outcome if isawaitable(outcome) else outcome
        finally:
            self._calls -= 1
        self._check_begun()
        if status is ConsumeStatus.CONSUME_SUCCESS:
            for message in messages:
                # Where a broker has lost the end of its log another one may lie there since.
                one = (message.queue_offset, message.store_timestamp)
                if one in done:
                    self._report(AGAIN, queue, message.queue_offset)
                done.add(one)
        return status

    def _check_told(self, queue: MessageQueue) -> None:
        """Look at what a member says of a queue that it has just pulled."""
        hindrances = self._push.hindrances
        problem = hindrances._queues.get(queue)
        if problem is not None or queue in hindrances._since_ms:
            text = f"{self._push.client_id}: {queue.topic}/{queue.queue_id} was pulled"
            text = f"{text}, and counts as hindered: {problem!r}"
            self._findings.report(Violation(HINDERED, text))

    def _check_begun(self) -> None:
        """Look at the calls that a member believes to be under way."""
        begun = len(self._push._listener._begun)
        if begun > self._calls + OTHERS_MAX:
            text = f"{self._push.client_id} has {self._calls} calls under way, and counts {begun}"
            self._findings.report(Violation(BEGUN, text))

    def _report(self, oracle: str, queue: MessageQueue, offset: int) -> None:
        text = f"{self._push.client_id}: {queue.topic}/{queue.queue_id}@{offset}"
        self._findings.report(Violation(oracle, text))

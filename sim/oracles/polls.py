"""What a consumer is handed of a queue while it holds it: in order, and nothing left out.

What is new to it lies behind all that it was handed before (A13), and what lies between is not
there, was dropped, or has no tag that it asked for (A14). It begins anew where it takes a queue, or
is sent elsewhere. On the wire, one answer hands out messages of the queue that was asked for, from
the offset on that was asked for, each behind the one before it.
Source: spec/proof.md 3.4 (A13, A14); RocketMQ PullMessageProcessor, ProcessQueue.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from sim.oracles.base import Findings, Violation, guarded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ledgermq.client import (
        ConsumeContext,
        ConsumeStatus,
        MessageExt,
        MessageQueue,
        PushConsumer,
    )
    from ledgermq.client.assignment import Held
    from ledgermq.client.process_queue import ProcessQueue
    from sim.oracles.wire import Said, Tap

BACK: Final = "A13 handed out behind what lies after it"
SKIPPED: Final = "A14 passed over"
PULL: Final = 11
SUCCESS: Final = 0
GAP_MAX: Final = 1_000
"""A longer gap is looked at from its end on."""
_size: Final = Struct(">i").unpack_from
_place: Final = Struct(">i4xq").unpack_from


class Holding:
    """One queue, from when it was taken, or the consumer was sent elsewhere."""

    def __init__(self, queue: ProcessQueue, since_ns: int, begin: int | None) -> None:
        self.queue = queue
        self.era = queue.era
        self.since_ns = since_ns
        """What was pulled before says nothing of it."""
        self.next = begin
        """Behind what was handed out, or where it begins; None where that is not known."""
        self.handed: set[int] = set()


class Polls:
    """Listens to the consumers of a run.

    Args:
        is_there: whether a queue has, at an offset, what a subscription wants.
    """

    def __init__(
        self, findings: Findings, is_there: Callable[[MessageQueue, int, str], bool]
    ) -> None:
        self._findings = findings
        self._is_there = is_there

    def follow(self, push: PushConsumer) -> None:
        """Judge what a consumer is handed from now on; before it starts."""
        Poller(push, self._findings, self._is_there)


class Poller:
    """One life of one consumer."""

    def __init__(
        self, push: PushConsumer, findings: Findings,
        is_there: Callable[[MessageQueue, int, str], bool],
    ) -> None:  # fmt: skip
        self._push = push
        self.findings = findings
        self._is_there = is_there
        self._holdings: dict[MessageQueue, Holding] = {}
        assignment, service = push.assignment, push.service
        self._hold, self._move, self._listener = (
            assignment._hold,
            assignment.move,
            service._listener,
        )
        assignment._hold = self._noted_hold  # type: ignore[method-assign]  # to listen to it
        assignment.move = self._noted_move  # type: ignore[method-assign]  # likewise
        service._listener = self._checked_listener

    def _noted_hold(self, queue: MessageQueue, offset: int) -> Held:
        held = self._hold(queue, offset)
        process_queue = held.process_queue
        self._begin(queue, process_queue, offset)
        puller: Any = held.puller
        move = puller._on_illegal_offset

        async def moved(result: Any) -> None:  # noqa: ANN401  # as the puller has it
            era = process_queue.era
            await move(result)
            if process_queue.era != era:
                self._begin(queue, process_queue, None)

        puller._on_illegal_offset = moved
        return held

    def _noted_move(self, offsets: Mapping[MessageQueue, int]) -> None:
        self._move(offsets)
        for queue in offsets:
            self._holdings.pop(queue, None)

    def _begin(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int | None) -> None:
        self._holdings[queue] = Holding(process_queue, self._push.clock.monotonic_ns(), offset)

    def _checked_listener(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> ConsumeStatus | Awaitable[ConsumeStatus]:
        self._check(messages, context)
        return self._listener(messages, context)

    @guarded
    def _check(self, messages: Sequence[MessageExt], context: ConsumeContext) -> None:
        queue = context.queue
        held, holding = self._push.assignment._held.get(queue), self._holdings.get(queue)
        if held is None or holding is None or held.process_queue is not holding.queue:
            return
        is_stale = context.t_pull_start_ns < holding.since_ns
        if is_stale or holding.queue.era != holding.era:
            return
        offsets = [message.queue_offset for message in messages]
        if offsets != sorted(set(offsets)):
            place = f"{self._push.client_id}: {queue.broker_name} {queue.topic}/{queue.queue_id}"
            raise Violation(BACK, f"{place} is handed out as {offsets}")
        for offset in offsets:
            if offset not in holding.handed:
                self._take(queue, holding, offset)

    def _take(self, queue: MessageQueue, holding: Holding, offset: int) -> None:
        """Take what was not handed out before. Errors: `Violation`."""
        holding.handed.add(offset)
        place = f"{self._push.client_id}: {queue.broker_name} {queue.topic}/{queue.queue_id}@"
        if holding.next is None:
            holding.next = offset
        if offset < holding.next:
            raise Violation(BACK, f"{place}{offset} comes when it was at {holding.next}")
        wanted = self._push.subscription(queue.topic).expression
        for left in range(max(holding.next, offset - GAP_MAX), offset):
            if self._is_there(queue, left, wanted):
                raise Violation(SKIPPED, f"{place}{left} is there, and {offset} comes")
        holding.next = offset + 1


class PullOrder:
    """Listens at the clients' end of their connections to brokers; a `wire.Listener`."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings

    def on_request(self, tap: Tap, request: Said) -> None:
        """Nothing is asked wrongly."""

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """What comes too late, or twice, is the broker's affair."""

    @guarded
    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """A client hears the answer to a pull."""
        if request.code != PULL or answer.code != SUCCESS:
            return
        wanted, least = request.number("queueId"), request.number("queueOffset")
        body, at = answer.body, 0
        while at < len(body):
            queue_id, offset = _place(body, at + 12)
            if queue_id != wanted or offset < least:
                place = f"{request.text('topic')}/{queue_id}@{offset}"
                text = f"{tap.other} hands out {place}, asked is {wanted} from {least} on"
                raise Violation(BACK, text)
            least = offset + 1
            at += max(1, _size(body, at)[0])
        if answer.number("nextBeginOffset") < least:
            text = f"{tap.other} hands out {request.text('topic')}/{wanted} up to {least}, and has"
            raise Violation(BACK, f"{text} it go on at {answer.number('nextBeginOffset')}")

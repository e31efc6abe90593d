"""What a push consumer leaves behind: what its listener has finished is committed, at least tried.

A consumer that stops in good order, or gives a queue back, first asks for a commit that covers all
that its listener had finished by then: whoever takes the queue next begins there, and hands out
nothing twice without a cause. Of a queue whose lock it has lost it must not: another may have gone
on. Nor may it give a queue that is consumed in order back while a listener works on what is of it.
And a queue is taken only as whoever comes next can know: consumed in order with its lock, and by a
group that has committed nothing with a commit of where it begins.
Looked at in the consumer itself, since only there it is known what was finished when.
Source: docs/client.md (stop); RocketMQ DefaultMQPushConsumerImpl.shutdown,
RebalancePushImpl.removeUnnecessaryMessageQueue.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

from ledgermq.client import ConsumeContext, ConsumeStatus
from ledgermq.remoting.protocol.headers import Claim
from sim.oracles.base import Findings, Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgermq.client import MessageExt, MessageQueue, PushConsumer
    from ledgermq.client.assignment import Held
    from ledgermq.remoting.protocol.errors import RemotingError

NAME: Final = "A10 left without a commit"
DUE: Final = "A10 finished and not committed"
AT_WORK: Final = "A10 given back while a listener works on it"
UNLOCKED: Final = "A21 held without its lock"
UNWRITTEN: Final = "A24 begins where nobody has written down"


class Leaving:
    """Listens to the consumers of a run, as ``others`` do."""

    def __init__(self, findings: Findings, *others: Callable[[PushConsumer], None]) -> None:
        self._findings = findings
        self._others = others

    def follow(self, push: PushConsumer) -> None:
        """Judge how a consumer leaves; before it starts."""
        for follow in self._others:
            follow(push)
        Leaver(push, self._findings)


class Holding:
    """What is known of one queue, from when it was taken, or jumped."""

    def __init__(self, since_ns: int = 0) -> None:
        self.begun: set[int] = set()
        """Offsets that the listener was handed and has not finished."""
        self.finished = -1
        """The last one that it has."""
        self.asked: int | None = None
        """What the last commit was about."""
        self.running = 0
        """Calls of the listener that have not ended."""
        self.is_new = False
        """Whether the group had committed nothing when it was taken."""
        self.since_ns = since_ns
        """What was pulled before says nothing of it: it jumped then."""

    @property
    def wanted(self) -> int:
        """Where whoever takes the queue next is to begin, at least."""
        return min(self.begun, default=self.finished + 1) if self.finished >= 0 else 0


class Leaver:
    """One life of one consumer."""

    def __init__(self, push: PushConsumer, findings: Findings) -> None:
        self._push = push
        self._findings = findings
        self._holdings: dict[MessageQueue, Holding] = {}
        assignment, service = push.assignment, push.service
        self._take, self._release = assignment._take, assignment._release
        self._hold = assignment._hold
        assignment._hold = self._checked_hold  # type: ignore[method-assign]  # likewise
        self._beginning = assignment._beginning
        assignment._beginning = self._noted_beginning  # type: ignore[method-assign]  # likewise
        self._commit, self._commit_all = assignment._commit, assignment.commit_all
        self._listener, self._stop = service._listener, push.stop
        assignment._take = self._checked_take  # type: ignore[method-assign]  # to listen to it
        assignment._release = self._checked_release  # type: ignore[method-assign]  # likewise
        assignment._commit = self._noted_commit  # type: ignore[method-assign]  # likewise
        assignment.commit_all = self._noted_commit_all  # type: ignore[method-assign]  # likewise
        service._listener = self._noted_listener
        self._commit_due = assignment.commit_due
        assignment.commit_due = self._checked_commit_due  # type: ignore[method-assign]  # likewise
        push.stop = self._checked_stop  # type: ignore[method-assign]  # likewise

    async def _checked_take(self, queue: MessageQueue) -> bool:
        self._holdings[queue] = Holding()
        is_taken = await self._take(queue)
        if is_taken and queue in self._push.assignment._held:
            self._check_taken(queue)
            held = self._push.assignment._held[queue]
            puller, process_queue = held.puller, held.process_queue
            move = puller._on_illegal_offset

            async def moved(result: Any) -> None:  # noqa: ANN401  # as the puller has it
                era = process_queue.era
                await move(result)
                # An answer alone moves nothing: what is under way stays to be finished.
                if process_queue.era != era:
                    self._holdings[queue] = Holding(self._push.clock.monotonic_ns())

            puller._on_illegal_offset = moved  # type: ignore[method-assign]  # to listen to it
        return is_taken

    async def _noted_beginning(self, queue: MessageQueue) -> tuple[int, int]:
        stored, offset = await self._beginning(queue)
        self._holdings[queue].is_new = stored < 0
        return stored, offset

    def _checked_hold(self, queue: MessageQueue, offset: int) -> Held:
        locks: Any = self._push.assignment._host.locks
        # To ask whether it holds it would have it note that it does not.
        until_ms = 0 if locks is None else locks._until_ms.get(queue, -1)
        if locks is not None and until_ms <= self._push.clock.monotonic_ms():
            text = f"{self._push.client_id}: {queue.topic}/{queue.queue_id} is taken"
            self._findings.report(Violation(UNLOCKED, text))
        return self._hold(queue, offset)

    def _check_taken(self, queue: MessageQueue) -> None:
        process_queue = self._push.assignment._held[queue].process_queue
        holding = self._holdings[queue]
        if not process_queue.lost and holding.is_new and holding.asked is None:
            text = f"{self._push.client_id}: {queue.topic}/{queue.queue_id}: "
            text += "the group had committed nothing, and nothing was asked for"
            self._findings.report(Violation(UNWRITTEN, text))

    async def _checked_release(self, queue: MessageQueue) -> bool:
        holding = self._holdings[queue]
        wanted = holding.wanted
        process_queue = self._push.assignment._held[queue].process_queue
        is_released = await self._release(queue)
        if is_released and not process_queue.lost:
            self._check(queue, holding, wanted)
        return is_released

    async def _noted_commit(self, held: Held, claim: Claim = Claim.IF_FREE) -> RemotingError | None:
        self._note(held)
        self._check_ended(held, claim)
        return await self._commit(held, claim)

    def _check_ended(self, held: Held, claim: Claim) -> None:
        queue = held.process_queue.queue
        holding = self._holdings.get(queue)
        is_ordered = self._push.assignment._host.locks is not None
        if is_ordered and claim is Claim.NONE and holding is not None and holding.running:
            text = f"{self._push.client_id}: {queue}, {holding.running} calls run"
            self._findings.report(Violation(AT_WORK, text))

    async def _noted_commit_all(self) -> None:
        for held in self._push.assignment.held:
            self._note(held)
        await self._commit_all()

    async def _checked_commit_due(self) -> None:
        """What was finished before it is asked to be committed by the end of it."""
        due = []
        for one in self._push.assignment.held:
            holding = self._holdings.get(one.process_queue.queue)
            if holding is not None:
                due.append((one, holding, holding.wanted))
        await self._commit_due()
        for one, holding, wanted in due:
            queue = one.process_queue.queue
            is_same = self._push.assignment._held.get(queue) is one and not one.process_queue.lost
            # What was finished before a jump is nothing to commit behind it.
            is_same = is_same and self._holdings.get(queue) is holding
            if is_same and one.process_queue.pulled:
                self._check(queue, holding, wanted, DUE)

    def _note(self, held: Any) -> None:  # noqa: ANN401  # as the assignment has it
        process_queue = held.process_queue
        holding = self._holdings.get(process_queue.queue)
        if holding is not None:
            holding.asked = process_queue.maybe_commit_offset()

    async def _noted_listener(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> ConsumeStatus:  # fmt: skip
        holding = self._holdings.setdefault(context.queue, Holding())
        is_stale = context.t_pull_start_ns < holding.since_ns
        offsets = set() if is_stale else {message.queue_offset for message in messages}
        holding.begun |= offsets
        holding.running += 1
        try:
            outcome = self._listener(messages, context)
            status = await outcome if isawaitable(outcome) else outcome
        finally:
            holding.running -= 1
        if status is ConsumeStatus.CONSUME_SUCCESS:
            holding.begun -= offsets
            holding.finished = max((holding.finished, *offsets))
        return status

    async def _checked_stop(self) -> None:
        push = self._push
        began_ms = push.clock.monotonic_ms()
        is_first = push._instance.running
        await self._stop()
        took_ms = push.clock.monotonic_ms() - began_ms
        if not is_first or took_ms >= push.config.stop_timeout_ms:
            return  # a listener that takes so long is not waited for
        for held in push.assignment.held:
            queue = held.process_queue.queue
            holding = self._holdings.get(queue)
            if holding is not None and not held.process_queue.lost:
                self._check(queue, holding, holding.wanted)

    def _check(self, queue: MessageQueue, holding: Holding, wanted: int, name: str = NAME) -> None:
        if wanted and (holding.asked is None or holding.asked < wanted):
            text = (
                f"{self._push.client_id}: of {queue.topic}/{queue.queue_id} it has"
                f" finished all before {wanted}, and has committed up to {holding.asked}"
            )
            self._findings.report(Violation(name, text))

"""What a push consumer commits: of queues that are its own, and where it is since it last moved.

A group that was told to go on elsewhere goes on there: an offset from before that is committed no
more, whatever waited to be sent. Of a queue whose lock is lost nothing is committed: another member
may have gone on. And a consumer moves when it has been told twice that its offset is none, half a
second apart: a leader that still catches up says so once, of an offset that is right.
Looked at in the consumer itself, where it is known what it holds at that moment.
Source: docs/client.md; RocketMQ ProcessQueue.isDropped, PullCallback (OFFSET_ILLEGAL).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ledgermq.client import PullStatus
from sim.oracles.base import Findings, Violation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledgermq.client import MessageQueue, PushConsumer
    from ledgermq.client.assignment import Held
    from ledgermq.client.process_queue import ProcessQueue
    from ledgermq.remoting.protocol.headers import Claim

LOST: Final = "A24 committed for a queue that was lost"
STALE: Final = "A24 committed from before it moved"
AT_ONCE: Final = "A10 moved without being told twice"
PATIENCE_MS: Final = 400
"""So long an offset must have been called illegal, at least; by the clock of the consumer."""


class Begun(NamedTuple):
    """Where a queue was begun, or begun anew."""

    queue: ProcessQueue
    era: int
    offset: int


class Committing:
    """Listens to the consumers of a run."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def follow(self, push: PushConsumer) -> None:
        """Judge what a consumer commits from now on; before it starts."""
        Committer(push, self._findings)


class Committer:
    """One life of one consumer."""

    def __init__(self, push: PushConsumer, findings: Findings) -> None:
        self._push = push
        self._findings = findings
        self._begun: dict[MessageQueue, Begun] = {}
        self._illegal_ms: dict[ProcessQueue, int] = {}
        """Since when each answer for a queue has called its offset illegal."""
        assignment, api = push.assignment, push.api
        self._hold, self._move, self._commit = assignment._hold, assignment.move, api.commit_offset
        assignment._hold = self._noted_hold  # type: ignore[method-assign]  # to listen to it
        assignment.move = self._noted_move  # type: ignore[method-assign]  # likewise
        api.commit_offset = self._checked_commit  # type: ignore[method-assign]  # likewise

    def _noted_hold(self, queue: MessageQueue, offset: int) -> Held:
        held = self._hold(queue, offset)
        process_queue = held.process_queue
        self._begun[queue] = Begun(process_queue, process_queue.era, offset)
        puller: Any = held.puller
        take, move = puller._take, puller._on_illegal_offset

        async def taken(result: Any, t_start_ns: int, addr: str) -> None:  # noqa: ANN401  # as the puller has it
            if result.status is not PullStatus.OFFSET_ILLEGAL:
                self._illegal_ms.pop(process_queue, None)
            await take(result, t_start_ns, addr)

        async def moved(result: Any) -> None:  # noqa: ANN401  # likewise
            now_ms, era = self._push.clock.monotonic_ms(), process_queue.era
            is_legal = result.min_offset <= process_queue.next_offset <= result.max_offset
            since_ms = self._illegal_ms.setdefault(process_queue, now_ms)
            await move(result)
            if process_queue.era == era:
                return
            self._illegal_ms.pop(process_queue, None)
            self._begun[queue] = Begun(process_queue, process_queue.era, process_queue.next_offset)
            if not is_legal and now_ms - since_ms < PATIENCE_MS:
                text = f"goes to {process_queue.next_offset} after {now_ms - since_ms} ms"
                self._report(AT_ONCE, queue, text)

        puller._take, puller._on_illegal_offset = taken, moved
        return held

    def _noted_move(self, offsets: Mapping[MessageQueue, int]) -> None:
        self._move(offsets)
        for queue, offset in offsets.items():
            held = self._push.assignment._held.get(queue)
            if held is not None:
                self._begun[queue] = Begun(held.process_queue, held.process_queue.era, offset)

    async def _checked_commit(
        self, addr: str, queue: MessageQueue, offset: int, claim: Claim | None = None
    ) -> None:
        self._check(queue, offset)
        await self._commit(addr, queue, offset, claim)

    def _check(self, queue: MessageQueue, offset: int) -> None:
        held = self._push.assignment._held.get(queue)
        if held is None:
            self._report(LOST, queue, f"commits {offset}, and does not hold it")
            return
        one, begun = held.process_queue, self._begun[queue]
        if one.lost:
            self._report(LOST, queue, f"commits {offset}, and has lost it")
        is_known = begun.queue is one and begun.era == one.era
        if offset > one.next_offset or (is_known and offset < begun.offset):
            text = f"commits {offset}, began at {begun.offset} and has pulled up to"
            self._report(STALE, queue, f"{text} {one.next_offset}")

    def _report(self, oracle: str, queue: MessageQueue, what: str) -> None:
        text = f"{self._push.client_id}: {queue.topic}/{queue.queue_id} {what}"
        self._findings.report(Violation(oracle, text))

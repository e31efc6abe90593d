"""Where a consumer goes on that was sent elsewhere: there, and nothing from before is committed.

Somebody tells its group to go on at other offsets, or its caller seeks. The queue is given away and
taken anew, or begun anew, and meanwhile commits wait for their turn: the first read, and each
commit until then, is of the new offset, as long as the queue does not go to another member.
Looked at where a consumer hands its requests to the connection.
Source: docs/client.md; RocketMQ MQClientInstance.resetOffset; DefaultLitePullConsumer.seek.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sim.oracles.base import Findings, Violation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledgermq.client import LitePullConsumer, MessageQueue, PullResult, PushConsumer
    from ledgermq.remoting.protocol.headers import Claim

NAME: Final = "A24 goes on elsewhere than it was sent"


class Moving:
    """Listens to one life of one consumer, from before it starts."""

    def __init__(self, consumer: LitePullConsumer | PushConsumer, findings: Findings) -> None:
        self._consumer = consumer
        self._findings = findings
        self._goals: dict[MessageQueue, set[int]] = {}
        """Where a queue that was moved may go on: two that move it at once may come in any order.
        Until it is read there."""
        self._seeking: set[MessageQueue] = set()
        assignment, api = consumer.assignment, consumer.api
        self._move, self._restart = assignment.move, assignment.restart
        self._change, self._pull, self._commit = assignment.change, api.pull, api.commit_offset
        assignment.move = self._noted_move  # type: ignore[method-assign]  # to listen to it
        assignment.restart = self._noted_restart  # type: ignore[method-assign]  # likewise
        assignment.change = self._noted_change  # type: ignore[method-assign]  # likewise
        api.pull = self._checked_pull  # type: ignore[method-assign]  # likewise
        api.commit_offset = self._checked_commit  # type: ignore[method-assign]  # likewise

    def _noted_move(self, offsets: Mapping[MessageQueue, int]) -> None:
        assignment = self._consumer.assignment
        for queue, offset in offsets.items():
            if queue in assignment._held or queue in assignment._taking:
                seeks = self._goals.get(queue) if queue in self._seeking else None
                self._goals[queue] = {offset, *(seeks or ())}
        self._move(offsets)

    async def _noted_restart(self, queue: MessageQueue, offset: int) -> bool:
        before = self._goals.get(queue)
        self._goals[queue] = {offset}
        self._seeking.add(queue)
        try:
            is_held = await self._restart(queue, offset)
        finally:
            self._seeking.discard(queue)
        if not is_held and self._goals.get(queue) == {offset}:
            self._goals.pop(queue)
            if before is not None:
                self._goals[queue] = before
        return is_held

    async def _noted_change(self, topic: str, wanted: Sequence[MessageQueue]) -> bool:
        for queue in [one for one in self._goals if one.topic == topic and one not in wanted]:
            del self._goals[queue]  # whoever has it meanwhile may go on
        return await self._change(topic, wanted)

    async def _checked_pull(self, addr: str, request: Any, timeout_ms: int) -> PullResult:  # noqa: ANN401  # as the client has it
        queue = request.queue
        goals, held = self._goals.get(queue), self._consumer.assignment._held.get(queue)
        if goals is not None and held is not None and not held.process_queue.dropped:
            del self._goals[queue]
            self._check(queue, goals, request.offset, "reads")
        return await self._pull(addr, request, timeout_ms)

    async def _checked_commit(
        self, addr: str, queue: MessageQueue, offset: int, claim: Claim | None = None
    ) -> None:
        goals = self._goals.get(queue)
        if goals is not None:
            self._check(queue, goals, offset, "commits")
        await self._commit(addr, queue, offset, claim)

    def _check(self, queue: MessageQueue, goals: set[int], offset: int, what: str) -> None:
        if offset not in goals:
            text = f"{self._consumer.client_id} {what} {queue.topic}/{queue.queue_id}@{offset}"
            text = f"{text}, and was sent to {sorted(goals)}"
            self._findings.report(Violation(NAME, text))

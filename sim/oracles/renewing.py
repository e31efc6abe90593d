"""A member that is left alone renews its locks: none of them runs out.

One that runs out costs a pause, and what was handed out is handed out again; nothing is lost. It is
judged where nothing has happened to brokers and clients for as long as the lock held. One whose
renewal a broker refuses is lost: another member may have the queue.
Source: RocketMQ RebalanceImpl.lockAll; docs/consumption.md (in order).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sim.oracles.base import Findings, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from ledgermq.client import MessageQueue, PushConsumer
    from ledgermq.client.queue_locks import QueueLocks

NAME: Final = "A21 lock that ran out with nothing in the way"
REFUSED: Final = "A21 held though its renewal was refused"
RUN_OUT: Final = "it was not renewed in time"
TURN_MS: Final = 1_400
"""A member looks once in a second which renewals are due, and asks."""
SLOWEST: Final = 2
"""The clock of a member may run at half speed."""
NS_PER_MS: Final = 1_000_000


class Renewing:
    """Listens to members in order.

    Args:
        calm_since_ns: since when nothing has happened; None: something does.
    """

    def __init__(
        self,
        findings: Findings,
        now_ns: Callable[[], int],
        calm_since_ns: Callable[[], int | None],
    ) -> None:
        self._findings = findings
        self._now_ns = now_ns
        self._calm_since_ns = calm_since_ns

    def follow(self, push: PushConsumer) -> None:
        """Listen to a consumer that is about to start, and has the times of its run."""
        locks = push.assignment._host.locks
        if locks is None:
            return
        self._follow_refusals(locks)
        if locks.valid_ms - locks.renew_ms < TURN_MS:
            return  # a look that comes late is too late
        lose = locks._lose

        def lost(queue: MessageQueue, why: str) -> None:
            if why == RUN_OUT:
                self._judge(queue, locks.valid_ms)
            lose(queue, why)

        locks._lose = lost  # type: ignore[method-assign]  # to listen to it

    def _follow_refusals(self, locks: QueueLocks) -> None:
        """Listen to what brokers say to renewals: who is refused holds the queue no more."""
        ask, renew = locks._ask, locks._renew
        refused: dict[asyncio.Task[object] | None, list[MessageQueue]] = {}

        async def asked(queues: Sequence[MessageQueue]) -> list[MessageQueue]:
            found = await ask(queues)
            if (task := asyncio.current_task()) in refused:
                refused[task] = found
            return found

        async def renewed(name: str) -> None:
            task = asyncio.current_task()
            refused[task] = []
            try:
                await renew(name)
            finally:
                told = refused.pop(task)
            self.check_refused(told, locks._until_ms)

        locks._ask, locks._renew = asked, renewed  # type: ignore[method-assign]  # likewise

    def check_refused(self, refused: Sequence[MessageQueue], held: Container[MessageQueue]) -> None:
        """Judge which queues a member holds that were refused to it just now."""
        kept = [queue for queue in refused if queue in held]
        if kept:
            text = f"{kept[0]}, and {len(kept) - 1} more, are held on, though a broker has just"
            self._findings.report(Violation(REFUSED, f"{text} refused to renew their locks"))

    def _judge(self, queue: MessageQueue, valid_ms: int) -> None:
        since_ns = self._calm_since_ns()
        if since_ns is None or self._now_ns() - since_ns < SLOWEST * valid_ms * NS_PER_MS:
            return
        calm_ms = (self._now_ns() - since_ns) // NS_PER_MS
        text = f"the lock of {queue} ran out after {valid_ms} ms; nothing has happened for"
        self._findings.report(Violation(NAME, f"{text} {calm_ms} ms"))

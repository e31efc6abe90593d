"""Calling a listener, whatever it does: it raises, returns nonsense, or blocks the loop.

Knows neither queues nor workers. A listener that raises has failed; one that returns anything but
a `ConsumeStatus` has, too.
"""

import logging
from collections.abc import Awaitable, Callable
from inspect import isawaitable

from ledgermq.client.message import ConsumeContext, ConsumeStatus
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.runtime.clock import Clock

_log = logging.getLogger(__name__)

Listener = Callable[[list[MessageExt], ConsumeContext], ConsumeStatus | Awaitable[ConsumeStatus]]

BLOCKED_NS = 1_000_000_000
"""A listener that keeps the loop for so long is a warning: nothing else runs meanwhile."""
ENDLESS_NS = 60_000_000_000
"""A call that lasts so long is a warning: its messages are not committed meanwhile."""


async def call_listener(
    listener: Listener, messages: list[MessageExt], context: ConsumeContext
) -> ConsumeStatus:
    """Return what the listener says of the messages; a failure of its own means later."""
    try:
        outcome = listener(messages, context)
        status: object = await outcome if isawaitable(outcome) else outcome
    except Exception:  # noqa: BLE001 - a listener that raises has failed, whatever it raises
        _log.exception("queue=%s event=listener_failed", context.queue)
        return ConsumeStatus.RECONSUME_LATER
    if isinstance(status, ConsumeStatus):
        return status
    _log.error("queue=%s event=listener_returned value=%r", context.queue, status)
    return ConsumeStatus.RECONSUME_LATER


class WatchedListener:
    """A listener, with a warning for each call that blocks the loop or does not end."""

    def __init__(self, listener: Listener, clock: Clock) -> None:
        self._listener = listener
        self._clock = clock
        self._begun: dict[ConsumeContext, int] = {}
        """When the calls under way began; 0 for those that were told."""

    def __call__(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> ConsumeStatus | Awaitable[ConsumeStatus]:
        """Call the listener.

        While it blocks the loop, heartbeats, lock renewals and commits stop; after a while brokers
        give the queues of this member to others.
        """
        t_start_ns = self._clock.monotonic_ns()
        try:
            outcome = self._listener(messages, context)
        finally:
            took_ns = self._clock.monotonic_ns() - t_start_ns
            if took_ns >= BLOCKED_NS:
                _log.warning(
                    "queue=%s event=listener_blocked_loop seconds=%.1f",
                    context.queue,
                    took_ns / 1e9,
                )
        if isawaitable(outcome):
            return self._follow(outcome, context, t_start_ns)
        return outcome

    def look(self) -> None:
        """Warn of calls that go on for very long, once each: what they hold is not committed."""
        now_ns = self._clock.monotonic_ns()
        for context, t_start_ns in self._begun.items():
            if t_start_ns and now_ns - t_start_ns >= ENDLESS_NS:
                self._begun[context] = 0
                _log.warning(
                    "queue=%s event=listener_does_not_end seconds=%.0f",
                    context.queue, (now_ns - t_start_ns) / 1e9,
                )  # fmt: skip

    async def _follow(
        self, outcome: Awaitable[ConsumeStatus], context: ConsumeContext, t_start_ns: int
    ) -> ConsumeStatus:
        self._begun[context] = t_start_ns
        try:
            return await outcome
        finally:
            del self._begun[context]

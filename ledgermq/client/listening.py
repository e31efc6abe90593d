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


def watched(listener: Listener, clock: Clock) -> Listener:
    """Return ``listener`` with a warning for each call that blocks the loop.

    Heartbeats, lock renewals and commits stop meanwhile; after a while brokers give the queues of
    this member to others.
    """

    def listen(
        messages: list[MessageExt], context: ConsumeContext
    ) -> ConsumeStatus | Awaitable[ConsumeStatus]:
        t_start_ns = clock.monotonic_ns()
        try:
            return listener(messages, context)
        finally:
            took_ns = clock.monotonic_ns() - t_start_ns
            if took_ns >= BLOCKED_NS:
                _log.warning(
                    "queue=%s event=listener_blocked_loop seconds=%.1f",
                    context.queue,
                    took_ns / 1e9,
                )

    return listen

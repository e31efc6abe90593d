"""Calling a listener, whatever it does: it raises, returns nonsense, or blocks the loop.

Knows neither queues nor workers. A listener that raises has failed, also with a cancellation that
nobody asked this task for; one that returns anything but a `ConsumeStatus` has, too.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from types import CoroutineType

from ledgermq.client.figures import Figures
from ledgermq.client.message import ConsumeContext, ConsumeStatus
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.runtime.cancel import cancel_requests
from ledgermq.runtime.clock import Clock

_log = logging.getLogger(__name__)

Listener = Callable[[list[MessageExt], ConsumeContext], ConsumeStatus | Awaitable[ConsumeStatus]]

BLOCKED_NS = 1_000_000_000
"""A listener that keeps the loop for so long is a warning: nothing else runs meanwhile."""
ENDLESS_NS = 60_000_000_000
"""A call that lasts so long is a warning: its messages are not committed meanwhile."""


def check_listener(listener: object) -> None:
    """Raise `TypeError` unless it can be called as a listener: later, each message would fail."""
    if not callable(listener):
        raise TypeError(f"a listener is a function of (messages, context), not {listener!r}")
    try:
        signature = inspect.signature(listener)
    except ValueError:  # Some functions that are not written in Python do not say.
        return
    try:
        signature.bind([], None)
    except TypeError as error:
        raise TypeError(f"a listener is called with (messages, context): {error}") from None


async def call_listener(
    listener: Listener, messages: list[MessageExt], context: ConsumeContext
) -> ConsumeStatus:
    """Return what the listener says of the messages; a failure of its own means later.

    What it left in the context is then a level and a time that can be asked for.
    """
    status = await _call(listener, messages, context)
    if status is ConsumeStatus.RECONSUME_LATER:
        _take_back_nonsense(context)
    return status


def _take_back_nonsense(context: ConsumeContext) -> None:
    """Replace what no broker and no clock understands by what is usual, with a warning."""
    level: object = context.delay_level
    suspend_ms: object = context.suspend_ms
    if not isinstance(level, int) or level < -1:
        _log.warning("queue=%s event=listener_asked delay_level=%r", context.queue, level)
        context.delay_level = 0
    if suspend_ms is not None and not isinstance(suspend_ms, int):
        _log.warning("queue=%s event=listener_asked suspend_ms=%r", context.queue, suspend_ms)
        context.suspend_ms = None


async def _call(
    listener: Listener, messages: list[MessageExt], context: ConsumeContext
) -> ConsumeStatus:
    known = cancel_requests()
    try:
        outcome = listener(messages, context)
        status: object = await outcome if inspect.isawaitable(outcome) else outcome
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and cancel_requests() > known:
            raise  # This task is to end. Otherwise it was something that the listener awaited.
        _log.exception("queue=%s event=listener_failed", context.queue)
        return ConsumeStatus.RECONSUME_LATER
    if isinstance(status, ConsumeStatus):
        return status
    _log.error("queue=%s event=listener_returned value=%r", context.queue, status)
    return ConsumeStatus.RECONSUME_LATER


class WatchedListener:
    """A listener, with a warning for each call that blocks the loop or does not end.

    What it took, and whether it succeeded, is counted in ``figures``.
    """

    def __init__(self, listener: Listener, clock: Clock, figures: Figures) -> None:
        self._listener = listener
        self._clock = clock
        self._figures = figures
        self._begun: dict[ConsumeContext, int] = {}
        """When the calls under way began; 0 for those that were told."""

    def __call__(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> ConsumeStatus | Awaitable[ConsumeStatus]:
        """Call the listener.

        While it blocks the loop, heartbeats, lock renewals and commits stop; after a while brokers
        give the queues of this member to others.
        """
        outcome: ConsumeStatus | Awaitable[ConsumeStatus] | None = None
        count = len(messages)  # The list is the listener's.
        t_start_ns = self._clock.monotonic_ns()
        try:
            outcome = self._listener(messages, context)
        finally:
            t_end_ns = self._clock.monotonic_ns()
            took_ns = t_end_ns - t_start_ns
            if outcome is None or isinstance(outcome, ConsumeStatus):
                ok = outcome is ConsumeStatus.CONSUME_SUCCESS
                self._count(count, context, (t_start_ns, t_end_ns), ok=ok)
            if took_ns >= BLOCKED_NS:
                _warn_of_block(took_ns, context)
        if inspect.isawaitable(outcome):
            return self._follow(outcome, count, context, t_start_ns)
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
        self,
        outcome: Awaitable[ConsumeStatus],
        count: int,
        context: ConsumeContext,
        t_start_ns: int,
    ) -> ConsumeStatus:
        self._begun[context] = t_start_ns
        ok = False
        try:
            status = await _Steps(outcome, self._clock, context)
            ok = status is ConsumeStatus.CONSUME_SUCCESS
            return status
        finally:
            del self._begun[context]
            self._count(count, context, (t_start_ns, self._clock.monotonic_ns()), ok=ok)

    def _count(
        self,
        count: int,
        context: ConsumeContext,
        when_ns: tuple[int, int],
        *,
        ok: bool,
    ) -> None:
        self._figures.on_consumed(context.queue.topic, count, *when_ns, ok=ok)


class _Steps(Generator[object, None, ConsumeStatus]):
    """Awaits what a listener returned, with a warning for each step that blocks the loop."""

    __slots__ = ("_context", "_coroutine", "_now_ns", "_step")

    def __init__(
        self, outcome: Awaitable[ConsumeStatus], clock: Clock, context: ConsumeContext
    ) -> None:
        self._coroutine = outcome if isinstance(outcome, CoroutineType) else _awaiting(outcome)
        self._step = self._coroutine.send
        self._now_ns = clock.monotonic_ns
        self._context = context

    def __await__(self) -> Generator[object, None, ConsumeStatus]:
        return self

    def __next__(self) -> object:
        # Once a message at least: without a further call.
        t_start_ns = self._now_ns()
        try:
            return self._step(None)
        finally:
            took_ns = self._now_ns() - t_start_ns
            if took_ns >= BLOCKED_NS:
                _warn_of_block(took_ns, self._context)

    def send(self, value: None) -> object:
        """Go on, once what the listener awaited is there."""
        assert value is None
        return next(self)

    def throw(self, error: BaseException, *_: object) -> object:  # type: ignore[override]  # no types and tracebacks: deprecated
        """Go on with an error, as a cancellation does."""
        self._step = partial(self._go_on_with, error)
        return next(self)

    def close(self) -> None:
        """End without a result."""
        self._coroutine.close()

    def _go_on_with(self, error: BaseException, _: None) -> object:
        self._step = self._coroutine.send
        return self._coroutine.throw(error)


async def _awaiting(outcome: Awaitable[ConsumeStatus]) -> ConsumeStatus:
    return await outcome


def _warn_of_block(took_ns: int, context: ConsumeContext) -> None:
    _log.warning("queue=%s event=listener_blocked_loop seconds=%.1f", context.queue, took_ns / 1e9)

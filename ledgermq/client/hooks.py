"""Hooks: what applications hear of sends, listener calls and decisions of transactions.

Hooks are called in the loop, before and after, and must not block. An exception of a hook is logged
and changes nothing: neither the send nor what other hooks hear. Without hooks none of this runs.
Source: SendMessageHook, ConsumeMessageHook, EndTransactionHook 4.9.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from inspect import isawaitable
from typing import TypeVar

from ledgermq.client.halves import TransactionState
from ledgermq.client.listening import Listener
from ledgermq.client.message import (
    ConsumeContext,
    ConsumeStatus,
    Message,
    MessageQueue,
    SendResult,
)
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.runtime.clock import Clock

_log = logging.getLogger(__name__)
_NS_PER_MS = 1_000_000

T = TypeVar("T")


class SendKind(IntEnum):
    """What is sent; the values are those of traces (MessageType)."""

    NORMAL = 0
    HALF = 1
    DELAYED = 3


@dataclass(slots=True, kw_only=True, eq=False)
class Sending:
    """A send of one message, or of a batch."""

    group: str
    messages: tuple[Message, ...]
    kind: SendKind
    t_start_ms: int
    """Wall-clock time."""
    took_ms: int = 0
    result: SendResult | None = None
    """None before the end, for a failed send, and for a oneway one."""
    error: BaseException | None = None
    notes: dict[str, object] = field(default_factory=dict)
    """What hooks keep from before to after."""


@dataclass(slots=True, kw_only=True, eq=False)
class Consuming:
    """A call of a listener."""

    group: str
    queue: MessageQueue
    messages: Sequence[MessageExt]
    t_start_ms: int
    took_ms: int = 0
    status: object = None
    """What the listener returned, a `ConsumeStatus` if it is a good one."""
    error: BaseException | None = None
    notes: dict[str, object] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        """Whether the messages are done."""
        return self.error is None and self.status is ConsumeStatus.CONSUME_SUCCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision about a half, as it was sent to a broker."""

    group: str
    topic: str
    msg_id: str
    tags: str
    keys: str
    state: TransactionState
    broker_addr: str
    from_check: bool
    """Whether the broker had asked."""
    t_ms: int


class Hook:
    """Override what you want to hear of."""

    def before_send(self, sending: Sending) -> None:
        """Hear of a send that begins."""

    def after_send(self, sending: Sending) -> None:
        """Hear how it ended."""

    def before_consume(self, consuming: Consuming) -> None:
        """Hear of a call of the listener that begins."""

    def after_consume(self, consuming: Consuming) -> None:
        """Hear how it ended."""

    def on_decided(self, decided: Decided) -> None:
        """Hear of the decision about a transaction, when it was sent."""


class Hooks:
    """The hooks of one client; there is at least one."""

    def __init__(self, hooks: Iterable[Hook], group: str, clock: Clock) -> None:
        self._hooks = tuple(hooks)
        self._group = group
        self._clock = clock

    async def around(
        self,
        begin: Callable[[], Awaitable[T]],
        messages: Sequence[Message],
        kind: SendKind = SendKind.NORMAL,
    ) -> T:
        """Return or raise what ``begin()`` does, and tell of it."""
        if any(message.delay_level for message in messages):
            kind = SendKind.DELAYED
        sending = Sending(
            group=self._group,
            messages=tuple(messages),
            kind=kind,
            t_start_ms=self._clock.wall_ms(),
        )
        t_start_ns = self._clock.monotonic_ns()
        self._tell(Hook.before_send, sending)
        try:
            outcome = await begin()
            sending.result = outcome if isinstance(outcome, SendResult) else None
        except BaseException as error:
            sending.error = error
            raise
        finally:
            sending.took_ms = (self._clock.monotonic_ns() - t_start_ns) // _NS_PER_MS
            self._tell(Hook.after_send, sending)
        return outcome

    def listener(self, listener: Listener) -> Listener:
        """Return the listener with the hooks around its calls."""

        def call(
            messages: list[MessageExt], context: ConsumeContext
        ) -> ConsumeStatus | Awaitable[ConsumeStatus]:
            consuming = Consuming(
                group=self._group,
                queue=context.queue,
                messages=tuple(messages),
                t_start_ms=self._clock.wall_ms(),
            )
            t_start_ns = self._clock.monotonic_ns()
            self._tell(Hook.before_consume, consuming)
            try:
                status = listener(messages, context)
            except BaseException as error:
                self._consumed(consuming, t_start_ns, None, error)
                raise
            if isawaitable(status):
                return self._follow(status, consuming, t_start_ns)
            self._consumed(consuming, t_start_ns, status, None)
            return status

        return call

    def decided(
        self, message: Message | MessageExt, msg_id: str, state: TransactionState, *,
        broker_addr: str, from_check: bool,
    ) -> None:  # fmt: skip
        """Tell of a decision that was sent."""
        if isinstance(message, Message):
            tags, keys = message.tags, message.keys
        else:
            tags, keys = (message.maybe_property(name) or "" for name in ("TAGS", "KEYS"))
        self._tell(
            Hook.on_decided,
            Decided(
                group=self._group,
                topic=message.topic,
                msg_id=msg_id,
                tags=tags,
                keys=keys,
                state=state,
                broker_addr=broker_addr,
                from_check=from_check,
                t_ms=self._clock.wall_ms(),
            ),
        )

    async def _follow(
        self, call: Awaitable[ConsumeStatus], consuming: Consuming, t_start_ns: int
    ) -> ConsumeStatus:
        status: ConsumeStatus | None = None
        failure: BaseException | None = None
        try:
            status = await call
        except BaseException as error:
            failure = error
            raise
        finally:
            self._consumed(consuming, t_start_ns, status, failure)
        return status

    def _consumed(
        self, consuming: Consuming, t_start_ns: int, status: object, error: BaseException | None
    ) -> None:
        consuming.status, consuming.error = status, error
        consuming.took_ms = (self._clock.monotonic_ns() - t_start_ns) // _NS_PER_MS
        self._tell(Hook.after_consume, consuming)

    def _tell(self, what: Callable[[Hook, T], None], told: T) -> None:
        for hook in self._hooks:
            try:
                getattr(hook, what.__name__)(told)
            except Exception:  # noqa: BLE001 - a hook that fails changes nothing
                name = type(hook).__name__
                _log.exception(
                    "group=%s event=hook_failed hook=%s.%s", self._group, name, what.__name__
                )

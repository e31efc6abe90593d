"""Message traces: who sent a message and who consumed it, as messages of a topic of their own.

Records wait in a bounded line and are sent by a producer of their own, many in a message; it is
neither traced nor hooked. Records beyond the bound, and those that cannot be sent, are dropped and
counted: a trace never keeps anybody waiting. Source: AsyncTraceDispatcher 4.9.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Protocol

from ledgermq.client import trace_codec
from ledgermq.client.config import ClientConfig
from ledgermq.client.hooks import Consuming, Decided, Hook, Hooks, Sending
from ledgermq.client.limits import TRACES_WAITING_BYTES_MAX, TRACES_WAITING_MAX
from ledgermq.client.message import Message, SendResult
from ledgermq.client.trace_codec import Record
from ledgermq.client.validation import GROUP_CHARS_MAX
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.unique_id import UniqueIdGenerator
from ledgermq.runtime.clock import Clock

_log = logging.getLogger(__name__)

GROUP_PREFIX = "_INNER_TRACE_PRODUCER-"
RECORDS_MAX = 100
"""Records in a message."""
MESSAGE_BYTES_MAX = 118_000
KEYS_CHARS_MAX = 16_000
"""Keys of a message: each is an entry in the broker's index."""
GATHER_MS = 50
"""How long records are gathered before they are sent."""
STOP_MS = 1_000
"""How long a client that is stopped waits for its traces."""
SEND_MS = 5_000
_REQUEST_ID = "trace"


def hooks_of(
    config: ClientConfig,
    make_producer: "Callable[[ClientConfig], InnerProducer]",
    clock: Clock,
    ids: UniqueIdGenerator,
) -> "tuple[Hooks | None, Tracing | None]":
    """Return the hooks and the traces that a client has by its settings."""
    tracing = (
        Tracing(config, make_producer, lambda: ids.next(clock.wall_ms())) if config.trace else None
    )
    hooks = config.hooks if tracing is None else (*config.hooks, tracing)
    return Hooks(hooks, config.group, clock) if hooks else None, tracing


class InnerProducer(Protocol):
    """The producer of traces."""

    async def start(self) -> None:
        """Begin."""
        ...

    async def stop(self) -> None:
        """End."""
        ...

    def send(self, message: Message) -> Awaitable[SendResult]:
        """Send."""
        ...


class Tracing(Hook):
    """The traces of one client; ``next_id`` makes ids of listener calls."""

    def __init__(
        self,
        config: ClientConfig,
        make_producer: Callable[[ClientConfig], InnerProducer],
        next_id: Callable[[], str],
    ) -> None:
        self._topic = config.trace_topic
        self._next_id = next_id
        self._producer = make_producer(
            replace(
                config,
                group=(GROUP_PREFIX + config.group)[:GROUP_CHARS_MAX],
                instance_name="",
                hooks=(),
                trace=False,
                auto_batch=False,
                send_timeout_ms=SEND_MS,
                stop_timeout_ms=STOP_MS,
            )
        )
        self._waiting: deque[Record] = deque()
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0
        """Records that were not sent: too many waited, or the brokers did not take them."""

    async def start(self) -> None:
        """Begin to send."""
        await self._producer.start()
        self._task = asyncio.create_task(self._run(), name="traces")

    async def stop(self) -> None:
        """Send what waits, for a bounded time, and end.

        Calling it again is harmless, and ends what a call that was cancelled has left.
        """
        task = self._task
        if task is None:
            return
        self._closing = True
        self._wake.set()
        await asyncio.wait({task}, timeout=STOP_MS / 1000)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._drop(len(self._waiting))
        self._waiting.clear()
        await self._producer.stop()

    def after_send(self, sending: Sending) -> None:
        """Trace a send, unless it is of a trace."""
        if sending.messages[0].topic != self._topic:
            self._add(trace_codec.of_send(sending))

    def before_consume(self, consuming: Consuming) -> None:
        """Trace that a listener gets messages."""
        request_id = self._next_id()
        consuming.notes[_REQUEST_ID] = request_id
        self._add(trace_codec.of_call(consuming, request_id))

    def after_consume(self, consuming: Consuming) -> None:
        """Trace what it made of them."""
        request_id = consuming.notes[_REQUEST_ID]
        self._add(trace_codec.of_outcome(consuming, str(request_id)))

    def on_decided(self, decided: Decided) -> None:
        """Trace a decision about a transaction."""
        self._add([trace_codec.of_decision(decided)])

    def _add(self, records: Iterable[Record]) -> None:
        for text, keys in records:
            size_bytes = len(text)
            if (
                len(self._waiting) >= TRACES_WAITING_MAX
                or self._waiting_bytes + size_bytes > TRACES_WAITING_BYTES_MAX
            ):
                self._drop(1)
                continue
            self._waiting.append((text, keys))
            self._waiting_bytes += size_bytes
        if self._waiting:
            self._wake.set()

    def _drop(self, count: int) -> None:
        before, self.dropped = self.dropped, self.dropped + count
        if self.dropped.bit_length() > before.bit_length():
            _log.warning("topic=%s event=traces_dropped count=%d", self._topic, self.dropped)

    async def _run(self) -> None:
        while not self._closing:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(GATHER_MS / 1000)
            while self._waiting:
                await self._send_some()

    async def _send_some(self) -> None:
        """Send the records that wait longest as one message."""
        texts: list[str] = []
        keys: dict[str, None] = {}
        body_bytes = keys_chars = 0
        while self._waiting and len(texts) < RECORDS_MAX:
            text, found_by = self._waiting[0]
            if sum(map(len, found_by)) > KEYS_CHARS_MAX:
                found_by = found_by[:1]  # The message's id is what traces are looked up by.
            more_keys = sum(len(key) + 1 for key in found_by if key not in keys)
            more_bytes = len(text.encode())
            is_full = body_bytes + more_bytes > MESSAGE_BYTES_MAX
            if texts and (is_full or keys_chars + more_keys > KEYS_CHARS_MAX):
                break
            self._waiting.popleft()
            self._waiting_bytes -= len(text)
            texts.append(text)
            keys.update(dict.fromkeys(found_by))
            body_bytes += more_bytes
            keys_chars += more_keys
        message = Message(self._topic, "".join(texts).encode(), keys=" ".join(keys))
        try:
            await self._producer.send(message)
        except RemotingError as error:
            _log.info("topic=%s event=traces_unsent error=%s", self._topic, error)
            self._drop(len(texts))
        except asyncio.CancelledError:
            self._drop(len(texts))
            raise

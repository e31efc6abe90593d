"""Running the listener: bounded concurrency, failures sent back or kept for another try here.

A message is finished (and so may be committed past) when the listener succeeded or the broker has
taken it back for a later delivery. If the broker cannot, the message stays unfinished and the
listener gets it again after ``local_retry_ms``: never lost, at the price that the committed offset
waits for it. Source: ConsumeMessageConcurrentlyService (spec/wire.md 7.5).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from ledgermq.client.config import ConsumeOptions
from ledgermq.client.listening import Listener, call_listener
from ledgermq.client.message import ConsumeContext, ConsumeStatus
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.pulled import restore_topic
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.message import MessageExt

_log = logging.getLogger(__name__)

SendBack = Callable[[ProcessQueue, MessageExt, int], Awaitable[None]]

CALLS_PER_TURN_MAX = 64
"""Listener calls that never wait give the loop a turn after so many."""


class ConsumeService:
    """The workers of one push consumer.

    ``send_back`` asks the broker to deliver a message later (raises ``RemotingError``);
    ``on_finished`` is told whose messages were finished.
    """

    def __init__(
        self,
        listener: Listener,
        options: ConsumeOptions,
        send_back: SendBack,
        on_finished: Callable[[ProcessQueue], None],
    ) -> None:
        self._listener = listener
        self._options = options
        self._send_back = send_back
        self._on_finished = on_finished
        self._ready: deque[_Call] = deque()
        self._wake: deque[asyncio.Future[None]] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._stopping = False

    def submit(
        self,
        process_queue: ProcessQueue,
        messages: Sequence[MessageExt],
        pulled_ns: tuple[int, int],
    ) -> None:
        """Queue messages for the listener; ``pulled_ns`` is when their pull began and ended."""
        size = self._options.consume_batch_count
        for start in range(0, len(messages), size):
            batch = [restore_topic(message) for message in messages[start : start + size]]
            self._ready.append((process_queue, batch, pulled_ns))
        self._call_workers()

    async def stop(self, timeout_ms: int) -> None:
        """Begin no further calls and wait for those in progress, at most ``timeout_ms``.

        A listener that takes longer is not cancelled: its worker ends when it returns.
        """
        self._stopping = True
        self._ready.clear()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._wake_workers(len(self._wake))
        if self._workers:
            _, running = await asyncio.wait(self._workers, timeout=timeout_ms / 1000)
            if running:
                _log.warning("event=listeners_still_running count=%d", len(running))

    def _call_workers(self) -> None:
        wanted = len(self._ready)
        self._wake_workers(wanted)
        missing = min(wanted, self._options.concurrency) - len(self._workers)
        for _ in range(missing):
            worker = asyncio.create_task(self._work(), name="consume")
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    def _wake_workers(self, count: int) -> None:
        for _ in range(min(count, len(self._wake))):
            waiting = self._wake.popleft()
            if not waiting.done():
                waiting.set_result(None)

    async def _work(self) -> None:
        calls = 0
        while not self._stopping:
            if not self._ready:
                calls = 0
                waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._wake.append(waiting)
                await waiting
                continue
            process_queue, messages, pulled_ns = self._ready.popleft()
            if not process_queue.dropped:
                await self._consume(process_queue, messages, pulled_ns)
            calls += 1
            if calls % CALLS_PER_TURN_MAX == 0:
                await asyncio.sleep(0)

    async def _consume(
        self, process_queue: ProcessQueue, messages: list[MessageExt], pulled_ns: tuple[int, int]
    ) -> None:
        context = ConsumeContext(process_queue.queue, 0, *pulled_ns)
        # The listener may take its list apart: what it was given is finished, or sent back.
        status = await call_listener(self._listener, list(messages), context)
        if status is ConsumeStatus.CONSUME_SUCCESS:
            process_queue.finish(messages)
        elif not process_queue.dropped:
            await self._hand_back(process_queue, messages, context.delay_level, pulled_ns)
        self._on_finished(process_queue)

    async def _hand_back(
        self,
        process_queue: ProcessQueue,
        messages: list[MessageExt],
        delay_level: int,
        pulled_ns: tuple[int, int],
    ) -> None:
        kept: list[MessageExt] = []
        for message in messages:
            try:
                await self._send_back(process_queue, message, delay_level)
            except RemotingError as error:
                _log.info(
                    "queue=%s offset=%d event=send_back_failed error=%s",
                    process_queue.queue, message.queue_offset, error,
                )  # fmt: skip
                message.reconsume_times += 1
                kept.append(message)
            else:
                process_queue.finish([message])
        if kept and not self._stopping:
            self._retry_later(process_queue, kept, pulled_ns)

    def _retry_later(
        self, process_queue: ProcessQueue, messages: list[MessageExt], pulled_ns: tuple[int, int]
    ) -> None:
        def resubmit() -> None:
            self._timers.discard(timer)
            if not process_queue.dropped:
                self.submit(process_queue, messages, pulled_ns)

        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._options.local_retry_ms / 1000, resubmit)
        self._timers.add(timer)


_Call = tuple[ProcessQueue, list[MessageExt], tuple[int, int]]

"""Running an orderly listener: each queue is a line, and one batch of it is in hand at a time.

A failure suspends its queue for a moment, then the same messages are tried again: nothing behind
them is handed out before. Beyond ``max_reconsume_times`` the broker is asked to put them into the
dead-letter queue of the group; as long as it cannot, they stay at the head of the line. Before
each call the queue's lock is looked at (`ledgermq.client.queue_locks`).
Source: ConsumeMessageOrderlyService (spec/wire.md 7.5).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from ledgermq.client.config import ConsumeOptions
from ledgermq.client.consume import CALLS_PER_TURN_MAX, SendBack
from ledgermq.client.listening import Listener, call_listener
from ledgermq.client.message import ConsumeContext, ConsumeStatus, MessageQueue
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.pulled import restore_topic
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.runtime.cancel import timeout

_log = logging.getLogger(__name__)

SUSPEND_MS_MIN = 10
SUSPEND_MS_MAX = 30_000
DEAD_LETTER_LEVEL = -1
"""The delay level by which a broker puts what is sent back into the dead-letter queue at once."""

Batch = tuple[list[MessageExt], tuple[int, int]]


class OrderlyService:
    """The lines of one push consumer.

    ``send_back`` asks the broker to take a message (raises ``RemotingError``), ``on_finished`` is
    told whose messages were finished, ``may_begin`` says whether a queue is this member's now.
    """

    def __init__(
        self,
        listener: Listener,
        options: ConsumeOptions,
        send_back: SendBack,
        on_finished: Callable[[ProcessQueue], None],
        may_begin: Callable[[MessageQueue], bool],
    ) -> None:
        self._listener = listener
        self._options = options
        self._send_back = send_back
        self._on_finished = on_finished
        self._may_begin = may_begin
        self._lines: dict[ProcessQueue, _Line] = {}
        self._slots = asyncio.Semaphore(options.concurrency)
        self._stopping = False

    def submit(
        self,
        process_queue: ProcessQueue,
        messages: Sequence[MessageExt],
        pulled_ns: tuple[int, int],
    ) -> None:
        """Queue messages behind those of their queue; ``pulled_ns`` is as in `ConsumeService`."""
        if process_queue.dropped or self._stopping or not messages:
            return
        line = self._lines.get(process_queue)
        if line is None:
            line = self._lines[process_queue] = _Line(process_queue)
        size = self._options.consume_batch_count
        for start in range(0, len(messages), size):
            batch = [restore_topic(message) for message in messages[start : start + size]]
            line.waiting.append((batch, pulled_ns))
        if line.task is None:
            line.task = asyncio.create_task(self._work(line), name="consume-orderly")

    async def settle(self, process_queue: ProcessQueue, timeout_ms: int) -> bool:
        """Wait until nothing of a dropped queue is in hand, at most ``timeout_ms``."""
        line = self._lines.get(process_queue)
        if line is None or line.task is None:
            self._lines.pop(process_queue, None)
            return True
        line.wake.set()
        _, running = await asyncio.wait({line.task}, timeout=timeout_ms / 1000)
        if running:
            _log.warning("queue=%s event=listener_still_running", process_queue.queue)
        return not running

    async def stop(self, timeout_ms: int) -> None:
        """Begin no further calls and wait for those in progress, at most ``timeout_ms``."""
        self._stopping = True
        tasks = [line.task for line in self._lines.values() if line.task is not None]
        for line in self._lines.values():
            line.wake.set()
        if tasks:
            _, running = await asyncio.wait(tasks, timeout=timeout_ms / 1000)
            if running:
                _log.warning("event=listeners_still_running count=%d", len(running))

    def in_hand(self) -> set[MessageQueue]:
        """Return the queues of which the listener has something now."""
        return {one.queue for one, line in self._lines.items() if line.task is not None}

    async def _work(self, line: "_Line") -> None:
        calls = 0
        try:
            while self._goes_on(line):
                suspend_ms = None
                async with self._slots:
                    if self._goes_on(line):
                        suspend_ms = await self._hand_out(line)
                if suspend_ms is not None:
                    await self._suspend(line, suspend_ms)
                calls += 1
                if calls % CALLS_PER_TURN_MAX == 0:
                    await asyncio.sleep(0)
        finally:
            line.task = None
            if line.process_queue.dropped or not line.waiting:
                self._lines.pop(line.process_queue, None)

    def _goes_on(self, line: "_Line") -> bool:
        one = line.process_queue
        if not line.waiting or one.dropped or self._stopping:
            return False
        return self._may_begin(one.queue)

    async def _hand_out(self, line: "_Line") -> int | None:
        """Give the head of the line to the listener; returns how long to suspend, or None."""
        one = line.process_queue
        messages, pulled_ns = line.waiting[0]
        context = ConsumeContext(one.queue, 0, *pulled_ns)
        status = await call_listener(self._listener, list(messages), context)
        done = status is ConsumeStatus.CONSUME_SUCCESS
        if not done and not one.dropped:
            done = await self._give_up(one, messages)
        if done:
            line.waiting.popleft()
            one.finish(messages)
            self._on_finished(one)
            return None
        asked_ms = context.suspend_ms
        wait_ms = self._options.order_suspend_ms if asked_ms is None else asked_ms
        return min(max(wait_ms, SUSPEND_MS_MIN), SUSPEND_MS_MAX)

    async def _give_up(self, one: ProcessQueue, messages: list[MessageExt]) -> bool:
        """Count a failed try; hand over to the dead letters what was tried too often.

        Returns whether the broker took all of the messages.
        """
        limit = self._options.max_reconsume_times
        left = list(messages)
        for message in messages:
            if limit < 0 or message.reconsume_times < limit:
                message.reconsume_times += 1
                continue
            try:
                await self._send_back(one, message, DEAD_LETTER_LEVEL)
            except RemotingError as error:
                message.reconsume_times += 1
                _log.warning(
                    "queue=%s offset=%d event=not_given_up error=%s",
                    one.queue, message.queue_offset, error,
                )  # fmt: skip
            else:
                left.remove(message)
                one.finish([message])
                self._on_finished(one)
        messages[:] = left
        return not left

    async def _suspend(self, line: "_Line", wait_ms: int) -> None:
        line.wake.clear()
        if line.process_queue.dropped or self._stopping:
            return
        try:
            async with timeout(wait_ms / 1000):
                await line.wake.wait()
        except TimeoutError:
            return


class _Line:
    """What waits of one queue, and who works at it."""

    __slots__ = ("process_queue", "task", "waiting", "wake")

    def __init__(self, process_queue: ProcessQueue) -> None:
        self.process_queue = process_queue
        self.waiting: deque[Batch] = deque()
        self.task: asyncio.Task[None] | None = None
        self.wake = asyncio.Event()
        """Set when a suspended line has to look whether it goes on."""

"""What was pulled and waits for a caller who polls, and what he has been given.

A message given out counts as done at the caller's next poll, no earlier: until then its offset is
not committed. Queues that were dropped give out nothing more. Knows no broker and no loop but the
event by which it wakes the caller. Source: DefaultLitePullConsumerImpl.poll.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from ledgermq.client.message import MessageQueue
from ledgermq.client.pauses import Pauses
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.remoting.protocol.message import MessageExt


class ManualQueue(ProcessQueue):
    """A queue of which only that is committed which the caller has said."""

    __slots__ = ("asked",)

    def __init__(self, queue: MessageQueue, next_offset: int) -> None:
        super().__init__(queue, next_offset)
        self.asked: int | None = None
        """The offset to commit; None before the caller has said one."""

    def move(self, offset: int) -> None:
        """Go on elsewhere, as a tool wants it; that is committed, too."""
        super().move(offset)
        self.asked = offset

    def begin(self) -> None:
        """See `ProcessQueue`: who takes the queue next must not begin at its end again."""
        super().begin()
        self.asked = self.next_offset

    def maybe_commit_offset(self) -> int | None:
        """Return the offset that the caller wants to be committed."""
        return None if self.lost else self.asked


class Polled:
    """The cache of one consumer; ``on_done`` is told whose messages were done with."""

    def __init__(self, on_done: Callable[[ProcessQueue], None]) -> None:
        self._on_done = on_done
        self._waiting: deque[tuple[ProcessQueue, deque[MessageExt]]] = deque()
        self._given: list[tuple[ProcessQueue, list[MessageExt]]] = []
        self.waiting = 0
        """Messages that were not given out; those of dropped queues until somebody polls."""
        self.arrived = asyncio.Event()
        """Set when there may be something to take."""

    def submit(
        self,
        process_queue: ProcessQueue,
        messages: Sequence[MessageExt],
        pulled_ns: tuple[int, int],
    ) -> None:
        """Keep the messages of a pull until they are taken."""
        if messages:
            self._waiting.append((process_queue, deque(messages)))
            self.waiting += len(messages)
            self.arrived.set()

    def waiting_of(self, paused: Pauses) -> int:
        """Return how many messages wait of queues that are neither dropped nor paused."""
        return sum(
            len(messages)
            for one, messages in self._waiting
            if not one.dropped and one.queue not in paused
        )

    def take(self, count_max: int, paused: Pauses) -> list[MessageExt]:
        """Give out up to ``count_max`` messages of queues that are neither dropped nor paused."""
        found: list[MessageExt] = []
        put_back: list[tuple[ProcessQueue, deque[MessageExt]]] = []
        while self._waiting and len(found) < count_max:
            one, messages = self._waiting.popleft()
            if one.dropped:
                self.waiting -= len(messages)
                continue
            if one.queue in paused:
                put_back.append((one, messages))
                continue
            given = [messages.popleft() for _ in range(min(count_max - len(found), len(messages)))]
            found += given
            self.waiting -= len(given)
            self._given.append((one, given))
            if messages:
                self._waiting.appendleft((one, messages))
        self._waiting.extendleft(reversed(put_back))
        if not found:
            self.arrived.clear()
        return found

    def take_back(self, messages: Sequence[MessageExt]) -> None:
        """Keep what the last `take` gave out, if that was this, until it is taken again."""
        given = list(self._given)
        if [id(message) for _, some in given for message in some] != [id(one) for one in messages]:
            return  # Somebody else took since then: this was finished.
        self._given.clear()
        for one, some in reversed(given):
            self._waiting.appendleft((one, deque(some)))
            self.waiting += len(some)
        self.arrived.set()

    def finish(self) -> None:
        """What was given out so far is done with."""
        given, self._given = self._given, []
        for one, messages in given:
            one.finish(messages)
            self._on_done(one)

    def keep(self) -> None:
        """What was given out last is not done with: it will come again."""
        self._given.clear()

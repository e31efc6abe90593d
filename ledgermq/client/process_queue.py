"""The messages of one queue between pull and commit.

Pure bookkeeping: messages arrive in the order of their offsets, are finished in any order, and
the offset that may be committed is the smallest one unfinished. Source: RocketMQ ProcessQueue.
"""

from collections import deque
from collections.abc import Iterable

from ledgermq.client.config import ConsumeOptions
from ledgermq.client.message import MessageQueue
from ledgermq.remoting.protocol.message import MessageExt


class ProcessQueue:
    """One assigned queue; ``next_offset`` is where the next pull begins."""

    __slots__ = (
        "_bytes", "_cached", "_order", "dropped", "era", "lost", "next_offset", "pulled", "queue",
    )  # fmt: skip

    def __init__(self, queue: MessageQueue, next_offset: int) -> None:
        self.queue = queue
        self.next_offset = next_offset
        self.dropped = False
        """Set when the queue went to another consumer: nothing more is consumed or committed."""
        self.lost = False
        """Set when another consumer may have it already: what it has committed must stand."""
        self.era = 0
        """Counts the resets: an offset of an earlier era must not be committed any more."""
        self.pulled = False
        """Whether a pull has confirmed ``next_offset``; before that nothing need be committed."""
        self._order: deque[int] = deque()
        self._cached: dict[int, tuple[MessageExt, int]] = {}
        """By offset, what is unfinished and how long its body was."""
        self._bytes = 0

    def put(self, messages: Iterable[MessageExt], next_offset: int) -> None:
        """Take the messages of a pull (ascending offsets) and where the next one begins."""
        for message in messages:
            size_bytes = len(message.body)
            self._order.append(message.queue_offset)
            self._cached[message.queue_offset] = message, size_bytes
            self._bytes += size_bytes
        self.next_offset = next_offset
        self.pulled = True

    def finish(self, messages: Iterable[MessageExt]) -> None:
        """Forget messages that are done with, in any order; unknown ones are ignored.

        1. A broker loses the end of its log. 2. `reset` goes back to where that ends now, while
        messages from behind it are under way. 3. Others come, at the same offsets. What finishes
        of the first ones says nothing of those, which must not be committed past.
        """
        for message in messages:
            known, size_bytes = self._cached.get(message.queue_offset, (None, 0))
            if known is message:
                del self._cached[message.queue_offset]
                self._bytes -= size_bytes
        order, cached = self._order, self._cached
        while order and order[0] not in cached:
            order.popleft()

    def reset(self, next_offset: int) -> None:
        """Forget everything and go on from ``next_offset``; messages under way are not waited for.

        What is finished later does not matter: unknown messages are ignored.
        """
        self._order.clear()
        self._cached.clear()
        self._bytes = 0
        self.next_offset = next_offset
        self.era += 1

    def move(self, offset: int) -> None:
        """Drop the queue: whoever takes it next begins at ``offset``, which is to be committed."""
        self.dropped = self.pulled = True
        self.reset(offset)

    def begin(self) -> None:
        """Have where the queue begins committed, though nothing was consumed yet."""
        self.pulled = True

    def maybe_commit_offset(self) -> int | None:
        """Return the smallest unfinished offset, or where to pull next if nothing is left."""
        if not self.pulled or self.lost:
            return None
        return self._order[0] if self._order else self.next_offset

    def maybe_flow_control(self, options: ConsumeOptions) -> str | None:
        """Return why pulling must pause, None if it need not."""
        if len(self._cached) > options.max_cached_messages:
            return f"{len(self._cached)} messages cached"
        if self._bytes > options.max_cached_bytes:
            return f"{self._bytes} bytes cached"
        if self._order and self._order[-1] - self._order[0] > options.max_offset_span:
            return f"offset span {self._order[-1] - self._order[0]}"
        return None

    @property
    def position(self) -> int:
        """Where the group is in this queue, whether or not it may be committed."""
        return self._order[0] if self._order else self.next_offset

    @property
    def cached_count(self) -> int:
        """How many messages are unfinished."""
        return len(self._cached)

    @property
    def cached_bytes(self) -> int:
        """How long their bodies are together."""
        return self._bytes

    @property
    def cached_span(self) -> tuple[int, int]:
        """The smallest and the largest offset of them, zeros if there are none."""
        return (self._order[0], self._order[-1]) if self._cached else (0, 0)

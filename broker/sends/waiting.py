"""Sends that wait until their topic exists, in the order in which they came.

A topic is open here from the first send that waits until the last one has been let go on; whoever
sends to it meanwhile must wait behind them, or a later message of a producer would lie before an
earlier one. They are let go on a few at a time, so that other clients are served in between.
It knows neither topics nor messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.limits import CREATIONS_MAX, PARKED_BYTES_MAX, PARKED_MAX, PARKED_TOPIC_BYTES_MAX
from broker.sends.room import SMALL_BYTES
from ledgermq.runtime.tasks import attempt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledgermq.remoting.protocol.limits import Limit

    Resume = Callable[[tuple[int, str] | None], object]

SLICE_SENDS: Final = 64
SLICE_BYTES: Final = 64 * 1024
"""What is let go on in one turn of the loop, and one send more."""


class WaitingRoom:
    """Who waits for which topic.

    Args:
        enter: returns when the log has room for what is let go on.
    """

    def __init__(self, enter: Callable[[], Awaitable[None]]) -> None:
        self._enter = enter
        self.topics: dict[str, deque[tuple[Resume, int]]] = {}
        """By topic, in order; read at every send."""
        self._topic_bytes: dict[str, int] = {}
        self.count = 0
        self.size_bytes = 0

    def gauges(self) -> tuple[tuple[Limit, Callable[[], int]], ...]:
        """Return the limits of what waits, and how to count what is used of them."""
        return (
            (CREATIONS_MAX, self.topics.__len__),
            (PARKED_MAX, lambda: self.count),
            (PARKED_BYTES_MAX, lambda: self.size_bytes),
        )

    def open(self, topic: str) -> None:
        """Have sends to a topic wait from now on."""
        assert topic not in self.topics, topic
        self.topics[topic] = deque()
        self._topic_bytes[topic] = 0

    def add(self, topic: str, resume: Resume, size_bytes: int) -> bool:
        """Let a send wait for an open topic; False if there are too many."""
        waiting = self.topics[topic]
        if (
            self.count >= PARKED_MAX
            or self._topic_bytes[topic] + size_bytes > PARKED_TOPIC_BYTES_MAX
            or self.size_bytes + size_bytes > PARKED_BYTES_MAX
        ):
            return False
        waiting.append((resume, size_bytes))
        self._topic_bytes[topic] += size_bytes
        self.count += 1
        self.size_bytes += size_bytes
        return True

    async def let_go(self, topic: str, answer: tuple[int, str] | None) -> None:
        """Call everybody who waits for a topic with ``answer``, in order; then close it."""
        waiting = self.topics[topic]
        while waiting:
            if answer is None and waiting[0][1] > SMALL_BYTES:
                await self._enter()
            sends = slice_bytes = 0
            while waiting and sends < SLICE_SENDS and slice_bytes < SLICE_BYTES:
                if sends and waiting[0][1] > SMALL_BYTES:
                    break  # It may have to wait.
                resume, size_bytes = waiting.popleft()
                self._topic_bytes[topic] -= size_bytes
                self.count -= 1
                self.size_bytes -= size_bytes
                sends += 1
                slice_bytes += size_bytes
                attempt(f"send that waited for {topic}", partial(resume, answer))
            if waiting:
                await asyncio.sleep(0)
        del self.topics[topic], self._topic_bytes[topic]

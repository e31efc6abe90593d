"""What a push consumer has been told not to pull for a while."""

import asyncio
from collections.abc import Iterable

from ledgermq.client.message import MessageQueue


class Pauses:
    """A queue is paused while it is, or all are."""

    def __init__(self) -> None:
        self._all = False
        self._queues: set[MessageQueue] = set()
        self._resumed = asyncio.Event()

    @property
    def of_all(self) -> bool:
        """Whether all queues are paused, whatever is said of single ones."""
        return self._all

    def __contains__(self, queue: MessageQueue) -> bool:
        return self._all or queue in self._queues

    def pause(self, queues: Iterable[MessageQueue] | None) -> None:
        """Pause some queues, or all, those that come later among them."""
        if queues is None:
            self._all = True
        else:
            self._queues.update(queues)

    def resume(self, queues: Iterable[MessageQueue] | None) -> None:
        """Go on with some queues, once not all are paused, or with all."""
        if queues is None:
            self._all = False
            self._queues.clear()
        else:
            self._queues.difference_update(queues)
        self._resumed.set()

    async def passed(self, queue: MessageQueue) -> None:
        """Wait until ``queue`` is not paused."""
        while queue in self:
            self._resumed.clear()
            await self._resumed.wait()

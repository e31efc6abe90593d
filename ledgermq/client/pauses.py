"""What a push consumer has been told not to pull for a while."""

import asyncio
from collections.abc import Iterable

from ledgermq.client.message import MessageQueue


def checked(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Return queues that a caller names. Errors: ``TypeError`` for what is none.

    A queue is itself a tuple: one in the place of a list would be three things that are no queues.
    """
    found = list(queues)
    for queue in found:
        if not isinstance(queue, MessageQueue):
            raise TypeError(f"{queue!r} is no MessageQueue; several are expected, as in a list")
    return found


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
        """Pause some queues, or all, those that come later among them. Errors: ``TypeError``."""
        if queues is None:
            self._all = True
        else:
            self._queues.update(checked(queues))

    def resume(self, queues: Iterable[MessageQueue] | None) -> None:
        """Go on with some queues, once not all are paused, or with all. Errors: ``TypeError``."""
        if queues is None:
            self._all = False
            self._queues.clear()
        else:
            self._queues.difference_update(checked(queues))
        self._resumed.set()

    async def passed(self, queue: MessageQueue) -> None:
        """Wait until ``queue`` is not paused."""
        while queue in self:
            self._resumed.clear()
            await self._resumed.wait()

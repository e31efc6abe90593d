"""Tells that queues got messages; wakes held pulls after dispatch, once a queue and turn.

The store tells of new messages in the middle of answering sends; waking is put off to the end of
the turn, so that the acknowledgements leave first and messages of one turn are read together. Many
pulls are woken in slices, so that a message for which thousands wait does not stop the clock.
Source: spec/wire.md 7.2; RocketMQ NotifyMessageArrivingListener.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledgermq.runtime.tasks import report_serving_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.pulls.long_polling import HoldTable

WORK_MAX: Final = 128
"""Work of one turn: a pull is 1, and so are each 64 KiB of its answer and 64 messages looked at."""


class WakeUp:
    """Collects the queues that got messages.

    Args:
        wake: runs held pulls of a queue, given (topic, queue id, max offset, how much work it may
            do); returns how much is left, 0 when more pulls wait.
        call_soon: puts a call off to the end of the loop's turn.
        others: by topic: who else is told at once, and given the queue id.
    """

    def __init__(
        self,
        held: HoldTable,
        wake: Callable[[str, int, int, int], int],
        call_soon: Callable[[Callable[[], None]], object],
        others: Mapping[str, Callable[[int], None]],
    ) -> None:
        self._held = held
        self._wake = wake
        self._call_soon = call_soon
        self._others = others
        self._arrived: dict[tuple[str, int], int] = {}

    def on_message(self, topic: str, queue_id: int, max_offset: int) -> None:
        """Note that a queue now ends at ``max_offset``; cheap when nobody waits for it."""
        if self._held.waits(topic, queue_id):
            if not self._arrived:
                self._call_soon(self._run)
            self._arrived[(topic, queue_id)] = max_offset
        other = self._others.get(topic)
        if other is not None:
            other(queue_id)

    def _run(self) -> None:
        arrived, left = self._arrived, WORK_MAX
        while arrived and left > 0:
            place, max_offset = next(iter(arrived.items()))
            try:
                left = self._wake(*place, max_offset, left)
            except Exception as error:  # noqa: BLE001 - told; without a next turn nobody is woken
                report_serving_failure(f"held pulls of {place[0]}, queue {place[1]}", error)
            if left > 0:
                del arrived[place]
        if arrived:
            self._call_soon(self._run)

"""What waits in the schedule topic, and until when: the store's part of delayed delivery.

A unit there has, in the place of a tags code, the time at which its message is due. That time and
what is compared with it come from the same stamps, which never fall along a log, whoever leads: a
clock that another replica has, or that is set, makes nothing due early.
Source: spec/disk.md 5.3; RocketMQ ConsumeQueue, ScheduleMessageService.
"""

from typing import TYPE_CHECKING, Final

from store.layout import SCHEDULE_TOPIC_BYTES, UNIT
from store.queues.consume_queue import DamagedUnits

if TYPE_CHECKING:
    from store.config import StoreConfig
    from store.queues.consume_queue import ConsumeQueue, ConsumeQueues
    from store.write.stamps import Stamps

_NO_QUEUES: "Final[dict[int, ConsumeQueue]]" = {}


class Schedule:
    """The queues of the schedule topic; nothing is changed."""

    def __init__(self, config: "StoreConfig", queues: "ConsumeQueues", stamps: "Stamps") -> None:
        self._by_topic = queues.by_topic
        self.now_ms = stamps.now
        """The time that a message would be stamped with now."""
        self.delays_ms = config.delay_levels_ms
        """Of level 1, 2, ..."""

    @property
    def queue_ids(self) -> list[int]:
        """The queues in which something ever waited."""
        return sorted(self._by_topic.get(SCHEDULE_TOPIC_BYTES, _NO_QUEUES))

    def span(self, queue_id: int) -> tuple[int, int]:
        """Return the first offset of a queue that is still there, and one past the last."""
        queue = self._by_topic.get(SCHEDULE_TOPIC_BYTES, _NO_QUEUES).get(queue_id)
        return (0, 0) if queue is None else (queue.min_offset, queue.max_offset)

    def due_times(self, queue_id: int, offset: int, count: int) -> list[int] | None:
        """Return when the messages from ``offset`` on are due (ms), at most ``count`` of them.

        None: the units cannot be read at present.
        """
        queue = self._by_topic.get(SCHEDULE_TOPIC_BYTES, _NO_QUEUES).get(queue_id)
        if queue is None or offset >= queue.max_offset:
            return []
        try:
            units = queue.read(offset, min(count, queue.max_offset - offset))
        except DamagedUnits:
            return None
        return [code for _, _, code in UNIT.iter_unpack(units)]

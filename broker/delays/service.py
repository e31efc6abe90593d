"""Delivers delayed messages: the leader puts what is due into the topic that it was sent to.

It begins where the log says that delivery stands, and moves on in memory by what it puts; a put
that is refused takes it back to that message, and what was put before goes on. So a level has
neither a gap nor a message twice. A put that waits long is waited for: whether it commits is not
known before, and a term that ends forgets all of it; whoever leads next has applied what did.

A turn takes a bounded number, and only so many, and so many bytes, are on their way at a time, so
that a great many that are due at once leave room for sends. Between turns there is one timer.
Source: spec/wire.md 7.4; RocketMQ 4.9.7 ScheduleMessageService; docs/delays.md.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from broker.delays.agenda import Agenda, Level
from broker.delays.copies import scheduled_of
from broker.delays.progress import DelayProgress
from broker.leader.service import LeaderService
from broker.state.kinds import StateKind
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.tasks import report_serving_failure
from store.layout import SCHEDULE_TOPIC_BYTES, CorruptRecord
from store.origins import delivered
from store.results import GetStatus, PutStatus
from store.write.uncommitted import LATE

if TYPE_CHECKING:
    from collections import defaultdict
    from collections.abc import Callable, Iterable

    from broker.state.table import ReplicatedTable
    from store.read.reader import Reader
    from store.read.schedule import Schedule
    from store.write.writer import Writer

_log = logging.getLogger(__name__)

SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC_BYTES.decode()
TURN_MAX: Final = 64
"""Messages of one turn of the loop: one to two milliseconds."""
READ_BYTES_MAX: Final = 256 * 1024
"""Bytes of one turn, beyond which nothing more is read in it."""
IN_FLIGHT_MAX: Final = 1_024
IN_FLIGHT_BYTES_MAX: Final = 2 * 1024 * 1024
"""On their way at a time, and one message more: what is sent meanwhile waits behind them."""
RETRY_MS: Final = 100
DAMAGED_RETRY_MS: Final = 1_000
_ILLEGAL: Final = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})


class DelayStore(Protocol):
    """What is needed of the store."""

    schedule: Schedule
    reader: Reader
    writer: Writer


class Timer(Protocol):
    """What is needed of `ledgermq.runtime.tasks.Alarm`."""

    def set(self, delay_ms: float) -> None:
        """Have it go off after so long, and not when it was to before."""

    def cancel(self) -> None:
        """Let it not go off."""


class DelayedDelivery(LeaderService):
    """The delivery of one broker.

    Args:
        alarm: returns a timer that calls a function.
        is_repaired: whether what is damaged on this disk comes from another replica; else it is
            passed over.
        puts: stored messages by topic, which are added to.
    """

    name: ClassVar = "delayed messages"

    def __init__(
        self,
        store: DelayStore,
        alarm: Callable[[str, Callable[[], object]], Timer],
        *,
        is_repaired: bool,
        puts: defaultdict[str, int],
    ) -> None:
        self.progress = DelayProgress()
        self._store = store
        self._is_repaired = is_repaired
        self._puts = puts
        self._alarm = alarm("delayed messages", self.run)
        self._agenda: Agenda | None = None
        """Of this term; None: this replica does not lead."""
        self._in_flight = self._in_flight_bytes = 0
        self._is_resting = False
        self._turn_bytes = 0

    def tables(self) -> Iterable[ReplicatedTable]:
        """See `LeaderService`."""
        return (self.progress,)

    def start(self, term: int) -> None:
        """Begin where the log says that delivery stands."""
        del term
        self._agenda = Agenda()
        self._in_flight = self._in_flight_bytes = 0
        self._is_resting = False
        for queue_id in self._store.schedule.queue_ids:
            self._add_level(queue_id)
        if self._agenda.levels:
            self._alarm.set(0)

    def stop(self) -> None:
        """Put no more; how puts under way ended is what the log says."""
        self._agenda = None
        self._alarm.cancel()

    def on_message(self, queue_id: int) -> None:
        """Take that a queue of the schedule topic has more messages."""
        if self._agenda is None:
            return
        level = self._agenda.levels.get(queue_id) or self._add_level(queue_id)
        if level.due_ms is None:
            level.due_ms = 0
        elif level.due_ms:
            return  # its first message is known, and the timer is set for it
        if not self._is_resting:
            self._alarm.set(0)

    def _add_level(self, queue_id: int) -> Level:
        schedule = self._store.schedule
        first, end = schedule.span(queue_id)
        delays_ms = schedule.delays_ms
        delay_ms = delays_ms[queue_id] if queue_id < len(delays_ms) else None
        said = self.progress.delivered_before(queue_id)
        level = Level(queue_id, min(max(said, first), end), delay_ms)
        assert self._agenda is not None
        self._agenda.levels[queue_id] = level
        if level.next_offset != said:
            _log.warning(
                "event=delay_offset_corrected level=%d said=%d next=%d first=%d end=%d",
                queue_id + 1, said, level.next_offset, first, end,
            )  # fmt: skip
        return level

    def run(self) -> None:
        """Put what is due, a turn of it, and set the timer for what comes next.

        A file that cannot be read, or whatever else one message raises, is told and tried again:
        it would end the next leader as well.
        """
        agenda = self._agenda
        if agenda is None:
            return
        try:
            self._run(agenda)
        except FatalError:
            raise
        except Exception as error:  # noqa: BLE001 - see above
            report_serving_failure("delayed messages", error)
            if self._agenda is agenda:
                self._rest(DAMAGED_RETRY_MS)

    def _run(self, agenda: Agenda) -> None:
        self._is_resting, self._turn_bytes = False, 0
        now_ms = self._store.schedule.now_ms()
        room = min(TURN_MAX, IN_FLIGHT_MAX - self._in_flight)
        for level in agenda.due(now_ms):
            is_over = room <= 0 or self._turn_bytes >= READ_BYTES_MAX
            if is_over or self._is_resting or self._is_full():
                break
            room -= self._deliver(level, room, now_ms)
        if self._is_resting or self._is_full():
            return  # the timer is set, or a put that ends sets it
        wait_ms = agenda.wait_ms(self._store.schedule.now_ms())
        if wait_ms is not None:
            self._alarm.set(wait_ms)

    def _deliver(self, level: Level, room: int, now_ms: int) -> int:
        """Put the next messages of a level that are due; return how many."""
        schedule, agenda = self._store.schedule, self._agenda
        self._skip_removed(level)
        first = level.next_offset
        times_ms = schedule.due_times(level.queue_id, first, room)
        ready = level.ready(times_ms or (), now_ms)
        if times_ms is not None and not ready:
            return 0
        next_look_ms, level.due_ms = level.due_ms, now_ms
        if times_ms is None:
            self._rest(DAMAGED_RETRY_MS)
            return 0
        result = self._store.reader.get(
            SCHEDULE_TOPIC, level.queue_id, first, ready, READ_BYTES_MAX, None
        )
        count = 0
        for record in result.buffers:
            self._turn_bytes += len(record)
            if not self._put(level, record) or self._agenda is not agenda:
                return count
            count += 1
        level.next_offset = max(level.next_offset, result.next_offset)
        if level.next_offset == first + ready:
            level.due_ms = next_look_ms
        elif level.next_offset == first:
            self._on_damaged(level, result.status)
        return count

    def _skip_removed(self, level: Level) -> None:
        """Go on behind what the log dropped, which was older than it keeps anything."""
        first, _ = self._store.schedule.span(level.queue_id)
        if level.next_offset < first:
            _log.error("event=delayed_messages_removed level=%d from=%d to=%d", level.queue_id + 1,
                       level.next_offset, first)  # fmt: skip
            level.next_offset = first

    def _put(self, level: Level, record: memoryview) -> bool:
        """Put one message; False if it was refused, and the level stands at it again."""
        try:
            offset, copy = scheduled_of(record)
        except CorruptRecord as error:
            offset, copy = level.next_offset, None
            _log.error("event=delayed_message_corrupt error=%s", error)
        if copy is None:
            self._pass_over(level, offset, "it does not say where it belongs")
            return level.next_offset > offset
        level.next_offset = offset + 1
        size_bytes = len(copy.body)
        self._begin_one(size_bytes)
        its = offset, size_bytes, copy.topic
        self._store.writer.put(copy, partial(self._on_put, self._agenda, level, its))
        return level.next_offset > offset

    def _on_put(
        self,
        agenda: Agenda | None,
        level: Level,
        its: tuple[int, int, bytes],
        status: PutStatus,
        *_: int,
    ) -> None:
        """Hear how the put of a message ended: of its offset, bytes and topic."""
        if agenda is not self._agenda:
            return  # of an earlier term
        offset, size_bytes, topic = its
        self._end_one(size_bytes)
        if status in _ILLEGAL:
            self._pass_over(level, offset, f"its copy is refused: {status.value}")
        elif status is not PutStatus.OK:
            self._go_back(level, offset)
        else:
            self._puts[topic.decode("utf-8", "replace")] += 1

    def _is_full(self) -> bool:
        is_much = self._in_flight_bytes >= IN_FLIGHT_BYTES_MAX
        return is_much or self._in_flight >= IN_FLIGHT_MAX

    def _begin_one(self, size_bytes: int) -> None:
        """Note that one more is on its way."""
        self._in_flight += 1
        self._in_flight_bytes += size_bytes

    def _end_one(self, size_bytes: int) -> None:
        """Note that one is not on its way any more."""
        if self._is_full() and not self._is_resting:
            self._alarm.set(0)
        self._in_flight -= 1
        self._in_flight_bytes -= size_bytes

    def _pass_over(self, level: Level, offset: int, reason: str) -> None:
        """Leave a message aside that nobody could deliver: the log says so, as of a delivery."""
        _log.error("event=delayed_message_left_aside level=%d offset=%d reason=%r",
                   level.queue_id + 1, offset, reason)  # fmt: skip
        level.next_offset = offset + 1
        self._begin_one(0)
        self._store.writer.propose_state(
            StateKind.DELIVERED.value,
            delivered(level.queue_id, offset),
            partial(self._on_passed_over, self._agenda, level, offset),
        )

    def _on_passed_over(
        self, agenda: Agenda | None, level: Level, offset: int, status: PutStatus
    ) -> None:
        if agenda is not self._agenda:
            return
        self._end_one(0)
        # What came behind it moves the level on as well: nothing of it is delivered again. One that
        # is late is in the log, and what was put behind it is on its way.
        is_appended = status is PutStatus.UNKNOWN or status in LATE
        if status is not PutStatus.OK and not is_appended:
            self._go_back(level, offset)

    def _go_back(self, level: Level, offset: int) -> None:
        """Nothing was appended from a message on: it is put again later."""
        level.next_offset = min(level.next_offset, offset)
        level.due_ms = 0
        self._rest(RETRY_MS)

    def _rest(self, wait_ms: int) -> None:
        self._is_resting = True
        self._alarm.set(wait_ms)

    def _on_damaged(self, level: Level, status: GetStatus) -> None:
        """The next message cannot be read on this disk.

        What comes from a replica is waited for, and so is a unit that the log makes good.
        """
        if self._is_repaired or status is not GetStatus.LOST:
            self._rest(DAMAGED_RETRY_MS)
        else:
            self._pass_over(level, level.next_offset, "it is damaged")

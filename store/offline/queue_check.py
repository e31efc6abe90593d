"""Checks consume queues against the log, message by message, in both directions.

Each message of the log has its unit: offset, size, tags code; the offsets of a queue are
consecutive, so a unit below or behind those of the log's messages is one without a message. Which
missing units are no damage: those that the next start dispatches again anyway.

RocketMQ begins the queues of a topic at 0 again that was deleted and made anew. What the log still
has of before belongs to no queue, as long as the first unit names a message of the queue behind it.
Source: spec/disk.md 5.3, 5.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledgermq.runtime.printable import shown
from store.config import DEFAULT_DELAY_LEVELS_MS
from store.layout import SCHEDULE_TOPIC_BYTES, UNIT_BYTES, delivery_code, tags_code
from store.offline.files import ReadError, is_directory
from store.offline.findings import Findings, Part
from store.offline.queues import GAP_SIZE, Queue, QueueKey, Queues

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.offline.records import Record

UNMADE: Final = "a file without bytes: a crash came while it was made"
REMEDY: Final = "ledgermq store rebuild makes queues anew from the log"
EXTENSION_ADDRESS_MAX: Final = -(1 << 31)
"""A lower tags code is an address in ``consumequeue_ext``."""
_DANGLING_MAX: Final = 100_000


class _Seen:
    """What the log has of one queue."""

    __slots__ = ("behind", "first", "messages", "missing", "next")

    def __init__(self, first: int) -> None:
        self.first = first
        self.next = first
        self.messages = 0
        self.missing = 0
        self.behind = 0


class _Former:
    """What the log has of a queue from before its first unit was written."""

    __slots__ = ("confirmed", "first", "messages", "next", "offset", "path", "physical")

    def __init__(self, record: Record, physical: int) -> None:
        self.path = record.path
        self.offset = record.offset
        self.physical = physical
        """Where the first message of the queue is said to lie."""
        self.first = self.next = record.queue_offset
        self.messages = 0
        self.confirmed = False
        """Whether that message was seen there."""


class QueueCheck:
    """The check. It is told each record of the log in order, then `finish`."""

    def __init__(
        self,
        queues: Queues,
        findings: Findings,
        *,
        redispatched_from: int,
        is_rewritten: bool,
        topics: frozenset[bytes] | None,
    ) -> None:
        """Prepare.

        Args:
            queues: what lies there.
            findings: where to note.
            redispatched_from: a start dispatches messages from this position on again.
            is_rewritten: it writes over units that are there; RocketMQ passes them over.
            topics: that are configured, None if unknown.
        """
        self._queues = queues
        self._findings = findings
        self._redispatched_from = redispatched_from
        self._is_rewritten = is_rewritten
        self._topics = topics
        self._has_extensions = is_directory(f"{queues.directory}_ext")
        self._seen: dict[QueueKey, _Seen] = {}
        self._former: dict[QueueKey, _Former] = {}
        self._after_damage = 0
        self._damages = 0
        self.units = 0
        """Units that are right."""
        self.behind = 0
        """Messages that dispatch has not reached."""
        self._behind_at: tuple[str, int] = ("", 0)
        self._unreadable: set[QueueKey] = set()

    def on_damage(self) -> None:
        """Messages may be missing here: offsets may jump."""
        self._damages += 1

    def on_record(self, record: Record) -> None:
        """Check the unit of one message."""
        if not record.is_queued or not record.topic:
            return
        key = (record.topic, record.queue_id)
        queue = self._queues.by_key.get(key)
        if key not in self._unreadable and self._reads(key, self._is_former, record, queue):
            return
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = _Seen(record.queue_offset)
        elif record.queue_offset != seen.next and not self._damages:
            self._findings.damage(
                Part.LOG, "queue offset", record.path, record.offset,
                f"message of {record.name}/{record.queue_id} has queue offset"
                f" {record.queue_offset}, expected {seen.next}",
            )  # fmt: skip
        seen.next = max(seen.next, record.queue_offset + 1)
        seen.messages += 1
        if key not in self._unreadable:
            self._reads(key, self._check_unit, record, queue, seen)

    def _reads(self, key: QueueKey, check: Callable[..., bool | None], *what: object) -> bool:
        """Return what a check says; note files of the queue that cannot be read."""
        try:
            return bool(check(*what))
        except ReadError as error:
            self._unreadable.add(key)
            self._findings.damage(
                Part.QUEUE, "unreadable", error.path, error.offset, error.reason, REMEDY
            )
            return False

    def _is_former(self, record: Record, queue: Queue | None) -> bool:
        """Tell whether a message is from before its queue was begun anew. Errors: `ReadError`."""
        key = (record.topic, record.queue_id)
        if queue is None or queue.is_light or key in self._seen:
            return False
        former = self._former.get(key)
        if former is None:
            first = queue.unit(queue.first)
            is_before = first is not None and first[1] != GAP_SIZE and record.physical < first[0]
            if first is None or not is_before or record.queue_offset < queue.first:
                return False
            former = self._former[key] = _Former(record, first[0])
        if record.physical < former.physical:
            former.messages += 1
            former.next = record.queue_offset + 1
            return True
        former.confirmed = (record.physical, record.queue_offset) == (former.physical, queue.first)
        if not former.confirmed:
            self._take_for_seen(key, former)
        return False

    def _take_for_seen(self, key: QueueKey, former: _Former) -> None:
        """Count messages to their queue after all: its first unit is wrong."""
        seen = self._seen[key] = _Seen(former.first)
        seen.messages, seen.next = former.messages, former.next

    def _check_unit(self, record: Record, queue: Queue | None, seen: _Seen) -> None:
        unit = None if queue is None else queue.unit(record.queue_offset)
        if unit is None:
            self._on_missing(record, queue, seen)
            return
        assert queue is not None, record
        code = unit[2]
        if unit[:2] == (record.physical, record.size) and self._code_fits(record, code):
            self.units += 1
            return
        if self._is_rewritten and record.physical >= self._redispatched_from:
            self._on_behind(record, seen)
            return
        path, offset = queue.place(record.queue_offset)
        self._findings.damage(
            Part.QUEUE, "wrong unit", path, offset,
            f"unit {record.queue_offset} says {unit[1]} bytes at {unit[0]}, tags code {code}; the"
            f" message has {record.size} bytes at {record.physical},"
            f" tags code {tags_code(record.properties)}", REMEDY,
        )  # fmt: skip

    def _on_missing(self, record: Record, queue: Queue | None, seen: _Seen) -> None:
        if record.physical >= self._redispatched_from:
            self._on_behind(record, seen)
            return
        seen.missing += 1
        if seen.missing > 1:
            return
        if queue is None:
            path, offset = f"{self._queues.directory}/{shown(record.name)}/{record.queue_id}", None
        else:
            path, offset = queue.place(record.queue_offset)
        what = f"no unit {record.queue_offset} for the message at {record.physical}"
        if queue is None and self._topics is not None and record.topic not in self._topics:
            self._findings.note(Part.QUEUE, "no such topic", path, f"{what}; the topic was deleted")
        else:
            self._findings.damage(Part.QUEUE, "missing unit", path, offset, what, REMEDY)

    def _on_behind(self, record: Record, seen: _Seen) -> None:
        seen.behind += 1
        if not self.behind:
            self._behind_at = (record.path, record.offset)
        self.behind += 1

    def _code_fits(self, record: Record, code: int) -> bool:
        if record.topic != SCHEDULE_TOPIC_BYTES:
            fits = code == tags_code(record.properties)
            return fits or (self._has_extensions and code < EXTENSION_ADDRESS_MAX)
        wanted = delivery_code(record.properties, record.stored, DEFAULT_DELAY_LEVELS_MS)
        return code in (wanted, tags_code(record.properties)) or code > record.stored

    def finish(self, log_begin: int, log_end: int, *, tail_may_be_lost: bool) -> None:
        """Look for units without a message. ``log_*``: positions between which messages lie."""
        if self.behind:
            path, offset = self._behind_at
            self._findings.harmless(
                Part.QUEUE, "behind the log", path, offset,
                f"{self.behind} messages from here on are in no queue yet",
                "dispatch comes to it, at the latest at the next start",
            )  # fmt: skip
        for key, former in self._former.items():
            self._tell_former(self._queues.by_key[key], former)
        self._queues.forget()  # a broker that is at work has written more since
        for key, queue in self._queues.by_key.items():
            if key in self._unreadable or queue.is_light:
                continue
            try:
                self._check_rest(
                    queue,
                    self._seen.get(key),
                    (log_begin, log_end),
                    tail_may_be_lost=tail_may_be_lost,
                )
            except ReadError as error:
                self._findings.damage(
                    Part.QUEUE, "unreadable", error.path, error.offset, error.reason, REMEDY
                )

    def _tell_former(self, queue: Queue, former: _Former) -> None:
        if former.confirmed:
            self._findings.note(
                Part.QUEUE, "begun anew", former.path,
                f"{former.messages} messages of {queue.name} from offset {former.offset} on are of"
                " a topic that was deleted and made again",
            )  # fmt: skip
            return
        key = (queue.topic, queue.queue_id)
        if key not in self._seen:
            self._take_for_seen(key, former)
        path, offset = queue.place(queue.first)
        self._findings.damage(
            Part.QUEUE, "wrong unit", path, offset,
            f"unit {queue.first} says that its message is at {former.physical}, and none of this"
            f" queue and offset is there; {former.messages} messages lie before", REMEDY,
        )  # fmt: skip

    def _check_rest(
        self, queue: Queue, seen: _Seen | None, log: tuple[int, int], *, tail_may_be_lost: bool
    ) -> None:
        """Check the units of a queue that no message of the log claims."""
        first, behind = (queue.end, queue.end) if seen is None else (seen.first, seen.next)
        if self._damages and behind < queue.end:
            unit = queue.unit(behind)
            if unit is not None and unit[0] < log[1]:
                return  # of messages that are damaged
        self._check_below(queue, first, log[0])
        if queue.end <= behind:
            return
        unit = queue.unit(behind)
        path, offset = queue.place(behind)
        what = f"{queue.end - behind} units from {behind} on without a message"
        if unit is not None and unit[0] >= log[1] and tail_may_be_lost:
            self._findings.harmless(
                Part.QUEUE, "ahead of the log", path, offset,
                f"{what}: the log ends at {log[1]}", "cut at the next start",
            )  # fmt: skip
        else:
            where = "never written" if unit is None else f"it says {unit[1]} bytes at {unit[0]}"
            self._findings.damage(
                Part.QUEUE, "unit without a message", path, offset, f"{what}; {where}", REMEDY
            )

    def _check_below(self, queue: Queue, first: int, log_begin: int) -> None:
        """Check that units before the first message are of messages that are gone."""
        for offset in range(first - 1, max(queue.first, first - _DANGLING_MAX) - 1, -1):
            unit = queue.unit(offset)
            if unit is None or unit[1] == GAP_SIZE or unit[0] < log_begin:
                return
            path, at = queue.place(offset)
            self._findings.damage(
                Part.QUEUE, "unit without a message", path, at,
                f"unit {offset} says {unit[1]} bytes at {unit[0]}, where no message of the queue"
                " begins", REMEDY,
            )  # fmt: skip


def check_queue_files(queues: Queues, findings: Findings) -> None:
    """Check sizes and names of the queue files."""
    for queue in queues.by_key.values():
        expected: int | None = None
        for info in queue.files.row.files:
            if info.size == 0 and info is queue.files.row.files[-1]:
                findings.harmless(Part.QUEUE, "not made", info.path, 0, UNMADE, REMEDY)
            elif info.size != queues.file_bytes or not info.size:
                findings.damage(
                    Part.QUEUE, "size", info.path, info.size,
                    f"{info.size} bytes, other queue files have {queues.file_bytes}", REMEDY,
                )  # fmt: skip
            elif info.base % info.size or info.size % UNIT_BYTES:
                findings.damage(
                    Part.QUEUE, "name", info.path, None,
                    f"files of {info.size} bytes do not begin at {info.base}", REMEDY,
                )  # fmt: skip
            elif expected is not None and info.base != expected:
                findings.damage(
                    Part.QUEUE, "gap", info.path, None, f"no file for {expected}", REMEDY
                )
            expected = info.base + queues.file_bytes
    for path in queues.unlisted:
        findings.damage(Part.QUEUE, "unreadable", path, None, "it cannot be listed")
    for path in queues.in_the_way:
        findings.damage(
            Part.QUEUE, "in the way", path, None, "no directory, and queues may have to lie there",
            "a broker refuses to start: move it away",
        )  # fmt: skip
    for path in queues.strangers:
        findings.note(Part.QUEUE, "stranger", path, "no queue file; left alone")

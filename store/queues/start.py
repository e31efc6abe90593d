"""Where queues begin: offsets at a place in the log, trimming behind it, and a start from there.

When the beginning of the log goes, so do the units of its messages; a queue whose every message is
gone keeps counting all the same. So the next offset of each queue at the place where the log begins
belongs to what stands for that beginning (`QueueStart`), and a queue never falls below it.
It does not read the log; positions are bytes in it.
Source: RocketMQ ConsumeQueue.correctMinOffset (which forgets a queue that has become empty).
"""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from dledger.segments.open_files import may_open_no_more
from ledgermq.runtime.errors import FatalError
from store.layout import UNIT_BYTES
from store.limits import QUEUE_STARTS_MAX
from store.queues.consume_queue import DamagedUnits
from store.queues.names import names_queue

if TYPE_CHECKING:
    from store.queues.consume_queue import ConsumeQueue, ConsumeQueues

PIECE_UNITS: Final = 512
"""Units read at once."""
SLICE_QUEUES: Final = 256
"""Queues looked at before the loop gets its turn; each may cost a read or two."""

STEP_UNITS: Final = 8_192
"""Units that are written before the loop gets its turn: a few milliseconds."""
FILE_WORK: Final = 128
"""Making or removing a file takes as long as to write so many."""
REMOVALS_MAX: Final = 2
"""Files that retention removes in one tick: 1 to 12 ms each, since the directory is synced."""
LOOKED_AT_MAX: Final = 4_096
"""Queues that it looks at in one tick."""
START_MAX: Final = 1 << 58
"""Where a queue may begin: there is room to count on behind it, as bytes have 63 bits."""
TOPIC_SHOWN: Final = 100
"""Characters of a bad name that a log line has."""

assert START_MAX * UNIT_BYTES < 1 << 63

_log = logging.getLogger(__name__)

QueueStart = tuple[str, int, int]
"""``(topic, queue id, offset)``: the queue's next offset where the log begins."""


def find_problem_of_starts(starts: Sequence[QueueStart]) -> str:
    """Return what cannot be true of where queues begin, empty for nothing. In any thread."""
    if len(starts) > QUEUE_STARTS_MAX:
        return f"it has {len(starts)} queues, more than {QUEUE_STARTS_MAX}"
    named = set()
    for topic, queue_id, offset in starts:
        if not names_queue(topic.encode(), queue_id) or (topic, queue_id) in named:
            return f"no queue is, or two are, queue {queue_id} of topic {topic[:TOPIC_SHOWN]!r}"
        if not 0 <= offset <= START_MAX:
            return f"queue {queue_id} of topic {topic!r} cannot begin at {offset}"
        named.add((topic, queue_id))
    return ""


def offset_at(queue: "ConsumeQueue", position: int, low: int | None = None) -> int:
    """Return the offset of the first message of a queue at or behind ``position``.

    Units are read a piece at a time: there may be many thousands of queues to ask, most of them
    short or untouched. ``low``: where to begin, if not with the first unit. Errors: `DamagedUnits`.
    """
    low, high = queue.min_offset if low is None else low, queue.max_offset
    while low < high:
        piece = queue.read(low, min(PIECE_UNITS, high - low))
        count = len(piece) // UNIT_BYTES
        if _physical(piece, count - 1) >= position:
            return low + bisect_left(
                range(count), position, key=lambda number: _physical(piece, number)
            )
        low += count
        middle = (low + high) // 2
        while middle - low > PIECE_UNITS:
            if _physical(queue.read(middle, 1), 0) < position:
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
    return low


def maybe_offset_past_damage(queue: "ConsumeQueue", position: int) -> int | None:
    """Return the same of a queue with damaged blocks; None if one of them may have the message.

    What lies before a unit that lies at or before ``position`` is in the log no more: such a block
    is of no use to anybody.
    """
    low: int | None = None
    with suppress(DamagedUnits):
        while True:
            try:
                return offset_at(queue, position, low)
            except DamagedUnits as error:
                low = queue.block_range(error.block)[1] // UNIT_BYTES
                if low >= queue.max_offset or _physical(queue.read(low, 1), 0) > position:
                    return None
    return None


def _physical(units: bytes, number: int) -> int:
    at = number * UNIT_BYTES
    return int.from_bytes(units[at : at + 8], "big", signed=True)


class LogStart:
    """Where the log of one store begins, as far as queues and index are concerned.

    Args:
        is_syncing: tells whether queue files are being synced, so that none may be removed.
    """

    def __init__(
        self,
        queues: "ConsumeQueues",
        is_syncing: Callable[[], bool] = lambda: False,
    ) -> None:
        self._queues = queues
        self._is_syncing = is_syncing
        self.drop_keys_before: Callable[[int], None] = lambda _position: None
        """Drops what the key index has of messages before a position, if there is one."""
        self._drops_files = False
        """Whether files wait to be removed."""
        self._left: list[ConsumeQueue] | None = None
        """Queues that may have some of these, as far as a round of removals has come."""
        self._may_open = True
        """Whether the last removal did not fail since no more files may be opened."""
        self._dropping = asyncio.Lock()
        self._leaving: list[ConsumeQueue] = []
        """Former queues whose files are still there."""
        self.is_whole = True
        """Whether all queues begin where they should, and may be asked."""
        self._forget_resolved()

    def _forget_resolved(self) -> None:
        self._resolved: tuple[int, dict[ConsumeQueue, int]] = (-1, {})
        """A position of the log, and the offsets that queues have there."""

    async def resolve(self, position: int) -> int:
        """Find the offset of each queue at ``position``, in slices, before it is needed.

        Returns of how many queues it cannot be told, since their units are damaged.
        What is found stays true while the loop goes on: ``position`` is dispatched, so that what
        comes to a queue lies behind it. Who needs it asks a damaged queue again.
        """
        known: dict[ConsumeQueue, int] = {}
        queues = list(self._queues.by_key.values())
        for number, queue in enumerate(queues, start=1):
            with suppress(DamagedUnits):
                known[queue] = offset_at(queue, position)
            if number % SLICE_QUEUES == 0:
                await asyncio.sleep(0)
        self._resolved = (position, known)
        return len(queues) - len(known)

    def queue_starts_at(self, position: int) -> list[QueueStart]:
        """Return the offset of each queue at ``position``; a queue that begins with 0 is left out.

        Errors: `DamagedUnits`.
        """
        found = [
            (queue.topic, queue.queue_id, self._offset_at(queue, position))
            for queue in self._queues.by_key.values()
        ]
        return sorted(start for start in found if start[2])

    def _offset_at(self, queue: "ConsumeQueue", position: int) -> int:
        resolved_position, resolved = self._resolved
        found = resolved.get(queue) if resolved_position == position else None
        return offset_at(queue, position) if found is None else found

    def advance_to(self, position: int) -> None:
        """Let queues and index begin at ``position``; the files of queues go a little later.

        A queue with damaged units there begins where it did until they are repaired.
        """
        for queue in self._queues.by_key.values():
            try:
                queue.min_offset = self._offset_at(queue, position)
            except DamagedUnits:
                found = maybe_offset_past_damage(queue, position)
                queue.min_offset = queue.min_offset if found is None else found
        self._forget_resolved()
        self._drops_files, self._left = True, None
        self.drop_keys_before(position)

    def install(self, starts: Iterable[QueueStart]) -> Iterator[bool]:
        """Forget all queues; return the steps that let ``starts`` begin, empty, where they say.

        Files of the former queues go first. See `settle`.
        """
        self._leaving += self._queues.by_key.values()
        self._queues.clear()
        self._forget_resolved()
        self.is_whole, self._left = False, None
        return self._steps(starts, may_drop=False)

    def settle(self, starts: Iterable[QueueStart]) -> Iterator[bool]:
        """Return the steps that let the queues which were loaded begin where the log does.

        A queue begins in the middle of a file, of which all that lies before is written: with many
        queues, that takes long. Each step is some milliseconds of work, and says whether to wait
        for space before the next one. Until the last one nothing is to be dispatched.
        """
        self.is_whole = False
        return self._steps(starts, may_drop=True)

    def remove_left(self) -> None:
        """Remove what the former queues have left, at once: no start may find it."""
        while self._leaving:
            self._leaving[-1].remove_files()
            self._leaving.pop()

    def _steps(self, starts: Iterable[QueueStart], *, may_drop: bool) -> Iterator[bool]:
        yield from self._remove_former()
        work = 0
        for topic, queue_id, offset in starts:
            queue = self._queues.maybe_make(topic.encode(), queue_id)
            if queue is None:
                _log.error("event=queue_base_of_no_queue topic=%r queue=%d", topic, queue_id)
            elif queue.max_offset < offset:
                work += queue.file_count * FILE_WORK
                yield from _remove_files(queue)
                work = yield from self._begin(queue, offset, work)
            else:
                queue.min_offset = max(queue.min_offset, offset)
            work += 1
            if work >= STEP_UNITS:
                work = yield from self._end_step()
        self._drops_files = self._drops_files or may_drop
        self.is_whole, self._left = True, None

    def _begin(self, queue: "ConsumeQueue", offset: int, work: int) -> Generator[bool, None, int]:
        """Let an empty queue begin at ``offset``; takes and returns what this step has done.

        After each step it is a queue that begins, empty, before that.
        """
        queues = self._queues
        in_file = offset % (queues.files.file_bytes // UNIT_BYTES)
        queues.begin(queue, offset - in_file)
        work += FILE_WORK
        while in_file:
            count = min(in_file, max(1, STEP_UNITS - work))
            queues.fill(queue, count)
            in_file -= count
            work += count
            if work >= STEP_UNITS:
                work = yield from self._end_step()
        return work

    def _end_step(self) -> Generator[bool, None, int]:
        """Write what a step has filled up; return what the next one has done: nothing."""
        while not self._queues.flush():
            yield True
        yield False
        return 0

    def _remove_former(self) -> Iterator[bool]:
        work = 0
        while self._leaving:
            queue = self._leaving[-1]
            work += 1 + queue.file_count * FILE_WORK
            yield from _remove_files(queue)
            self._leaving.pop()
            if work >= STEP_UNITS:
                work = 0
                yield False

    async def drop_queue_files(self) -> int:
        """Remove queue files before the beginning of the log, return how many; some in each turn.

        Each waits for the disk, and there may be thousands. While files are being synced they wait
        for later calls of `drop_what_waits`; and where no more may be opened, which a removal
        needs, too.
        """
        async with self._dropping:
            self._drops_files, self._left, self._may_open = True, None, True
            count = 0
            while self._drops_files and self._may_open and not self._is_syncing():
                count += self.drop_what_waits()
                await asyncio.sleep(0)
            return count

    @property
    def is_dropping(self) -> bool:
        """Whether `drop_queue_files` is at work."""
        return self._dropping.locked()

    def drop_what_waits(self) -> int:
        """Remove some of the queue files that wait to be removed, if any do; at every tick.

        Each waits for the disk, and queues that are filled alike lose a file at the same time.
        Returns how many.
        """
        if not self._drops_files or self._is_syncing():
            return 0
        if self._left is None:
            self._left = list(self._queues.by_key.values())
        left, looked_at, removed = self._left, 0, 0
        try:
            while left and removed < REMOVALS_MAX and looked_at < LOOKED_AT_MAX:
                removed += left[-1].drop_files(REMOVALS_MAX - removed)
                looked_at += 1
                if removed < REMOVALS_MAX:
                    left.pop()
        except FatalError as error:
            self._may_open = not may_open_no_more(error)
            if self._may_open:
                raise
        if not left:
            self._drops_files, self._left = False, None
        return removed


def _remove_files(queue: "ConsumeQueue") -> Iterator[bool]:
    """Remove the files of a queue; True to wait where no more may be opened, as that needs."""
    while True:
        try:
            queue.remove_files()
        except FatalError as error:
            if not may_open_no_more(error):
                raise
            yield True
        else:
            return

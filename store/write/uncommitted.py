"""What was appended here and is not committed yet, and who waits for it.

A leader keeps of its own entries what dispatch needs, so that a committed entry goes into its queue
and its sender is answered without a look into the log. `Uncommitted` owns them, in log order, until
they are committed (`Uncommitted.commit`), committed with dispatch far behind (`acknowledge`), given
up with the leadership (`abandon`), or found not to be written (`forget_from`).

The messages of a batch are one item here. They are entries of their own in the log all the same: a
commit, or a disk that is full, may end between two of them, and the item is cut in two then.
Pure. Source: spec/wire.md 4.6; spec/disk.md 6.2; RocketMQ MessageExtBatch, DLedgerCommitLog's
AppendFuture.
"""

from bisect import bisect_left
from collections import deque
from itertools import islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final

import msgspec

from ledgermq.runtime.tasks import report_serving_failure
from store.layout import UNIT_BYTES
from store.origins import HALF
from store.results import PutStatus
from store.write.answering import ANSWERING, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from store.layout import Keyed, Row
    from store.origins import Said
    from store.queues.consume_queue import ConsumeQueue
    from store.results import PutCallback, StateCallback


class OwnMessage(msgspec.Struct, gc=False):
    """A message that was put alone."""

    physical: int
    """Where its record begins."""
    queue: "ConsumeQueue | None"
    """None: half a transaction, which is in no queue."""
    queue_offset: int
    size: int
    code: int
    """Of its tags."""
    keyed: "Keyed"
    """What the key index needs of it."""
    done: "PutCallback | None"
    """Who waits; None once it was answered."""

    @property
    def end(self) -> int:
        """Where its entry ends."""
        return self.physical + self.size

    def answer(self, status: PutStatus) -> None:
        """Answer who waits, unless that was done."""
        done, self.done = self.done, None
        if done is not None:
            tell(done, status, self.queue_offset, self.physical)


class OwnBatch(msgspec.Struct, gc=False):
    """The messages of a batch, one after the other; all of them are in one queue."""

    physical: int
    """Where its first record begins."""
    queue: "ConsumeQueue"
    queue_offset: int
    """Of its first message."""
    physicals: list[int]
    """Where each record begins."""
    end: int
    """Where its last entry ends."""
    units: bytes
    """For the consume queue."""
    codes: "Sequence[int]"
    """Tags codes."""
    rows: "list[Row]"
    """For the key index; none without one."""
    done: "PutCallback | None"
    """Who waits, for all of them; None once it was answered."""
    is_rest: bool = False
    """Whether there were messages before these: they may be committed already."""

    def answer(self, status: PutStatus) -> None:
        """Answer who waits, unless that was done."""
        done, self.done = self.done, None
        if done is not None:
            tell(done, status, self.queue_offset, self.physical)


class OwnCopy(msgspec.Struct, gc=False):
    """A message that stands for state as well; see `store.origins`."""

    physical: int
    """Where its record begins."""
    queue: "ConsumeQueue"
    queue_offset: int
    size: int
    code: int
    """Of its tags."""
    keyed: "Keyed"
    """What the key index needs of it."""
    done: "PutCallback | None"
    """Who waits; None once it was answered."""
    said: "Said"
    """The state that it stands for."""

    @property
    def end(self) -> int:
        """Where its entry ends."""
        return self.physical + self.size

    def answer(self, status: PutStatus) -> None:
        """Answer who waits, unless that was done. Only a producer is told that this takes long.

        Who puts a copy must know whether to put it again, and that is not known before the end.
        """
        if status in LATE and self.said[0] != HALF:
            return
        done, self.done = self.done, None
        if done is not None:
            tell(done, status, self.queue_offset, self.physical)


class OwnState(msgspec.Struct):
    """A state record that was proposed here."""

    physical: int
    """Where its record begins."""
    size: int
    kind: str
    payload: bytes
    done: "StateCallback | None"

    @property
    def end(self) -> int:
        """Where its entry ends."""
        return self.physical + self.size

    def answer(self, status: PutStatus) -> None:
        """Answer who waits, unless that was done."""
        done, self.done = self.done, None
        if done is not None:
            tell(done, status)


Own = OwnMessage | OwnBatch | OwnCopy | OwnState
LATE: Final = frozenset({
    PutStatus.QUORUM_TIMEOUT, PutStatus.FLUSH_TIMEOUT,
    PutStatus.SLAVE_TIMEOUT, PutStatus.NO_SLAVE,
})  # fmt: skip
"""Answers to what waits on."""

_physical_of: "Callable[[Row], int]" = itemgetter(1)
_begin_of: "Callable[[Own], int]" = attrgetter("physical")


class Uncommitted:
    """The entries of this leader that are not committed."""

    def __init__(self, header_bytes: int) -> None:
        """Make one for a log whose entries have so many bytes before the record."""
        self._header_bytes = header_bytes
        self._items: deque[Own] = deque()
        self._states: dict[int, OwnState | OwnCopy] = {}
        """State records not applied yet, and halves that are committed and not applied."""
        self._marks: deque[tuple[int, int]] = deque()
        """``(time in ms, end of the last entry then)`` of ticks that `expire` looks back on."""
        self._late_end = 0
        """What begins before was answered as late, where it waits still."""
        self.add = self._items.append
        """Take a message or a batch that was appended."""

    def add_state(self, state: OwnState) -> None:
        """Take a state record that was appended."""
        self._states[state.physical] = state
        self._items.append(state)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> "Iterator[Own]":
        return iter(self._items)

    @property
    def start(self) -> int | None:
        """Where the entry of the first of them starts; None for none."""
        return self._items[0].physical - self._header_bytes if self._items else None

    @property
    def size_bytes(self) -> int:
        """Bytes of the log from where the first of them begins to where the last one ends."""
        items = self._items
        return items[-1].end - items[0].physical if items else 0

    def commit(self, start: int, committed: int) -> "Iterator[Own]":
        """Hand out what is committed from the entry that starts at ``start``, up to a gap.

        The sender of each is answered when the next one is asked for: by then readers find it.
        """
        items, header_bytes, ok = self._items, self._header_bytes, PutStatus.OK
        expected = start + header_bytes
        while items and items[0].physical == expected and expected < committed:
            own = items.popleft()
            if own.__class__ is OwnMessage:
                yield own
                # As `OwnMessage.answer`, in line: each single send comes by here.
                if own.done is not None:
                    try:
                        own.done(ok, own.queue_offset, own.physical)
                    except Exception as error:  # noqa: BLE001 - one request's, not the log's
                        report_serving_failure(ANSWERING, error)
                expected += own.size + header_bytes
                continue
            if isinstance(own, OwnBatch):
                own = self._cut_first(own, committed)
            else:
                self._states.pop(own.physical, None)
            yield own
            own.answer(ok)
            expected = own.end + header_bytes

    def _cut_first(self, batch: OwnBatch, committed: int) -> OwnBatch:
        """Return what is committed of a batch whose first entry is; the rest stays."""
        head, rest = self._cut_in_two(batch, committed)
        if rest is not None:
            self._items.appendleft(rest)
        assert isinstance(head, OwnBatch), (batch, committed)
        return head

    def acknowledge(self, committed: int) -> None:
        """Answer what is committed although dispatch has not come to it.

        Dispatch reads it back from the log. State records are answered when they are applied, and
        so are halves: who is told that his is stored may say how it ends, and it is known then.
        """
        items = self._items
        while items and items[0].physical < committed:
            head, rest = self._cut_in_two(items.popleft(), committed)
            if rest is not None:
                items.appendleft(rest)
            elif isinstance(head, OwnCopy) and head.said[0] == HALF:
                self._states[head.physical] = head
            elif head is not None and not isinstance(head, OwnState):
                head.answer(PutStatus.OK)

    def take_state(self, physical: int) -> OwnState | OwnCopy | None:
        """Return and forget the state record or half of ours that begins there, if one does."""
        return self._states.pop(physical, None)

    def expire(self, now_ms: int, max_wait_ms: int, status: PutStatus) -> None:
        """Answer what has waited longer than ``max_wait_ms``; it stays, for it may yet commit.

        Called at every tick: what was there at one tick and still waits ``max_wait_ms`` later is
        late, so that a put need not note its time.
        """
        marks = self._marks
        last = self._items[-1] if self._items else next(reversed(self._states.values()), None)
        if last is not None:
            marks.append((now_ms, last.end))
        limit = -1
        while marks and marks[0][0] <= now_ms - max_wait_ms:
            limit = marks.popleft()[1]
        late: list[Own] = [
            own
            for own in self._states.values()
            if own.physical < limit and isinstance(own, OwnCopy)
        ]
        if limit > self._late_end:  # many may wait for long, and are not gone through at each tick
            first = bisect_left(self._items, self._late_end, key=_begin_of)
            for own in islice(self._items, first, None):
                if own.physical >= limit:
                    break
                late.append(own)
            self._late_end = limit
        for own in late:
            own.answer(status)
            self._answered_late(own)

    def _answered_late(self, own: Own) -> None:
        """Forget a half that nobody waits for any more; dispatch may stand still for long."""
        if isinstance(own, OwnCopy):
            self._states.pop(own.physical, None)

    def forget_before(self, position: int) -> None:
        """A snapshot stands for what begins before: who waits for its end hears UNKNOWN."""
        for physical in [physical for physical in self._states if physical < position]:
            self._states.pop(physical).answer(PutStatus.UNKNOWN)

    def answer_before(self, position: int, status: PutStatus) -> None:
        """Answer what begins before ``position``; it stays: it is committed next."""
        early: list[Own] = []
        for own in self._items:
            if own.physical >= position:
                break
            early.append(own)
        for own in early:
            if not isinstance(own, OwnState):
                own.answer(status)

    def abandon(self) -> None:
        """Leadership is lost: everything that waits ends UNKNOWN, in order."""
        self._marks.clear()
        self._late_end = 0
        lost = list(self._items)
        self._items.clear()
        for own in lost:
            self._states.pop(own.physical, None)
        for own in lost:
            own.answer(PutStatus.UNKNOWN)

    def forget_from(self, position: int) -> None:
        """Entries from ``position`` on were never written, for want of space: refuse them.

        What is written of a batch may yet commit, so nobody is told that it failed.
        """
        items = self._items
        dropped: list[Own] = []
        torn: list[Own] = []
        while items:
            kept, own = self._cut_in_two(items.pop(), position)
            if kept is not None:
                items.append(kept)
            if own is None:
                break
            if isinstance(own, OwnState):
                self._states.pop(own.physical, None)
            elif own.queue is not None:
                own.queue.next_offset = own.queue_offset
            is_torn = isinstance(own, OwnBatch) and own.is_rest
            (torn if is_torn else dropped).append(own)
        self._marks = deque((at, min(end, position)) for at, end in self._marks)
        self._late_end = min(self._late_end, position)
        for own in torn:
            own.answer(PutStatus.UNKNOWN)
        for own in reversed(dropped):
            own.answer(PutStatus.DISK_FULL)

    def between(self, start: int, end: int) -> list[Own]:
        """Return the items whose entries fill ``[start, end)``; none if one is cut by an edge."""
        first = start + self._header_bytes
        found: list[Own] = []
        for own in reversed(self._items):
            if own.physical < first:
                break
            found.append(own)
        found.reverse()
        return found if found and (found[0].physical, found[-1].end) == (first, end) else []

    def _cut_in_two(self, own: Own, position: int) -> tuple[Own | None, Own | None]:
        """Return what of an item lies before ``position``, where an entry ends, and what behind.

        Whoever waits for a batch waits for its last message.
        """
        if not isinstance(own, OwnBatch):
            return (own, None) if own.physical < position else (None, own)
        physicals = own.physicals
        count = bisect_left(physicals, position)
        if count == len(physicals):
            return own, None
        if not count:
            return None, own
        row = bisect_left(own.rows, physicals[count], key=_physical_of)
        middle = count * UNIT_BYTES
        cut = physicals[count] - self._header_bytes
        head = OwnBatch(
            own.physical, own.queue, own.queue_offset, physicals[:count], cut,
            own.units[:middle], own.codes[:count], own.rows[:row], None,
        )  # fmt: skip
        rest = OwnBatch(
            physicals[count], own.queue, own.queue_offset + count, physicals[count:], own.end,
            own.units[middle:], own.codes[count:], own.rows[row:], own.done, is_rest=True,
        )  # fmt: skip
        return head, rest

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

from bisect import bisect_left, bisect_right
from collections import deque
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

import msgspec

from ledgermq.runtime.tasks import report_serving_failure
from store.layout import UNIT_BYTES
from store.results import PutStatus
from store.write.answering import ANSWERING, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from store.layout import Row
    from store.queues.consume_queue import ConsumeQueue
    from store.results import PutCallback, StateCallback


class OwnMessage(msgspec.Struct, gc=False):
    """A message that was put alone."""

    index: int
    """Of its entry, as the log names it."""
    physical: int
    """Where its record begins."""
    queue: "ConsumeQueue | None"
    """None: half a transaction, which is in no queue."""
    queue_offset: int
    size: int
    code: int
    """Of its tags."""
    rows: "list[Row]"
    """For the key index; none without one."""
    done: "PutCallback | None"
    """Who waits; None once it was answered."""

    @property
    def last_index(self) -> int:
        """Its entry."""
        return self.index

    def end(self, status: PutStatus) -> None:
        """Answer who waits, unless that was done."""
        done, self.done = self.done, None
        if done is not None:
            tell(done, status, self.queue_offset, self.physical)


class OwnBatch(msgspec.Struct, gc=False):
    """The messages of a batch, one after the other; all of them are in one queue."""

    index: int
    """Of its first entry."""
    physical: int
    """Where its first record begins."""
    queue: "ConsumeQueue"
    queue_offset: int
    """Of its first message."""
    indexes: "Sequence[int]"
    physicals: list[int]
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

    @property
    def last_index(self) -> int:
        """Its last entry."""
        return self.indexes[-1]

    def end(self, status: PutStatus) -> None:
        """Answer who waits, unless that was done."""
        done, self.done = self.done, None
        if done is not None:
            tell(done, status, self.queue_offset, self.physical)


class OwnState(msgspec.Struct):
    """A state record that was proposed here."""

    index: int
    physical: int
    kind: str
    payload: bytes
    done: "StateCallback | None"

    @property
    def last_index(self) -> int:
        """Its entry."""
        return self.index

    def end(self, status: PutStatus) -> None:
        """Answer who waits, unless that was done."""
        done, self.done = self.done, None
        if done is not None:
            tell(done, status)


Own = OwnMessage | OwnBatch | OwnState

_physical_of: "Callable[[Row], int]" = itemgetter(1)
_start_by_index: "Callable[[Own], int]" = attrgetter("index")
_start_by_position: "Callable[[Own], int]" = attrgetter("physical")
"""Where an item starts, in a log that counts its entries and in one that does not."""


class Uncommitted:
    """The entries of this leader that are not committed."""

    def __init__(self, *, counts_entries: bool) -> None:
        self._items: deque[Own] = deque()
        self._start_of = _start_by_index if counts_entries else _start_by_position
        self._states: dict[int, OwnState] = {}
        """State records not applied yet; `acknowledge` leaves them here."""
        self._marks: deque[tuple[int, int]] = deque()
        """``(time in ms, last entry there was)`` of the ticks that `expire` looks back on."""
        self.add = self._items.append
        """Take a message or a batch that was appended."""

    def add_state(self, state: OwnState) -> None:
        """Take a state record that was appended."""
        self._states[state.index] = state
        self._items.append(state)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> "Iterator[Own]":
        return iter(self._items)

    @property
    def start(self) -> int | None:
        """Where the first of them starts, as `LogNode.following` says it; None for none."""
        return self._start_of(self._items[0]) if self._items else None

    def commit(self, following: int, commit_index: int) -> "Iterator[Own]":
        """Hand out what is committed from the entry that starts at ``following``, up to a gap.

        The sender of each is answered when the next one is asked for: by then readers find it.
        """
        items, start_of, ok = self._items, self._start_of, PutStatus.OK
        while items and start_of(items[0]) == following and items[0].index <= commit_index:
            own = items.popleft()
            if own.__class__ is OwnMessage:
                yield own
                # As `OwnMessage.end`, in line: each single send comes by here.
                if own.done is not None:
                    try:
                        own.done(ok, own.queue_offset, own.physical)
                    except Exception as error:  # noqa: BLE001 - one request's, not the log's
                        report_serving_failure(ANSWERING, error)
                following = own.index + 1
                continue
            if isinstance(own, OwnBatch):
                own = self._cut_first(own, commit_index)
            else:
                self._states.pop(own.index, None)
            yield own
            own.end(ok)
            following = own.last_index + 1

    def _cut_first(self, batch: OwnBatch, commit_index: int) -> OwnBatch:
        """Return what is committed of a batch whose first entry is; the rest stays."""
        committed, rest = cut_in_two(batch, commit_index)
        if rest is not None:
            self._items.appendleft(rest)
        assert isinstance(committed, OwnBatch), (batch, commit_index)
        return committed

    def acknowledge(self, commit_index: int) -> None:
        """Answer what is committed although dispatch has not come to it.

        Dispatch reads it back from the log; state records are answered when applied.
        """
        items = self._items
        while items and items[0].index <= commit_index:
            committed, rest = cut_in_two(items.popleft(), commit_index)
            if rest is not None:
                items.appendleft(rest)
            elif committed is not None and not isinstance(committed, OwnState):
                committed.end(PutStatus.OK)

    def take_state(self, index: int) -> OwnState | None:
        """Return and forget the state record of ours at ``index``, if it is one."""
        return self._states.pop(index, None)

    def expire(self, now_ms: int, max_wait_ms: int, status: PutStatus) -> None:
        """Answer what has waited longer than ``max_wait_ms``; it stays, for it may yet commit.

        Called at every tick: what was there at one tick and still waits ``max_wait_ms`` later is
        late, so that a put need not note its time.
        """
        marks = self._marks
        if self._items:
            marks.append((now_ms, self._items[-1].last_index))
        limit = -1
        while marks and marks[0][0] <= now_ms - max_wait_ms:
            limit = marks.popleft()[1]
        late: list[Own] = []
        for own in self._items:
            if own.index > limit:
                break
            late.append(own)
        for own in late:
            own.end(status)

    def abandon(self) -> None:
        """Leadership is lost: everything that waits ends UNKNOWN, in order."""
        self._marks.clear()
        lost = list(self._items)
        self._items.clear()
        for own in lost:
            self._states.pop(own.index, None)
        for own in lost:
            own.end(PutStatus.UNKNOWN)

    def forget_from(self, index: int) -> None:
        """Entries from ``index`` on were never written, for want of space: refuse them.

        What is written of a batch may yet commit, so nobody is told that it failed.
        """
        items = self._items
        dropped: list[Own] = []
        torn: list[Own] = []
        while items:
            kept, own = cut_in_two(items.pop(), index - 1)
            if kept is not None:
                items.append(kept)
            if own is None:
                break
            if isinstance(own, OwnState):
                self._states.pop(own.index, None)
            elif own.queue is not None:
                own.queue.next_offset = own.queue_offset
            is_torn = isinstance(own, OwnBatch) and own.is_rest
            (torn if is_torn else dropped).append(own)
        self._marks = deque((at, min(last, index - 1)) for at, last in self._marks)
        for own in torn:
            own.end(PutStatus.UNKNOWN)
        for own in reversed(dropped):
            own.end(PutStatus.DISK_FULL)

    def since(self, index: int) -> list[Own]:
        """Return the items from entry ``index`` on; none if it lies within one."""
        found: list[Own] = []
        for own in reversed(self._items):
            if own.index < index:
                break
            found.append(own)
        found.reverse()
        return found if found and found[0].index == index else []


def cut_in_two(own: Own, last: int) -> tuple[Own | None, Own | None]:
    """Return what of an item lies at or before entry ``last``, and what behind.

    Whoever waits for a batch waits for its last message.
    """
    if not isinstance(own, OwnBatch):
        return (own, None) if own.index <= last else (None, own)
    count = bisect_right(own.indexes, last)
    if count == len(own.indexes):
        return own, None
    if not count:
        return None, own
    row = bisect_left(own.rows, own.physicals[count], key=_physical_of)
    middle = count * UNIT_BYTES
    head = OwnBatch(
        own.index, own.physical, own.queue, own.queue_offset, own.indexes[:count],
        own.physicals[:count], own.units[:middle], own.codes[:count], own.rows[:row], None,
    )  # fmt: skip
    rest = OwnBatch(
        own.indexes[count], own.physicals[count], own.queue, own.queue_offset + count,
        own.indexes[count:], own.physicals[count:], own.units[middle:], own.codes[count:],
        own.rows[row:], own.done, is_rest=True,
    )  # fmt: skip
    return head, rest

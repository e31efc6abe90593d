"""Own entries that are not committed yet: what dispatch and those who wait need to know of them.

The messages of a batch are one item here. They are entries of their own in the log all the same: a
commit, or a disk that is full, may end between two of them, and the item is cut in two then.
Pure. Source: protocol.md 4.6; RocketMQ MessageExtBatch.
"""

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from store.layout import UNIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.consume_queue import ConsumeQueue
    from store.layout import Row
    from store.results import PutCallback


_physical_of: "Callable[[Row], int]" = itemgetter(1)


class OwnBatch(msgspec.Struct, gc=False):
    """The messages of a batch, one after the other."""

    indexes: "Sequence[int]"
    physicals: list[int]
    units: bytes
    """For the consume queue."""
    codes: "Sequence[int]"
    """Tags codes."""
    rows: "list[Row]"
    """For the key index; none without one."""
    is_rest: bool = False
    """Whether there were messages before these: they may be committed already."""


Pending = tuple[
    int,
    "ConsumeQueue | None",
    int,
    int,
    int,
    int,
    "PutCallback | None",
    "list[Row] | OwnBatch | None",
]
"""``(index, queue, queue_offset, physical_offset, size, tags_code, done, rows)`` of an own entry.

Without a queue it is a state record or a prepared message; ``rows`` are for the key index, if there
is one, and None of a state record. A size of 0 marks a batch: what is told is of its first message
then, except ``done``, which is for all, and an `OwnBatch` in the place of ``rows``."""


def last_index(item: Pending) -> int:
    """Return the last entry of an item."""
    batch = item[7]
    return batch.indexes[-1] if isinstance(batch, OwnBatch) else item[0]


def cut_in_two(item: Pending, last: int) -> tuple[Pending | None, Pending | None]:
    """Return what of an item lies at or before entry ``last``, and what behind.

    Whoever waits for a batch waits for its last message.
    """
    index, queue, queue_offset, _, _, _, done, batch = item
    if not isinstance(batch, OwnBatch):
        return (item, None) if index <= last else (None, item)
    count = bisect_right(batch.indexes, last)
    if count == len(batch.indexes):
        return item, None
    if not count:
        return None, item
    physicals, codes, rows = batch.physicals, batch.codes, batch.rows
    middle = count * UNIT_BYTES
    row = bisect_left(rows, physicals[count], key=_physical_of)
    head = OwnBatch(
        batch.indexes[:count], physicals[:count], batch.units[:middle], codes[:count], rows[:row]
    )
    rest = OwnBatch(
        batch.indexes[count:], physicals[count:], batch.units[middle:], codes[count:],
        rows[row:], is_rest=True,
    )  # fmt: skip
    return (
        (index, queue, queue_offset, physicals[0], 0, codes[0], None, head),
        (
            rest.indexes[0], queue, queue_offset + count, rest.physicals[0], 0, rest.codes[0], done,
            rest,
        ),
    )  # fmt: skip

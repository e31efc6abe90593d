"""Own entries that are not committed yet: what dispatch and those who wait need to know of them.

The messages of a batch are one item here. They are entries of their own in the log all the same: a
commit, or a disk that is full, may end between two of them, and the item is cut in two then.
Pure. Source: protocol.md 4.6; RocketMQ MessageExtBatch.
"""

from bisect import bisect_right
from typing import TYPE_CHECKING

import msgspec

from store.layout import UNIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.consume_queue import ConsumeQueue
    from store.layout import Keyed
    from store.results import PutCallback


class OwnBatch(msgspec.Struct, gc=False):
    """The messages of a batch, one after the other."""

    indexes: "Sequence[int]"
    physicals: list[int]
    units: bytes
    """For the consume queue."""
    codes: "Sequence[int]"
    """Tags codes."""
    keyed: "list[Keyed]"
    """What the key index is told; none without an index."""
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
    "Keyed | OwnBatch | None",
]
"""``(index, queue, queue_offset, physical_offset, size, tags_code, done, keyed)`` of an own entry.

Without a queue it is a state record or a prepared message; ``keyed`` is what the key index is told
of a message, if there is an index. A size of 0 marks a batch: what is told is of its first message
then, except ``done``, which is for all, and an `OwnBatch` in the place of ``keyed``."""


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
    physicals, codes, keyed = batch.physicals, batch.codes, batch.keyed
    middle = count * UNIT_BYTES
    head = OwnBatch(
        batch.indexes[:count], physicals[:count], batch.units[:middle], codes[:count], keyed[:count]
    )
    rest = OwnBatch(
        batch.indexes[count:], physicals[count:], batch.units[middle:], codes[count:],
        keyed[count:], is_rest=True,
    )  # fmt: skip
    return (
        (index, queue, queue_offset, physicals[0], 0, codes[0], None, head),
        (
            rest.indexes[0], queue, queue_offset + count, rest.physicals[0], 0, rest.codes[0], done,
            rest,
        ),
    )  # fmt: skip

"""What is written down of an entry, to find it again in the same log, or to see that it is another.

Checkpoints hold it. Whoever keeps one neither makes one nor looks into it: `ReplicatedLog.mark` and
`ReplicatedLog.maybe_end` do, and their like of other logs.
"""

import msgspec


class LogMark(msgspec.Struct, frozen=True, array_like=True):
    """An entry up to which everything was done."""

    index: int
    """As the log counts: its number in a group, the position of its last byte in a log alone."""
    term: int
    position: int
    """Where it starts; -1: it is not in the log."""

"""The time of a run in slots, so that what happened at a time is found by an equal join.

A list of faults or of leader changes in an expression makes the plan as long as the list, and a
join by inequality compares each row with each of them. Here an interval becomes a row for each slot
that it touches, a moment has one slot, and who shares a slot is compared exactly. Knows no tables.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

SLOTS: Final = 1024
"""So many rows at most has an interval; a run of an hour has slots of four seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Slots from ``start`` on, each ``width`` ns long; what is earlier or later is in an end one.

    ``slot`` never falls as time goes on, so that an interval touches all slots from the one of its
    begin to the one of its end.
    """

    start: int
    width: int

    def slot(self, t: Column) -> Column:
        """Return the slot of a moment; null if the moment is not known."""
        number = F.floor((t - F.lit(self.start)) / F.lit(self.width))
        inside = F.greatest(F.least(number, F.lit(SLOTS - 1)), F.lit(0))  # a cast before it wraps
        return F.when(number.isNotNull(), inside.cast("int"))

    def slots(self, low: Column, high: Column) -> Column:
        """Return the slots that an interval touches, as an array to explode."""
        begin = self.slot(low)
        return F.sequence(begin, F.greatest(begin, self.slot(high)))


def timeline(moments: list[int]) -> Timeline:
    """Return the slots of a run from its earliest and latest moments."""
    start, end = min(moments, default=0), max(moments, default=0)
    return Timeline(start=start, width=max(1, -(-(end - start) // SLOTS)))

"""Rows in the order in which they were recorded, folded to runs: a line without a sort of it.

What a history records of one queue it records nearly in the queue's order. So a batch of rows is
put in order where it lies, and what follows each other without a gap becomes one row, a run, that
says what lies in it; a queue of millions is some hundred runs, and two rows of it are in the wrong
order only if two of one run are, or two runs. Where runs are many, or overlap, the caller looks at
the rows themselves. Knows no tables and no checks.

Source: spec/proof.md 3.0 (prefix maximum).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

RUNS_MAX: Final = 100_000
"""So many runs are looked at in one place; where there are more, nothing is said."""
_RUN: Final = pa.schema(
    [(name, pa.int64()) for name in ("line", "parent", "low", "high", "early", "late")]
    + [("broken", pa.bool_())]
)
_STEP: Final = pa.schema(
    [("idx", pa.int64()), ("t", pa.int64()), ("joined", pa.bool_()), ("falls", pa.int64())]
)
Numbers = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of some lines, by line and place, a member of each array for each run.

    ``low`` to ``high``: its places; ``early``: the least of the times that must not lie before
    another's; ``late``: the latest of those others; ``broken``: whether one does within the run.
    """

    line: Numbers
    parent: Numbers
    low: Numbers
    high: Numbers
    early: Numbers
    late: Numbers
    broken: Marks

    def disordered(self) -> Marks:
        """Return which runs have a time before one of an earlier place of their line."""
        first = _begins(self.line)
        known = _prefix_max(self.late, first)
        later = np.zeros_like(first)
        later[1:] = ~first[1:] & (self.early[1:] < known[:-1])
        return later | self.broken

    def overlapping(self) -> Marks:
        """Return which runs have a place that an earlier run of their line has."""
        return _overlapping(self.line, self.low, self.high)

    def shared(self) -> Numbers:
        """Return the parents of which two runs, of whatever lines, have one place."""
        order = np.lexsort((self.low, self.parent))
        parent = self.parent[order]
        found = parent[_overlapping(parent, self.low[order], self.high[order])]
        return np.unique(found)

    def gaps(self) -> Marks:
        """Return which runs do not begin where the run before them in their line ends."""
        found = ~_begins(self.line)
        found[1:] &= self.low[1:] != self.high[:-1] + 1
        return found


def find_runs(
    rows: DataFrame, *, line: Column, parent: Column, at: Column, early: Column, late: Column
) -> Runs | None:
    """Return the runs of rows; None if they are too many, so that nothing is gained.

    ``line``, ``parent``: numbers of the line of a row and of what the line is part of; ``at``: its
    place. Of two rows of a line ``early`` of the one behind must not be less than ``late`` of the
    one before, nor a row's own. No column may be null.
    """
    slim = rows.select(
        line.cast("long").alias("line"), parent.cast("long").alias("parent"),
        at.cast("long").alias("at"), early.cast("long").alias("early"),
        late.cast("long").alias("late"),
    )  # fmt: skip
    found = slim.mapInArrow(_fold_lines, from_arrow_schema(_RUN)).limit(RUNS_MAX + 1).collect()
    if len(found) > RUNS_MAX:
        return None
    columns = [[row[number] for row in found] for number in range(len(_RUN))]
    numbers = [np.array(column, np.int64) for column in columns[:-1]]
    order = np.lexsort((numbers[2], numbers[0]))
    line, parent, low, high, first, last = (column[order] for column in numbers)
    broken = np.array(columns[-1], bool)[order]
    return Runs(line, parent, low, high, first, last, broken)


def fold_steps(numbered: DataFrame, tolerance: int) -> DataFrame:
    """Return the ends of runs of ``idx`` without a gap, and how often ``t`` fell within each.

    ``numbered``: ``idx`` and ``t``, neither null. ``falls`` counts in the first row of a run;
    ``joined``: the last row of one that has several, which is not to be compared with the first.
    """

    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield _steps(batch, tolerance)

    return numbered.select("idx", "t").mapInArrow(fold, from_arrow_schema(_STEP))


def _steps(batch: pa.RecordBatch, tolerance: int) -> pa.RecordBatch:
    idx, t = (_numbers(batch, number) for number in range(2))
    if (np.diff(idx) < 0).any():
        order = np.argsort(idx, kind="stable")
        idx, t = idx[order], t[order]
    first = np.ones(len(idx), bool)
    first[1:] = np.diff(idx) != 1
    fell = np.zeros(len(idx), np.int64)
    fell[1:] = ~first[1:] & (t[1:] < t[:-1] - tolerance)
    begins = np.flatnonzero(first)
    ends = np.append(begins[1:], len(idx)) - 1
    falls = np.add.reduceat(fell, begins)
    long = ends > begins
    both = np.concatenate([begins, ends[long]])
    joined = np.repeat([False, True], [len(begins), int(long.sum())])
    counts = np.concatenate([falls, np.zeros(int(long.sum()), np.int64)])
    return pa.RecordBatch.from_arrays(
        [pa.array(idx[both]), pa.array(t[both]), pa.array(joined), pa.array(counts)], schema=_STEP
    )


def _fold_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            yield _runs(*(_numbers(batch, number) for number in range(5)))


def _runs(
    line: Numbers, parent: Numbers, at: Numbers, early: Numbers, late: Numbers
) -> pa.RecordBatch:
    """Return the runs of one batch of rows."""
    order = np.lexsort((at, line))
    line, parent, at = line[order], parent[order], at[order]
    early, late = early[order], late[order]
    first = _begins(line)
    first[1:] |= np.diff(at) != 1
    begins = np.flatnonzero(first)
    ends = np.append(begins[1:], len(at)) - 1
    broken = early < _prefix_max(late, first)
    columns = [
        line[begins], parent[begins], at[begins], at[ends],
        np.minimum.reduceat(early, begins), np.maximum.reduceat(late, begins),
        np.logical_or.reduceat(broken, begins),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=_RUN)


def _numbers(batch: pa.RecordBatch, number: int) -> Numbers:
    return np.asarray(batch.column(number).to_numpy(zero_copy_only=False), np.int64)


def _begins(line: Numbers) -> Marks:
    """Return where another line begins."""
    first = np.ones(len(line), bool)
    first[1:] = line[1:] != line[:-1]
    return first


def _overlapping(line: Numbers, low: Numbers, high: Numbers) -> Marks:
    first = _begins(line)
    known = _prefix_max(high, first)
    found = np.zeros_like(first)
    found[1:] = ~first[1:] & (low[1:] <= known[:-1])
    return found


def _prefix_max(values: Numbers, first: Marks) -> Numbers:
    """Return the running maximum of values, begun anew where ``first`` says."""
    if not len(values):
        return values
    part = np.cumsum(first) - 1
    least = int(values.min())
    width = int(values.max()) - least + 1
    if width * (int(part[-1]) + 1) < 1 << 62:
        # Later parts lie above all earlier ones, so that one pass serves all.
        base = part * width - least
        highest: Numbers = np.maximum.accumulate(values + base) - base
        return highest
    begins = np.flatnonzero(first)
    parts = np.split(values, begins[1:])
    return np.concatenate([np.maximum.accumulate(one) for one in parts])

"""The copies of a segment on the nodes of a group: read side by side, what is the same read once.

A row is one content of one index and the nodes that hold it, as bits; where all copies are the same
bytes there is one row per index, however many nodes there are. A large segment is read in parts:
`find_cuts` follows the sizes once and says where each part begins on each copy. Knows no Spark.

Source: spec/disk.md 6.1.
"""

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from chaos.history.domains import DLEDGER, PLAIN
from spark.history import BrokenHistoryError
from spark.plain_segments import decode_plain, span_plain, walk_plain
from spark.segments import (
    ROWS_PER_BATCH,
    Columns,
    Walk,
    decode_entries,
    same_entries,
    span,
    unreadable,
    walk,
)

PART_BYTES: Final = 32 << 20
"""A segment that has more is read in parts of about so many bytes."""
BLOCK_BYTES: Final = 512
CONTENTS: Final = pa.schema([
    ("group", pa.int32()), ("base", pa.int64()), ("holders", pa.int64()),
    ("committers", pa.int64()), ("index", pa.int64()), ("term", pa.int64()), ("pos", pa.int64()),
    ("entry_crc", pa.int64()), ("size", pa.int32()), ("crc_ok", pa.bool_()), ("type", pa.string()),
    ("topic", pa.string()), ("queue_id", pa.int32()), ("queue_offset", pa.int64()),
    ("msg_key", pa.int64()), ("body_hash", pa.int64()),
])  # fmt: skip
"""``base``: where the segment begins, which names its files; ``holders``, ``committers``: the
nodes that have this content, and those of them that call it committed, a bit each."""


class Walker(Protocol):
    """Finds the entries of a file from ``begin`` on, of those that begin before ``stop``."""

    def __call__(
        self,
        data: memoryview,
        base: int,
        end_index: int | None,
        begin: int = 0,
        stop: int | None = None,
    ) -> Walk:
        """Return where they begin; ``base``: the file's position, ``end_index``: the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How the files of a log are read."""

    walk: Walker
    decode: Callable[[memoryview, int, list[int]], Columns]
    size_at: Callable[[memoryview, int], int]


def _walk(
    data: memoryview, base: int, end_index: int | None, begin: int = 0, stop: int | None = None
) -> Walk:
    """Walk a segment of DLedger's, whose entries do not name the file."""
    return walk(data, end_index, begin, stop)


FORMS: Final = {
    DLEDGER: Form(walk=_walk, decode=decode_entries, size_at=span),
    PLAIN: Form(walk=walk_plain, decode=decode_plain, size_at=span_plain),
}
"""By what ``meta.json`` calls the format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """What ``meta.json`` says of one node's dump. Indexes are -1 when nothing is there."""

    node: str
    number: int
    group: int
    boot_id: str | None
    first_index: int
    end_index: int | None
    commit_index: int
    segments: tuple[str, ...]
    group_name: str = ""
    form: str = DLEDGER


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The bytes of one copy from ``begin`` to ``stop``, or as far as they can be followed."""

    replica: Replica
    path: str
    begin: int = 0
    stop: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The copies of one segment, or of a part of it; it begins at ``base`` on every node."""

    base: int
    parts: tuple[Part, ...]

    @property
    def form(self) -> Form:
        """How the copies are read: they are of one group, so of one format."""
        return FORMS[self.parts[0].replica.form]


@dataclass(frozen=True, slots=True)
class _Copy:
    part: Part
    data: memoryview
    found: Walk


def segment_tasks(replicas: Sequence[Replica]) -> list[Task]:
    """Return a task for the copies of each segment that the nodes of a group have."""
    copies: dict[tuple[int, int], list[Part]] = {}
    for replica in replicas:
        for path in replica.segments:
            copy = Part(replica=replica, path=path)
            copies.setdefault((replica.group, int(Path(path).name)), []).append(copy)
    return [Task(base=base, parts=tuple(found)) for (_, base), found in copies.items()]


def used_bytes(task: Task) -> int:
    """Return how many bytes the largest copy has on disk; files may be longer than that.

    Errors: BrokenHistoryError names a file that is not there.
    """
    try:
        stats = [Path(part.path).stat() for part in task.parts]
    except OSError as error:
        raise BrokenHistoryError(f"segment {error.filename}: {error}") from error
    return max(min(stat.st_size, stat.st_blocks * BLOCK_BYTES) for stat in stats)


def find_cuts(task: Task, part_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Yield (copy, part, begin): where parts of a segment begin, on each of its copies.

    A copy has no part where it has no entry of that part's own.
    """
    numbers = {copy.path: number for number, copy in enumerate(task.parts)}
    for copy in _open(task):
        starts = np.array(copy.found.starts, np.int64)
        yield numbers[copy.part.path], 0, 0
        parts = starts // part_bytes
        first = np.flatnonzero(np.diff(parts, prepend=0))
        for part, begin in zip(parts[first].tolist(), starts[first].tolist(), strict=True):
            yield numbers[copy.part.path], part, begin


def cut(task: Task, cuts: Sequence[tuple[int, int, int]]) -> list[Task]:
    """Return the parts of a segment that `find_cuts` has found, each as a task."""
    parts: dict[int, list[Part]] = {}
    for number, whole in enumerate(task.parts):
        begins = sorted((part, begin) for copy, part, begin in cuts if copy == number)
        stops = [*(begin for _, begin in begins[1:]), None]
        for (part, begin), stop in zip(begins, stops, strict=False):
            parts.setdefault(part, []).append(replace(whole, begin=begin, stop=stop))
    return [Task(base=task.base, parts=tuple(found)) for _, found in sorted(parts.items())]


def decode_copies(task: Task) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the copies of a segment, in the shape of `CONTENTS`.

    Where a copy cannot be followed a last row of type ``unreadable`` says where.
    Errors: BrokenHistoryError names a file that cannot be read.
    """
    copies = _open(task)
    longest = max((len(copy.found.starts) for copy in copies), default=0)
    for first in range(0, longest, ROWS_PER_BATCH):
        stretches = [(copy, copy.found.starts[first : first + ROWS_PER_BATCH]) for copy in copies]
        left = [one for one in stretches if one[1]]
        while left:
            batch, left = _take_same(task, left)
            yield batch
    for copy in copies:
        if copy.found.broken_at >= 0:
            row = unreadable(copy.data, task.base, copy.found.broken_at)
            yield _to_batch(row, task, [(copy, 1)])


def _take_same(
    task: Task, stretches: list[tuple[_Copy, list[int]]]
) -> tuple[pa.RecordBatch, list[tuple[_Copy, list[int]]]]:
    """Decode the longest stretch; return it with its holders, and what others have of their own."""
    model, ours = max(stretches, key=lambda one: len(one[1]))
    held, left = [(model, len(ours))], []
    for copy, theirs in stretches:
        if copy is model:
            continue
        same = same_entries(model.data, copy.data, ours, theirs, task.form.size_at)
        if same:
            held.append((copy, same))
        if theirs[same:]:
            left.append((copy, theirs[same:]))
    return _to_batch(task.form.decode(model.data, task.base, ours), task, held), left


def _to_batch(columns: Columns, task: Task, held: list[tuple[_Copy, int]]) -> pa.RecordBatch:
    """Return entries as a batch; ``held``: the copies that have so many of the first of them."""
    index = np.array(columns["index"], np.int64)
    holders, committers = np.zeros_like(index), np.zeros_like(index)
    for copy, same in held:
        replica = copy.part.replica
        holders[:same] |= 1 << replica.number
        known = (index[:same] >= 0) & (index[:same] <= replica.commit_index)
        committers[:same] |= known.astype(np.int64) << replica.number
    group = pa.repeat(pa.scalar(held[0][0].part.replica.group, pa.int32()), len(index))
    made = {
        "group": group,
        "base": pa.repeat(pa.scalar(task.base, pa.int64()), len(index)),
        "holders": pa.array(holders),
        "committers": pa.array(committers),
        "index": pa.array(index),
    }
    return pa.RecordBatch.from_arrays(
        [made[f.name] if f.name in made else pa.array(columns[f.name], f.type) for f in CONTENTS],
        schema=CONTENTS,
    )


def _open(task: Task) -> list[_Copy]:
    """Map the copies and find their entries. Errors: BrokenHistoryError names a file."""
    copies: list[_Copy] = []
    # Who has the earliest known end goes first: a walk that did not meet it is right for others.
    for part in sorted(task.parts, key=_known_end):
        data = _map(part.path)
        if data is None:
            continue
        known = (copy.found for copy in copies if _is_same_walk(copy, part, data))
        end = part.replica.end_index
        found = next(known, None) or task.form.walk(data, task.base, end, part.begin, part.stop)
        copies.append(_Copy(part, data, found))
    return sorted(copies, key=lambda copy: copy.part.replica.number)


def _known_end(part: Part) -> float:
    end = part.replica.end_index
    return float("inf") if end is None else end


def _is_same_walk(model: _Copy, part: Part, data: memoryview) -> bool:
    """Whether a walk of these bytes would find what that of the model has found."""
    ours, found = model.part, model.found
    if (ours.begin, ours.stop, len(model.data)) != (part.begin, part.stop, len(data)):
        return False
    if found.met_end and ours.replica.end_index != part.replica.end_index:
        return False
    size = max(0, min(len(data), found.seen) - part.begin)
    mine = np.frombuffer(model.data, np.uint8, size, part.begin)
    return bool(np.array_equal(mine, np.frombuffer(data, np.uint8, size, part.begin)))


def _map(name: str) -> memoryview | None:
    """Return the bytes of a file, None if it has none."""
    path = Path(name)
    try:
        if path.stat().st_size == 0:
            return None
        with path.open("rb") as file:
            # Never closed by hand: rows in flight hold views, the last one frees the mapping.
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise BrokenHistoryError(f"segment {name}: {error}") from error

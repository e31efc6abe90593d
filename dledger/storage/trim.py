"""Where a log may be made to begin: whole segments go, and only what a snapshot stands for.

`settle_log_start` finishes at the start what a crash interrupted: the file ``snapshot`` says where
the log begins, and whatever lies before that is removed; the marker of an install says that the
whole log goes (see `dledger.storage.snapshot_files`).
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from dledger.codec.entry import decode_header, header_problem
from dledger.core.model import UNIT_BYTES, LogIndex, Term
from dledger.core.snapshot import SnapshotMeta
from dledger.errors import DamagedEntry
from dledger.segments.row import Segments
from dledger.storage.snapshot_files import SnapshotFiles

_log: Final = logging.getLogger(__name__)


EntryLookup = Callable[[LogIndex], tuple[int, int, Term]]
"""Returns position, size and term of an entry of the log. Errors: `DamagedEntry`."""


class SegmentHead(NamedTuple):
    """The first entry of a segment."""

    position: int
    first_index: LogIndex


class TrimPlan(NamedTuple):
    """Where the log will begin."""

    first_index: LogIndex
    position: int
    base_term: Term
    """Term of entry ``first_index - 1``."""
    segments: int
    """How many go."""


def plan_trim(
    data: Segments, first_index: LogIndex, limit_index: LogIndex, entry: EntryLookup
) -> TrimPlan | None:
    """Return the furthest beginning at the start of a segment, None if none can go.

    Args:
        data: the segments of the log.
        first_index: where it begins now.
        limit_index: last entry that may go; it is committed.
        entry: looks up position, size and term.
    """
    allowed = range(first_index + 1, limit_index + 1)
    for base, index in _heads(data, reversed(data.bases[1:]), allowed, entry):
        return TrimPlan(index, base, entry(index - 1)[2], data.bases.index(base))
    return None


def segment_heads(
    data: Segments, first_index: LogIndex, limit_index: LogIndex, entry: EntryLookup
) -> list[SegmentHead]:
    """Return the first entries of the segments at which the log begins or could be made to.

    Those at most ``limit_index``, in order; a segment whose first entry is damaged is left out.
    """
    return list(_heads(data, data.bases, range(first_index, limit_index + 1), entry))


def _heads(
    data: Segments, bases: Iterable[int], allowed: range, entry: EntryLookup
) -> Iterator[SegmentHead]:
    """Walk those segments whose first entry is sound and among the allowed ones."""
    for base in bases:
        index = _maybe_first_index(data, base)
        if index is None or index not in allowed:
            continue  # nothing written there yet, or damaged: a neighbour will do
        # The log, too, must have the entry there: a header has no CRC over its index. And it must
        # be there to stay: a log that loses it can get another one in its place, which fits in the
        # segment before.
        try:
            lies_there = entry(index)[0] == base
        except DamagedEntry:
            continue
        if lies_there:
            yield SegmentHead(base, index)


def _maybe_first_index(data: Segments, base: int) -> LogIndex | None:
    """Return what the header at the start of a segment says, None if there is no sound one."""
    view = data.segment_view(base)
    assert view is not None, base
    header = decode_header(view)
    index = header.entry_index
    return None if header_problem(header, index, base, len(view)) is not None else index


def settle_log_start(
    data: Segments, index: Segments, snapshots: SnapshotFiles
) -> SnapshotMeta | None:
    """Finish an install or a trim that was interrupted; return what stands before the log."""
    meta = snapshots.meta
    if meta is not None and snapshots.replaces_log:
        _log.warning("event=install_continued snapshot=%s", meta.id.describe())
        data.clear()
        index.clear()
    elif meta is not None:
        data.remove(data.drop_below(meta.position))
        index.remove(index.drop_below((meta.id.last_index + 1) * UNIT_BYTES))
    snapshots.end_install()
    return meta

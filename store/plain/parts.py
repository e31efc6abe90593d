"""A plain log for those who ask it for more than entries, see `store.ports.LogParts`."""

from typing import TYPE_CHECKING

from dledger.mark import LogMark
from dledger.segments.places import pieces
from ledgermq.runtime.page_cache import is_in_memory, read_ahead
from store.plain.view import TERM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.plain.view import PlainView


class PlainFeed:
    """A plain log as dispatch follows it, a `store.ports.LogFeed`."""

    def __init__(self, log: "PlainView") -> None:
        self.following = log.following

    def maybe_hint(self, position: int) -> None:
        """Return None: there is no leader to say anything about entries."""

    def next_batch(self, applied: int, most: int, least: int = 0) -> int:
        """Return ``most``: whoever appends may wait."""
        del applied, least
        return most


class PlainMarks:
    """Records of a plain log, named to be found again, a `store.ports.LogMarks`."""

    def __init__(self, log: "PlainView") -> None:
        self._log = log

    def mark(self, start: int, end: int) -> LogMark:
        """Return what to write down of the record in ``[start, end)``; the start may be -1."""
        if start < self._log.first_position:
            return LogMark(end - 1, 0, -1)
        return LogMark(end - 1, TERM, start)

    def maybe_end(self, mark: LogMark) -> int | None:
        """Return where that very record ends; None if it is not in this log.

        It counts as in it where it may be the last one that was dropped.
        """
        log, first = self._log, self._log.first_position
        if mark.index < first:
            may_be = mark.term == TERM and mark.index >= first - log.config.segment_bytes
            return first if mark.index < 0 or may_be else None
        end = mark.index + 1
        if mark.term != TERM or end > log.end_position:
            return None
        size = log.maybe_size(mark.position)
        return end if size is not None and mark.position + size == end else None


class PlainFiles:
    """The files of a plain log, a `store.ports.LogFiles`."""

    def __init__(self, log: "PlainView") -> None:
        self._log = log

    def read_ahead(self, physical_offset: int, size: int) -> None:
        """Ask for bytes that will be read soon, without waiting."""
        for view, at, count in self._pieces(physical_offset, size):
            read_ahead(view, at, count)

    def is_in_memory(self, physical_offset: int, size: int) -> bool:
        """Tell whether these bytes can be read without waiting for the disk."""
        return all(is_in_memory(*piece) for piece in self._pieces(physical_offset, size))

    def describe(self, physical_offset: int) -> str:
        """Return in words the file that holds a place of the log, and where in it that is."""
        return self._log.segments.describe(physical_offset)

    def _pieces(self, physical_offset: int, size: int) -> "Iterator[tuple[memoryview, int, int]]":
        """Yield what there is of a range: a segment, where in it, how many bytes."""
        segments = self._log.segments
        for base, at, count in pieces(physical_offset, size, segments.segment_bytes):
            view = segments.segment_view(base)
            if view is not None:
                yield view, at, count

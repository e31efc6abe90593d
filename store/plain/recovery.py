"""Opening a plain log: from where to walk, where the log ends, what is cut off, what is refused.

Where the walk begins (`_Recovery.begin`):

- After a clean stop everything was synced: the third last file, as in RocketMQ; when that is more
  than ``clean_walk_bytes`` before the end, a record nearer to the end. That record is searched for,
  so it counts only if the walk from there explains every byte up to the end.
- After a crash the last file whose first message is older than the checkpoint: everything in front
  of it was synced, in log and queues. Without a checkpoint: the first file.

The walk goes from record to record, from blank to next file, and ends at the first place that is
neither. What lies behind that place is cut: the rest of the file is zeroed, later files are
removed, and a line in the log tells file, offset and bytes. A torn write, or a file that was made
ahead, is nothing more than that.

A record that is all there and only says that its hosts are wider than they are (`record.misread`)
is what an earlier version wrote: the walk steps over it, whatever follows, and dispatch names it.

But when a sound message lies behind the damage that was certainly synced (`Synced`, or the stop was
clean), stored messages were corrupted. RocketMQ cuts them off all the same, with everything behind.
We refuse to start (`FatalError`), unless ``cut_damaged`` is set. The seconds that are taken off the
checkpoint are for where to begin, and not for this: while nothing is sent, they never pass.

Cutting begins with the last file, so that a start that is interrupted finds the same end again.

What is kept after a crash is made durable before it counts, in SYNC_FLUSH too: a process that was
killed may have left it in the page cache alone. A sync is not enough for that: after one that
failed the kernel takes the pages for written. So what the checkpoint does not know as synced is
written again, as it is read, and then synced.
Source: spec/disk.md 5.7; RocketMQ CommitLog.recoverNormally, recoverAbnormally.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from dledger.segments.row import Segments
from dledger.segments.walk import walk
from ledgermq.runtime.errors import FatalError
from store.layout import FLAGS_HOSTS_V6, store_timestamp
from store.plain.config import PlainLogConfig
from store.plain.record import (
    BLANK_BYTES,
    HEAD_BYTES_MAX,
    IS_BLANK,
    IS_EMPTY,
    MAGIC_START,
    PROBLEMS,
    TORN,
    inspect,
    is_torn,
    stored_ms,
)
from store.plain.writer import NOTHING, Extent

CLEAN_WALK_FILES: Final = 3
SEARCH_BYTES: Final = 1 << 20
"""Piece in which damaged bytes are searched for a record."""
MARK_BYTES: Final = 1 << 20
"""How far the records lie apart that a walk remembers."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What was found."""

    extent: Extent
    walked_from: int
    """Position of the first record that was checked: dispatch must be repeated from there when the
    queues cannot be trusted to have everything (after a crash)."""
    entries: int
    """Records walked over."""
    cut_bytes: int
    """Bytes that were cut off the end, up to the last one that was not zero."""


class Synced(NamedTuple):
    """Which records are on disk for sure, after a crash."""

    before_ms: int = 0
    """Those that were stored earlier; 0: nothing is known."""
    before: int = 0
    """Those that begin at an earlier position."""


def recover(
    segments: Segments,
    config: PlainLogConfig,
    *,
    clean: bool,
    safe_timestamp_ms: int,
    synced: Synced | None = None,
) -> Recovered:
    """Find the end of the log, cut what is behind it, and make durable what was found.

    Args:
        segments: the files.
        config: see `PlainLogConfig`.
        clean: whether the last stop was a clean one (there is no ``abort`` file).
        safe_timestamp_ms: messages stored before it are synced, in log and queues; 0: unknown.
        synced: what more is known to be synced, of the log alone.

    Errors: `FatalError` naming file and offset; `OSError`.
    """
    if segments.is_empty:
        empty = Extent(segments.start, NOTHING, segments.start)
        return Recovered(extent=empty, walked_from=segments.start, entries=0, cut_bytes=0)
    known = _Known(clean=clean, safe_ms=safe_timestamp_ms, synced=synced)
    return _Recovery(segments, config, known).run()


def sound_end(
    segments: Segments, config: PlainLogConfig, *, safe_timestamp_ms: int, synced: Synced
) -> int:
    """Return where `recover` would find the end after a crash; nothing is changed.

    Bytes behind it prove nothing: a loss of power may have kept them, and what is before them not.
    """
    if segments.is_empty:
        return segments.start
    known = _Known(clean=False, safe_ms=safe_timestamp_ms, synced=synced)
    return _Recovery(segments, config, known).find_end()


class _Known:
    """What is known of a log before anything of it is read."""

    def __init__(self, *, clean: bool, safe_ms: int, synced: Synced | None) -> None:
        self.is_clean = clean
        self.safe_ms = safe_ms
        """Where to begin, and to write again."""
        self._synced = synced or Synced(safe_ms)

    def is_synced(self, position: int, stored: int) -> bool:
        """Tell whether a record that is there was on disk for sure."""
        before_ms, before = self._synced
        return self.is_clean or stored < before_ms or position < before


class _Walked:
    """A walk, the codec of which it is, and its end."""

    def __init__(self, begin: int, known: _Known) -> None:
        self._is_synced = known.is_synced
        self._mark_at = begin + MARK_BYTES
        self.begin = self.position = begin
        """Where the walk began, and where the next record would be."""
        self.code = IS_EMPTY
        """What is there: one of `PROBLEMS`, or `IS_BLANK` when no file follows."""
        self.entries = 0
        self.last_start = NOTHING
        self.last_end = begin
        self.marks: list[int] = []
        """Where some records begin that are well apart."""

    def inspect(self, view: memoryview, at: int, position: int) -> int:
        """Pass the record at ``at``, if one is there; see `record.inspect`."""
        size = inspect(view, at, position)
        if size > 0:
            # One that may never have been synced must be there with all its parts: when a loss
            # of power has torn it, its body may be whole, and with it its CRC.
            if not self._is_synced(position, stored_ms(view, at)) and is_torn(view, at, size):
                return TORN
            if position >= self._mark_at:
                self.marks.append(position)
                self._mark_at = position + MARK_BYTES
            self.last_start, self.last_end = position, position + size
            self.entries += 1
        return size


class _Recovery:
    """One start."""

    def __init__(self, segments: Segments, config: PlainLogConfig, known: _Known) -> None:
        self._segments = segments
        self._segment_bytes = config.segment_bytes
        self._clean_walk_bytes = config.clean_walk_bytes
        self._cut_damaged = config.cut_damaged
        self._known = known
        self._is_clean = known.is_clean
        self._safe_timestamp_ms = known.safe_ms

    def run(self) -> Recovered:
        segments = self._segments
        walked = self._walk_to_end()
        cut_bytes = self._settle_end(walked)
        position = walked.position
        if self._remaining(position) < BLANK_BYTES:
            position += self._remaining(position)
        if not self._is_clean:
            refused = segments.rewrite(self._find_unsynced(walked), walked.position)
            for path, error in refused.items():
                _log.warning("event=not_written_again file=%s error=%s", path, error)
            segments.sync_from(walked.begin)
        last_end = self._end_of(walked)
        _log.info(
            "event=commit_log_opened from=%d to=%d entries=%d end=%r",
            walked.begin, position, walked.entries, _describe(walked.code),
        )  # fmt: skip
        return Recovered(
            extent=Extent(position, walked.last_start, last_end),
            walked_from=walked.begin,
            entries=walked.entries,
            cut_bytes=cut_bytes,
        )

    def find_end(self) -> int:
        """Return where the last sound message ends."""
        return self._end_of(self._walk_to_end())

    def _end_of(self, walked: _Walked) -> int:
        return walked.last_end if walked.last_start != NOTHING else self._segments.start

    # Where to begin

    def _find_safe_file(self) -> int:
        """Return the last file that begins with a message older than the checkpoint."""
        bases = self._segments.bases if self._safe_timestamp_ms > 0 else range(0)
        for base in reversed(bases):
            head = memoryview(self._segments.peek(base, HEAD_BYTES_MAX))
            if head[4:7] != MAGIC_START:
                continue
            if head[39] & FLAGS_HOSTS_V6:  # whether that is true, the whole record tells
                view = self._segments.segment_view(base)
                if view is None or inspect(view, 0, base) <= 0:
                    continue
                stored = stored_ms(view, 0)
            else:
                stored = store_timestamp(head)
            if 0 < stored < self._safe_timestamp_ms:
                return base
        return self._segments.start

    def _walk_clean(self) -> _Walked:
        """Walk the end of a log that was closed."""
        segments = self._segments
        end = segments.nonzero_end(segments.start)
        third = self._base(max(end - 1, 0)) - (CLEAN_WALK_FILES - 1) * self._segment_bytes
        begin = max(segments.start, third)
        limit = end - self._clean_walk_bytes
        if begin < limit:
            near = self._base(limit - 1) + self._segment_bytes
            if near < end:
                begin = near
            else:
                found = self._find_record(limit, end)
                walked = None if found is None else self._walk(found)
                if walked is not None and (walked.position >= end or walked.code == IS_BLANK):
                    return walked
        return self._walk(begin)

    # The walk

    def _walk_to_end(self) -> _Walked:
        """Walk until the log ends, from where it may have been damaged."""
        walked = self._walk_clean() if self._is_clean else self._walk(self._find_safe_file())
        while walked.last_start == NOTHING and walked.begin > self._segments.start:
            # Nothing here: the last message lies in an earlier file.
            walked = self._walk(self._base(walked.begin - 1))
        return walked

    def _walk(self, begin: int) -> _Walked:
        """Go from record to record; ``begin`` is where one begins, or a file."""
        walked = _Walked(begin, self._known)
        walked.position, walked.code = walk(self._segments, begin, walked.inspect)
        return walked

    def _find_unsynced(self, walked: _Walked) -> int:
        """Return a record before which everything is synced, as far as the checkpoint knows."""
        for mark in reversed(walked.marks):
            if self._stored_at(mark) < self._safe_timestamp_ms:
                return mark
        return walked.begin

    def _stored_at(self, position: int) -> int:
        view, at = self._segments.locate(position)
        assert view is not None, position
        return stored_ms(view, at)

    def _settle_end(self, walked: _Walked) -> int:
        """Cut what lies behind the end; return how much was there. Errors: `FatalError`."""
        segments, position = self._segments, walked.position
        end = segments.nonzero_end(position)
        if end > position and walked.code != IS_BLANK:
            self._check_damage(position, walked.code, end)
            _log.warning(
                "event=commit_log_cut %s position=%d bytes=%d reason=%r",
                segments.describe(position), position, end - position, _describe(walked.code),
            )  # fmt: skip
        # A blank without a file behind it is written anew; files that were made ahead go, as in
        # RocketMQ, but for the one in which the next record will lie. After a crash zeros are
        # written even where zeros are read: they may be those of a sync that failed.
        is_ahead = segments.end > self._base(position) + self._segment_bytes
        if end > position or is_ahead or not self._is_clean:
            segments.cut(position)
        return end - position

    def _check_damage(self, position: int, code: int, end: int) -> None:
        """Refuse to cut off a message that was synced. Errors: `FatalError`."""
        is_synced = self._known.is_synced
        behind = (at for at, stored in self._sound_behind(position, end) if is_synced(at, stored))
        where = next(behind, None)
        if where is None:
            return
        if self._cut_damaged:
            _log.error(
                "event=commit_log_damaged %s reason=%r next_message=%d lost_bytes=%d",
                self._segments.describe(position), _describe(code), where, end - position,
            )  # fmt: skip
            return
        raise FatalError(
            f"{self._segments.path(position)} is damaged at offset"
            f" {position % self._segment_bytes} (position {position}): {_describe(code)}. Sound"
            f" messages that had been synced lie behind it, from position {where} to {end}."
            f" Restore the file from a copy; or set cutDamagedCommitLog=true for one start, which"
            f" drops these {end - position} bytes, as RocketMQ does"
        )

    def _sound_behind(self, position: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield position and store timestamp of the sound messages behind the damage there."""
        at = position + 1
        while at < end:
            base = self._base(at)
            found = self._find_record(at, end)
            if found is None:
                at = base + self._segment_bytes
                continue
            view, at = self._segments.segment_view(base), found
            assert view is not None, base
            while (size := inspect(view, at - base, at)) > 0:
                yield at, stored_ms(view, at - base)
                at += size

    def _find_record(self, position: int, end: int) -> int | None:
        """Return where the first sound record of a file begins, at or behind ``position``.

        ``end``: where the data of the file ends. It is found by its magic, and counts because it
        states where it lies.
        """
        base = self._base(position)
        view = self._segments.segment_view(base)
        if view is None:
            return None
        at, limit = position - base + 4, min(end - base, self._segment_bytes)
        while at < limit:
            piece = bytes(view[at : at + SEARCH_BYTES + len(MAGIC_START)])
            found = piece.find(MAGIC_START)
            while found >= 0:
                start = at + found - 4
                if inspect(view, start, base + start) > 0:
                    return base + start
                found = piece.find(MAGIC_START, found + 1)
            at += SEARCH_BYTES
        return None

    def _base(self, position: int) -> int:
        return position - position % self._segment_bytes

    def _remaining(self, position: int) -> int:
        return -position % self._segment_bytes


def _describe(code: int) -> str:
    return PROBLEMS.get(code, "the log ends")

"""What a leader appends in one turn of the loop: places, headers, one span. The hot path.

A position is promised before the bytes exist (`Appender.reserve`), because the body of an entry
holds its own position. The entries of a turn become one span, or more where a segment ends or a
span is full; the user may add a hint to it. The appender knows nothing of disk or network; closed
spans go to the core. This is the one place where entries of users enter the log. It
refuses entries that no frame can carry to the other members, whatever the layers above let through.

Source: DLedgerMmapFileStore.appendAsLeader; RocketMQ's append hook (spec/disk.md 6.2).
"""

from collections.abc import Callable, Sequence
from typing import Final
from zlib import crc32

from dledger.codec.entry import END_RECORD_BYTES, ENTRY_MAGIC, HEADER, HEADER_BYTES
from dledger.codec.index import UNIT, UNIT_MAGIC
from dledger.config import DLedgerConfig
from dledger.core.model import LogIndex, Span, Term
from dledger.errors import DLedgerError, EntryTooLarge, PendingFull
from dledger.limits import entry_bytes_max

HINTED_ENTRIES_MIN: Final = 3
"""A hint about fewer costs more than it spares, and so does one about entries without a batch."""
_pack_header: Final = HEADER.pack
_pack_unit: Final = UNIT.pack


class Appender:
    """Collects entries for one leadership at a time."""

    __slots__ = (
        "_batch_first_index", "_batch_limit", "_batch_position", "_buffers", "_committed",
        "_config", "_entry_bytes_max", "_has_batch", "_next_index", "_next_position",
        "_pending_limit", "_position_limit", "_refusal", "_schedule", "_term", "_units",
        "accepting", "propose", "scheduled", "write_hint",
    )  # fmt: skip

    def __init__(
        self,
        config: DLedgerConfig,
        *,
        schedule: Callable[[], None],
        refusal: Callable[[], DLedgerError],
        committed: Callable[[], int],
    ) -> None:
        """Make one; ``committed`` returns where the log ends as far as it is committed."""
        self._config = config
        self._entry_bytes_max = entry_bytes_max(config.span_bytes_max)
        self.propose: Callable[[Span], None] = refuse_span
        """Takes what was collected; the owner sets it when there is a core."""
        self._schedule = schedule
        self._refusal = refusal
        self._committed = committed
        self.accepting = False
        """Whether entries are taken; the owner sets it."""
        self.write_hint: Callable[[int, int], bytes] = no_hint
        """Returns the hint of a span from where it starts and ends, see `Span.hint`; short spans
        have none."""
        self.scheduled = False
        """Whether the owner will close the batch in this turn; it clears it when it has."""
        self._term: Term = 0
        self._next_index: LogIndex = 0
        self._next_position = 0
        self._position_limit = 0
        self._pending_limit = 0
        """Up to here entries are taken without a look at what is committed."""
        self._buffers: list[bytes] = []
        self._units: list[bytes] = []
        self._batch_first_index: LogIndex = 0
        self._batch_position = 0
        self._batch_limit = 0
        self._has_batch = False

    def call_turn(self) -> None:
        """Ask the owner for a turn, unless one is to come."""
        if not self.scheduled:
            self.scheduled = True
            self._schedule()

    def restart(self, term: Term, next_index: LogIndex, position: int) -> None:
        """Forget what was collected; continue behind an entry that ends at ``position``."""
        self._buffers.clear()
        self._units.clear()
        self._has_batch = False
        self._term = term
        self._next_index = self._batch_first_index = next_index
        self._set_position(position)

    def reserve(self, body_bytes: int) -> int:
        """Return the physical offset at which a body of this size will lie if appended next.

        Bodies that follow each other at once lie side by side in one segment, where the bytes of
        all of them and of the headers in between were reserved as one.
        Errors: `NotLeader`, `PendingFull`, `DiskFull`, `EntryTooLarge`; nothing was appended then.
        """
        if not self.accepting:
            raise self._refusal()
        size_bytes = body_bytes + HEADER_BYTES
        if size_bytes > self._entry_bytes_max:
            raise EntryTooLarge(size_bytes, self._entry_bytes_max)
        end = self._next_position + size_bytes
        if self._next_position >= self._batch_limit:
            self.close_batch()  # not where it became full: the user had not noted its entry yet
        if end > self._position_limit:
            end = self._roll(size_bytes)
        if end > self._pending_limit:
            self._check_pending(end)
        return self._next_position + HEADER_BYTES

    def append(self, parts: Sequence[bytes], body_bytes: int) -> LogIndex:
        """Append the entry that was just reserved; its body is ``parts`` side by side.

        Returns its index. It is written and sent at the end of this turn of the loop.
        """
        index = self._next_index
        position = self._next_position
        crc = 0
        for part in parts:
            crc = crc32(part, crc)
        size = body_bytes + HEADER_BYTES
        buffers = self._buffers
        buffers.append(
            _pack_header(ENTRY_MAGIC, size, index, self._term, position, 0, 0, crc, body_bytes)
        )
        buffers += parts
        self._units.append(_pack_unit(UNIT_MAGIC, position, size, index, self._term))
        self._next_index = index + 1
        self._next_position = position + size
        assert self.accepting, "append without reserve"
        if not self.scheduled:
            self.scheduled = True
            self._schedule()
        return index

    def append_batch(self, bodies: Sequence[bytes]) -> range:
        """Append the entries that were just reserved together, one a body; return their indexes."""
        assert self.accepting, "append without reserve"
        term, first = self._term, self._next_index
        position = self._next_position
        buffers, units = self._buffers, self._units
        self._has_batch = True
        for index, body in enumerate(bodies, first):
            body_bytes = len(body)
            size = body_bytes + HEADER_BYTES
            buffers += (
                _pack_header(
                    ENTRY_MAGIC, size, index, term, position, 0, 0, crc32(body), body_bytes
                ),
                body,
            )
            units.append(_pack_unit(UNIT_MAGIC, position, size, index, term))
            position += size
            if position >= self._batch_limit:
                self._next_index, self._next_position = index + 1, position
                self.close_batch()
                self._has_batch = True
        self._next_index, self._next_position = first + len(bodies), position
        if not self.scheduled:
            self.scheduled = True
            self._schedule()
        return range(first, first + len(bodies))

    def close_batch(self) -> None:
        """Hand what was collected to the core, as one span."""
        if self._buffers:
            first, last = self._batch_first_index, self._next_index - 1
            start, end = self._batch_position, self._next_position
            is_hinted = self._has_batch and last - first + 1 >= HINTED_ENTRIES_MIN
            span = Span(
                first,
                last,
                self._term,
                start,
                b"".join(self._buffers),
                b"".join(self._units),
                hint=self.write_hint(start, end) if is_hinted else b"",
            )
            assert span.end_position == end, "body_bytes is not the body's size"
            assert end <= self._position_limit, "append without reserve"
            self._buffers.clear()
            self._units.clear()
            self._has_batch = False
            self.propose(span)
            self._batch_first_index = self._next_index
            self._set_batch_position(end)

    def _check_pending(self, end: int) -> None:
        """Look how far the log is committed: what lies behind is pending. Errors: `PendingFull`."""
        pending_bytes_max = self._config.pending_bytes_max
        committed = self._committed()
        self._pending_limit = committed + pending_bytes_max
        if end > self._pending_limit:
            raise PendingFull(end - committed, pending_bytes_max)

    def _roll(self, size_bytes: int) -> int:
        """Continue in the next segment; return where an entry of this size will end there."""
        segment_bytes = self._config.data_segment_bytes
        if size_bytes > segment_bytes - END_RECORD_BYTES:
            raise EntryTooLarge(size_bytes, segment_bytes)
        self.close_batch()
        self._set_position(self._next_position + -self._next_position % segment_bytes)
        return self._next_position + size_bytes

    def _set_position(self, position: int) -> None:
        segment_bytes = self._config.data_segment_bytes
        self._next_position = position
        segment_end = position - position % segment_bytes + segment_bytes
        self._position_limit = segment_end - END_RECORD_BYTES
        self._set_batch_position(position)

    def _set_batch_position(self, position: int) -> None:
        self._batch_position = position
        self._batch_limit = position + self._config.span_bytes_max


def refuse_span(span: Span) -> None:
    """Take no span: there is no core."""
    raise AssertionError(span.first_index)


def no_hint(start: int, end: int) -> bytes:
    """Say nothing about entries."""
    del start, end
    return b""

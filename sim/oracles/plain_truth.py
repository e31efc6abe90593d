"""The log of a broker without a group, known as the committed log of a group is: what is written.

Each record counts when it is written, for whoever promises no more. A loss of power may take the
end of it: then all is made once more, from what is left. Read from the bytes of the files.
Source: spec/disk.md 5.2, 5.3; `sim.oracles.copies` (the files).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation
from sim.oracles.records import ENTRY_HEADER_BYTES, entry_rows
from sim.oracles.replica import Mark
from sim.oracles.truth import Truth

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.oracles.copies import Files
    from store.plain import PlainLog

LOST: Final = "A1 written but lost"
OTHER: Final = "A34 another record than there was"
TERM: Final = 0
MAGIC: Final = 1
_header: Final = Struct(">iiqqqiiii").pack
"""Of an entry: magic, size, index, term, place, channel, two checksums, size of the record."""


class PlainTruth(Truth):
    """What one broker has written, up to now."""

    def __init__(self) -> None:
        super().__init__(())
        self.reads_parts = True
        self.records: dict[int, bytes] = {}
        """By place."""
        self.end = 0

    def take(self, place: int, record: bytes) -> None:
        """Take the next record. Errors: `Violation`."""
        index, size = len(self.committed), ENTRY_HEADER_BYTES + len(record)
        begin = place - ENTRY_HEADER_BYTES
        data = entry_of(index, place, record)
        self.records[place], self.end = record, place + len(record)
        row = next(entry_rows(data, begin), None)
        if row is not None:
            self.rows[index, TERM] = row
            self._read_record((index, TERM), row.type, data)
        self.commit(index, Mark(TERM, begin, size, 0), TERM)


def entry_of(index: int, place: int, record: bytes) -> bytes:
    """Return the entry of a group's log that a record would be."""
    size, begin = ENTRY_HEADER_BYTES + len(record), place - ENTRY_HEADER_BYTES
    return _header(MAGIC, size, index, TERM, begin, 0, 0, 0, len(record)) + record


class PlainFollower:
    """Follows the log of one broker over its lives.

    Args:
        make: makes what is to be known anew, with whoever listens to it.
    """

    def __init__(self, files: Files, make: Callable[[], PlainTruth]) -> None:
        self._files = files
        self._make = make
        self.truth = make()
        self.ends_lost = 0
        self._has_lost_power = False

    def on_power_loss(self) -> None:
        """What is not synced may be gone when it comes again."""
        self._has_lost_power = True

    def follow(self, log: PlainLog) -> Callable[[], None]:
        """Follow a process that starts; return what is to be called after each of its events."""
        is_up = False

        def after_event() -> None:
            nonlocal is_up
            if not log._opened:
                return
            if not is_up:
                is_up = True
                self._boot(log)
            elif log.end_position > self.truth.end:
                self._read(log.end_position)

        return after_event

    def _boot(self, log: PlainLog) -> None:
        """Compare what a start has found with what there was. Errors: `Violation`."""
        held = dict(self._files.read(log.first_position, log.end_position))
        known, end = self.truth.records, log.end_position
        for place, record in known.items():
            if log.first_position <= place < end and held.get(place) != record:
                raise Violation(OTHER, f"a broker alone has another record at {place}")
        if end < self.truth.end:
            self._lose(end)
        self._has_lost_power = False
        for place, record in held.items():
            if place >= self.truth.end:
                self.truth.take(place, record)

    def _lose(self, end: int) -> None:
        if not self._has_lost_power:
            text = f"a broker alone was not without power: its log ends at {end}"
            raise Violation(LOST, f"{text}, not at {self.truth.end}")
        self.ends_lost += 1
        left = [(place, record) for place, record in self.truth.records.items() if place < end]
        self.truth = self._make()
        for place, record in left:
            self.truth.take(place, record)

    def _read(self, end: int) -> None:
        for place, record in self._files.read(self.truth.end, end):
            self.truth.take(place, record)

"""Transactions: a half has one end, and one copy where it was committed; else nobody sees it.

Halves, copies, op messages and parked copies are those of the committed log; how a transaction was
to end is what the listener of the run has decided, and how often was asked is in the log, too.
Source: docs/transactions.md; spec/proof.md 3.3 (A23 A53-A55); RocketMQ #8311.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from sim.oracles.base import Violation
from sim.oracles.records import differences_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chaos.history.segment import EntryRow
    from sim.oracles.model import Statement
    from sim.oracles.records import Parts
    from sim.oracles.truth import Truth

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
PARK_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
ASKED: Final = "tx-asked"

TWICE: Final = "A8 half with two copies"
CHANGED: Final = "A6 committed message changed"
COUNT: Final = "A23 asked otherwise than allowed"
EARLY_ASKED: Final = "A23 asked before its time"
IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
IMMUNITY_DIGITS_MAX: Final = 3
MS_PER_S: Final = 1_000
ROLLED_BACK: Final = "A53 rolled back and visible"
EARLY: Final = "A54 half visible before its commit"
MISSING: Final = "A55 finished without its copy"
ADDED: Final = "TRANSACTION_CHECK_TIMES"


class End(Enum):
    """How a transaction ends."""

    COMMIT = "commit"
    ROLLBACK = "rollback"


class Half(msgspec.Struct):
    """One half."""

    row: EntryRow
    parts: Parts
    asked: int = 0
    has_copy: bool = False
    """Committed, or parked."""
    is_over: bool = False
    parked_at: int = -1
    """The entry that has put it aside; -1: none has."""

    @property
    def is_ended(self) -> bool:
        """Whether the log has an end of it, or the copy that comes before that."""
        return self.is_over or self.has_copy


class Transactions:
    """Judges the transactions of a group of brokers; listens to `Truth`.

    Args:
        topic: to which everything is sent in transactions.
        checks: how often is asked, and how old (ms) a half is then.
        dropped: below which offset some broker has ever dropped the messages of a queue.
    """

    def __init__(
        self, truth: Truth, topic: str, checks: tuple[int, int],
        dropped: Mapping[tuple[str, int], int],
    ) -> None:  # fmt: skip
        self._truth = truth
        self._topic = topic
        self._check_max, self._check_ms = checks
        self._dropped = dropped
        self.decisions: dict[int, End] = {}
        """What the user's own store says, by key."""
        self._halves: dict[int, Half] = {}
        """By offset in the half topic."""
        self._places: dict[int, Half] = {}
        """By the place in the log."""
        truth.on_message.append(self._on_message)
        truth.on_statement.append(self._on_statement)

    def decide(self, key: int, end: End) -> End:
        """Take how a transaction ends; what was decided before stands, and is returned."""
        return self.decisions.setdefault(key, end)

    def at(self, place: int) -> Half | None:
        """Return our half that lies at a place of the log, None if none does."""
        half = self._places.get(place)
        return None if half is None or half.row.msg_key is None else half

    def open(self) -> list[int]:
        """Return the offsets of our halves that have not ended."""
        first = self._dropped.get((HALF_TOPIC, 0), 0)
        return [
            offset
            for offset, half in self._halves.items()
            if offset >= first and half.row.msg_key is not None and not half.is_over
        ]

    def unasked(self) -> dict[int, tuple[int, int]]:
        """Return how often was asked for each of our open halves, and how old (ms) it has to be."""
        first = self._dropped.get((HALF_TOPIC, 0), 0)
        return {
            offset: (half.asked, immunity_ms(half.parts.told(IMMUNITY), self._check_ms))
            for offset, half in self._halves.items()
            if offset >= first and half.row.msg_key is not None and not half.is_ended
        }

    def _on_message(self, row: EntryRow, parts: Parts) -> None:
        """Take a committed message. Errors: `Violation`."""
        if row.topic == HALF_TOPIC and row.queue_offset is not None:
            half = self._halves[row.queue_offset] = Half(row, parts)
            self._places[parts.physical] = half
        elif row.topic == OP_TOPIC:
            for digits in parts.body.split(b","):
                self._finish(int(digits))
        elif row.topic == PARK_TOPIC and parts.half is not None:
            self._park(row, parts.half)
        elif parts.half is not None:
            self._copy(row, parts)
        elif row.topic == self._topic and row.msg_key is not None and parts.told("TRAN_MSG"):
            raise Violation(EARLY, f"message {row.msg_key} is in no half: {row}")

    def _copy(self, row: EntryRow, parts: Parts) -> None:
        half = self._places.get(parts.half or 0)
        if half is None or half.row.msg_key is None:
            return
        self._take_copy(half, row)
        end = self.decisions.get(half.row.msg_key)
        if end is None:
            raise Violation(EARLY, f"{row} is committed, nobody has decided so")
        if end is End.ROLLBACK:
            raise Violation(ROLLED_BACK, f"{row} is committed, and was to be rolled back")
        said = half.parts
        held = {name: value for name, value in parts.properties.items() if name != ADDED}
        sent = {name: value for name, value in said.properties.items() if name != ADDED}
        differences = differences_of((row, parts), (half.row, said))
        if held != sent:
            differences.append("properties")
        if differences:
            text = f"another {', '.join(differences)}: {row} {held}"
            raise Violation(CHANGED, f"{text}, the half has {sent}")

    def _park(self, row: EntryRow, place: int) -> None:
        half = self._places.get(place)
        if half is None:
            return
        self._take_copy(half, row)
        half.parked_at = row.entry_index
        if half.asked < self._check_max:
            raise Violation(COUNT, f"{row} is parked after {half.asked} questions")

    @staticmethod
    def _take_copy(half: Half, row: EntryRow) -> None:
        if half.has_copy or half.is_over:
            raise Violation(
                TWICE, f"{row} is not the first copy of its half, or comes after its end"
            )
        half.has_copy = True

    def _finish(self, offset: int) -> None:
        half = self._halves.get(offset)
        if half is None or half.row.msg_key is None:
            return
        half.is_over = True
        is_dropped = offset < self._dropped.get((HALF_TOPIC, 0), 0)
        end = self.decisions.get(half.row.msg_key)
        if not half.has_copy and end is not End.ROLLBACK and not is_dropped:
            text = f"half {offset}, message {half.row.msg_key}, was to end with {end}"
            raise Violation(MISSING, f"{text}, and is over without a copy")

    def _on_statement(self, statement: Statement) -> None:
        """Take how often is asked. Errors: `Violation`."""
        if statement.kind != ASKED or not isinstance(statement.content, list):
            return
        for offset, asked in statement.content:
            half = self._halves.get(offset)
            if half is None:
                continue
            if asked != half.asked + 1 or asked > self._check_max:
                text = f"half {offset} is asked for the {asked}. time, after {half.asked} questions"
                raise Violation(COUNT, f"{text}, and {self._check_max} are allowed")
            waited_ms = self._waited_ms(half, statement.entry)
            least_ms = immunity_ms(half.parts.told(IMMUNITY), self._check_ms)
            if waited_ms is not None and waited_ms < least_ms:
                text = f"half {offset} is asked for {waited_ms} ms after it was stored"
                raise Violation(EARLY_ASKED, f"{text}, not before {least_ms} ms")
            half.asked = asked

    def _waited_ms(self, half: Half, index: int) -> int | None:
        """Return how old a half was at an entry, by the stamps of the log; None: nobody knows."""
        truth, row = self._truth, half.row
        stored = truth.times.get((row.entry_index, row.term))
        now = truth.times.get((index, truth.committed[index].term))
        if stored is None or now is None or truth.may_fall:
            return None
        return now - stored


def immunity_ms(said: str, usual_ms: int) -> int:
    """Return for how long nobody is asked for a half: what its producer says, or as usual.

    Of what is no such number, or a long time, nothing is expected: odd clients say anything.
    """
    if not said:
        return usual_ms
    is_usual = said.isascii() and said.isdecimal() and len(said) <= IMMUNITY_DIGITS_MAX
    return int(said) * MS_PER_S if is_usual else 0

"""Delayed messages: one copy for each that waited, in order, never early, and otherwise the same.

Everything comes from the committed log: what waits lies in the schedule topic, in the queue of its
level, and a copy says in its own record which one it stands for. Nobody is asked what was
delivered. Strict about what it calls calm: for some seconds no fault was on, none began or ended.
Source: docs/delays.md; spec/proof.md 3.3 (A1 A6 A8 A25 A56); RocketMQ #1934, #2357, #3473, #7927.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation
from sim.oracles.records import TRANSACTION, differences_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from chaos.history.segment import EntryRow
    from sim.oracles.model import Statement
    from sim.oracles.records import Parts
    from sim.oracles.truth import Truth

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
DELAYS_MS: Final = tuple(
    1_000 * seconds for seconds in (1, 5, 10, 30, *range(60, 601, 60), 1_200, 1_800, 3_600, 7_200)
)
"""How long messages wait in each queue of that topic, where nobody says otherwise."""
UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
NS_PER_MS: Final = 1_000_000

LATE_MS: Final = 1_000
"""Far more than a turn of the loop and a majority take."""
REFUSED_LATE_MS: Final = 4_000
"""A dozen that are due at once and are refused one after the other take 100 ms each time."""
SETTLED_MS: Final = 2_000
"""After a fault: longer than elections, and than what was due meanwhile takes."""

EARLY: Final = "A56 delayed message too early"
LATE: Final = "A25 delayed message too late"
TWICE: Final = "A8 delayed message twice"
PASSED: Final = "A1 delayed message passed over"
CHANGED: Final = "A6 delayed message changed"


def levels_of(text: str) -> tuple[int, ...]:
    """Return how long each level of ``messageDelayLevel`` waits."""
    if not text:
        return DELAYS_MS
    return tuple(int(one[:-1]) * UNITS_MS[one[-1]] for one in text.split())


class Delays:
    """Judges a group's delayed messages; listens to `Truth`.

    Args:
        delays_ms: of level 1, 2, ...
        dropped: below which offset some broker has ever dropped the messages of a queue.
        are_refused: whether puts are, by chance: each is tried again some time later.
    """

    def __init__(
        self,
        truth: Truth,
        delays_ms: tuple[int, ...],
        dropped: Mapping[tuple[str, int], int],
        *,
        are_refused: bool = False,
    ) -> None:
        self.delays_ms = delays_ms
        self._late_ms = REFUSED_LATE_MS if are_refused else LATE_MS
        self.sent_ns: Callable[[int], int] | None = None
        """When the send of a message was begun, where all clocks run as time does."""
        self.disturbed_ns: Callable[[], int] = lambda: truth.now_ns()  # noqa: PLW0108 - it is set later
        self._truth = truth
        self._dropped = dropped
        self._next: dict[int, int] = {}
        """By queue of the schedule topic, the first offset that is not delivered."""
        self.copies = 0
        """How many messages have been delivered."""
        truth.on_message.append(self._on_message)
        truth.on_statement.append(self._on_statement)

    def _on_message(self, row: EntryRow, parts: Parts) -> None:
        """Take a committed message. Errors: `Violation`."""
        if parts.origin is None:
            return
        queue_id, offset = parts.origin
        original = self._truth.row(SCHEDULE_TOPIC, queue_id, offset)
        what = f"entry {row.entry_index}, the copy of level {queue_id + 1}, offset {offset},"
        if original is None:
            raise Violation(PASSED, f"{what} stands for nothing that waited")
        first = self._next.get(queue_id, 0)
        if offset < first:
            raise Violation(TWICE, f"{what} is not the first: the level is delivered to {first}")
        for left in range(max(first, self._dropped_before(queue_id)), offset):
            if self._is_ours(queue_id, left):
                raise Violation(PASSED, f"{what} comes before that of offset {left}")
        self._next[queue_id] = offset + 1
        self.copies += 1
        waited = self._truth.parts.get((original.entry_index, original.term))
        if waited is not None and row.topic != SCHEDULE_TOPIC:
            self._check_time(what, queue_id, parts, waited, row.msg_key)
            self._check_late(what, queue_id, parts, waited)
            self._check_same(what, (row, parts), (original, waited))

    def _on_statement(self, statement: Statement) -> None:
        """Take that a level is delivered up to a message, be it without a copy."""
        if statement.kind != "delivered" or not isinstance(statement.content, list):
            return
        queue_id, offset = statement.content
        if offset < self._next.get(queue_id, 0):
            return
        if self._is_ours(queue_id, offset) and offset >= self._dropped_before(queue_id):
            text = f"level {queue_id + 1} goes on behind {offset}, of which there is no copy"
            raise Violation(PASSED, text)
        self._next[queue_id] = offset + 1

    def waiting(self, due_ms: int) -> list[tuple[int, int]]:
        """Return level and offset of our messages that are due by a time and have no copy yet."""
        found: list[tuple[int, int]] = []
        for (topic, queue_id), rows in self._truth.queues.items():
            if topic != SCHEDULE_TOPIC:
                continue
            first = max(self._next.get(queue_id, 0), self._dropped_before(queue_id))
            for row in rows[first:]:
                stored = self._truth.times.get((row.entry_index, row.term), 0)
                if row.msg_key is not None and stored + self.delays_ms[queue_id] <= due_ms:
                    found.append((queue_id + 1, row.queue_offset or 0))
        return found

    def _check_time(
        self, what: str, queue_id: int, copy: Parts, waited: Parts, key: int | None
    ) -> None:
        """The stamps of a log never fall, whoever leads: none is early by them."""
        delay_ms, truth = self.delays_ms[queue_id], self._truth
        if copy.stored_ms - waited.stored_ms < delay_ms and not truth.may_fall:
            text = f"{what} is stored at {copy.stored_ms}, the original at {waited.stored_ms}"
            raise Violation(EARLY, f"{text}, and waits for {delay_ms} ms")
        sent_ns = self.sent_ns(key) if self.sent_ns is not None and key is not None else 0
        # Stamps are whole milliseconds: what is sent late in one is stamped with its beginning.
        if sent_ns and truth.now_ns() - sent_ns <= (delay_ms - 1) * NS_PER_MS:
            late_ms = (truth.now_ns() - sent_ns) // NS_PER_MS
            raise Violation(EARLY, f"{what} is there {late_ms} ms after its send, not {delay_ms}")

    def _check_late(self, what: str, queue_id: int, copy: Parts, waited: Parts) -> None:
        """While nothing happens a copy is there when it is due, by clocks that nobody moves."""
        late_ms = copy.stored_ms - waited.stored_ms - self.delays_ms[queue_id]
        if self.sent_ns is None or late_ms <= self._late_ms:
            return
        calm_ms = (self._truth.now_ns() - self.disturbed_ns()) // NS_PER_MS
        if calm_ms > self._late_ms + SETTLED_MS:
            text = f"{what} is there {late_ms} ms after it was due; nothing has happened for"
            raise Violation(LATE, f"{text} {calm_ms} ms")

    @staticmethod
    def _check_same(
        what: str, copy: tuple[EntryRow, Parts], waited: tuple[EntryRow, Parts]
    ) -> None:
        (row, parts), (_, said) = copy, waited
        differences = differences_of(copy, waited)
        if parts.sys_flag != said.sys_flag & ~TRANSACTION:  # what was committed says so no more
            differences.append("sys flag")
        if parts.reconsume_times != said.reconsume_times:
            differences.append("times")
        if parts.properties != said.properties:
            differences.append("properties")
        if differences:
            text = f"{what} has another {', '.join(differences)}: {row} {parts.properties}"
            raise Violation(CHANGED, f"{text}, that waited with {said.properties}")

    def _dropped_before(self, queue_id: int) -> int:
        return self._dropped.get((SCHEDULE_TOPIC, queue_id), 0)

    def _is_ours(self, queue_id: int, offset: int) -> bool:
        row = self._truth.row(SCHEDULE_TOPIC, queue_id, offset)
        return row is not None and row.msg_key is not None

"""What a leader has taken of a group's offsets comes into the log: with a next record of offsets.

Nothing else tells that one was forgotten: the leader itself goes on saying it. It is lost with the
leader, and the group reads again. Judged by the records: each has all that waits, so that one which
has waited while others were written was left out. Source: docs/consumption.md; spec/wire.md 3.6.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dledger.core.model import LEADER
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from sim.oracles.replica import Replica
    from sim.oracles.truth import Truth

NAME: Final = "A24 offset taken and left out of the log"
RECORDS: Final = 4
"""More than are under way at a time."""
PART_BYTES: Final = 5_500
"""What is larger, as a broker reckons, may be a part of which the next one follows."""


class Waits(NamedTuple):
    """An offset that is not in the log, when it was first seen."""

    offset: int
    incarnation: int
    term: int
    records: int
    """Records of offsets of this term by then."""


class OffsetsKept:
    """Judges what leaders keep waiting."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._read = 0
        self._records: Counter[int] = Counter()
        """By term, committed records of offsets; of what was cut in parts the last one counts."""
        self._waits: dict[str, dict[tuple[str, int], Waits]] = {}

    def on_tick(self, replica: Replica) -> None:
        """Look at a leader, now and then. Errors: `Violation`."""
        statements, truth = self._truth.statements, self._truth
        for statement in statements[self._read :]:
            if statement.kind == "offset" and isinstance(statement.content, dict):
                is_last = _size(statement.content) < PART_BYTES
                self._records[truth.committed[statement.entry].term] += is_last
        self._read = len(statements)
        before, waits = self._waits.get(replica.name, {}), {}
        if replica.is_up and replica.state.role is LEADER:
            term = replica.state.term
            for key, queues in replica.controller.tables.offsets._pending.items():
                for queue_id, offset in queues.items():
                    place = (key, queue_id)
                    now = Waits(offset, replica.incarnation, term, self._records[term])
                    known = before.get(place, now)
                    waits[place] = known if known[:3] == now[:3] else now
                    self._check(replica, place, waits[place], now)
        self._waits[replica.name] = waits

    @staticmethod
    def _check(replica: Replica, place: tuple[str, int], known: Waits, now: Waits) -> None:
        if now.records - known.records >= RECORDS:
            key, queue_id = place
            raise Violation(
                NAME,
                f"{replica.name} has taken {now.offset} for {key} in {queue_id}, and has written "
                f"{RECORDS} records of offsets since then without it",
                node=replica.name,
            )


def _size(content: Any) -> int:  # noqa: ANN401  # what JSON holds
    """Return how large a broker takes a record of offsets to be, at most."""
    return sum(8 + len(key) + 36 * len(queues) for key, queues in content.items())

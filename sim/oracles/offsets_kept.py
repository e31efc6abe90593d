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
IDLE: Final = "A24 offset taken and not put into the log"
IDLE_MS: Final = 3_000
"""A leader puts what it has taken into its log once a second, and what was refused again."""
FEW: Final = 200
"""More than these take longer: they are put in one after the other."""
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
    free: int = 0
    """Since which tick nothing has kept its leader from writing."""


class OffsetsKept:
    """Judges what leaders keep waiting."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._read = 0
        self._records: Counter[int] = Counter()
        """By term, committed records of offsets; of what was cut in parts the last one counts."""
        self._waits: dict[str, dict[tuple[str, int], Waits]] = {}
        self._commits: dict[str, int] = {}
        """By replica, how far its log was committed at the last look."""

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
            pending = replica.controller.tables.offsets._pending
            is_free = self._is_free(replica) and sum(map(len, pending.values())) <= FEW
            for key, queues in pending.items():
                for queue_id, offset in queues.items():
                    place, tick = (key, queue_id), replica.state.tick
                    now = Waits(offset, replica.incarnation, term, self._records[term], tick)
                    known = before.get(place, now)
                    known = known if known[:3] == now[:3] else now
                    waits[place] = known if is_free else known._replace(free=tick)
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
        waited_ms = (now.free - known.free) * replica.tick_ms
        if waited_ms > IDLE_MS:
            key, queue_id = place
            text = f"{replica.name} has taken {now.offset} for {key} in {queue_id}, and nothing has"
            text = f"{text} kept it for {waited_ms} ms from putting that into its log"
            raise Violation(IDLE, text, node=replica.name)

    def _is_free(self, replica: Replica) -> bool:
        """Tell whether nothing keeps a leader from writing, and from committing what it writes."""
        state, disk = replica.state, replica.disk
        is_blocked = disk.is_watched or replica.hangs() or state.blocked is not None
        if is_blocked or replica.is_leaving or state.transfer is not None:
            return False
        log = state.log
        before = self._commits.get(replica.name, -1)
        self._commits[replica.name] = log.commit_index
        goes_on = log.commit_index == log.last_index or log.commit_index > before
        return goes_on and log.term_at(log.commit_index) == state.term


def _size(content: Any) -> int:  # noqa: ANN401  # what JSON holds
    """Return how large a broker takes a record of offsets to be, at most."""
    return sum(8 + len(key) + 36 * len(queues) for key, queues in content.items())

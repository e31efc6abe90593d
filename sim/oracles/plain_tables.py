"""The tables of a broker with a plain log are what that log makes of them.

It has no index of Raft: how far it has applied is a place in its log. What a start has read from
files may be newer than what it has applied since, and is not judged before that is level. Who has
lost the end of its log may have files from behind it, and is not judged any more.
Source: docs/storage.md; spec/disk.md 5.6; `sim.oracles.tables` (the comparison).
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from sim.oracles.model import Model
from sim.oracles.records import ENTRY_HEADER_BYTES
from sim.oracles.tables import LARGE, LARGE_STEP, Tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.controller import BrokerController
    from sim.oracles.plain_truth import PlainTruth

NOTHING: Final = (-1, -1)


class PlainTables(Tables):
    """Judges one broker.

    Args:
        truth: what its log has, now.
        clock_ms: the monotonic clock of its machine, by which leases end.
    """

    def __init__(
        self, name: str, truth: Callable[[], PlainTruth], clock_ms: Callable[[], int]
    ) -> None:
        super().__init__(truth())
        self._truth_now = truth
        self._known: PlainTruth | None = None
        self._model = Model()
        self._seen = NOTHING
        self._clock_ms = clock_ms
        self.name_of_broker = name

    def begin(self) -> None:
        """A process starts: what it has applied anew is looked at from the beginning."""
        self._model, self._seen = Model(), NOTHING

    def look(self, controller: BrokerController) -> None:
        """Look at a broker that serves, if anything has changed. Errors: `Violation`."""
        applied = controller.store.applied
        seen = (applied, controller.tables.state.revisions.total())
        if seen == self._seen:
            return
        self._seen = seen
        truth = self._truth_now()
        if truth is not self._known:
            self._known, self._truth, self._model = truth, truth, Model()
        first = self._model.count
        count = count_before(truth, applied)
        for statement in truth.statements[first:count]:
            self._model.apply(statement)
        if applied - 1 < controller.state_index:
            return
        is_large = self._model.rows > LARGE and count // LARGE_STEP == first // LARGE_STEP
        if self._model.knows and not is_large:
            self._compare(OneAlone(self.name_of_broker, controller, self._clock_ms), self._model)


class OneAlone:
    """A broker, as the comparison of tables asks for it."""

    def __init__(
        self, name: str, controller: BrokerController, clock_ms: Callable[[], int]
    ) -> None:
        self.name = name
        self.controller = controller
        self._clock_ms = clock_ms

    def now_ms(self) -> int:
        """Return the time by which leases end."""
        return self._clock_ms()


def entries_before(truth: PlainTruth, place: int) -> int:
    """Return how many records begin before a place in the log."""
    return bisect_left(truth.committed, place - ENTRY_HEADER_BYTES, key=attrgetter("position"))


def count_before(truth: PlainTruth, place: int) -> int:
    """Return how many records of state begin before a place in the log."""
    return bisect_left(truth.state_indexes, entries_before(truth, place))

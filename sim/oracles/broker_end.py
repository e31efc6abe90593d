"""A broker's end of its connections: what is said there goes to those who judge it.

What a broker answers is judged when the event is over, and its log has been read; whether it led is
asked when it answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.core.model import LEADER
from sim.oracles.pipeline import Pipeline

if TYPE_CHECKING:
    from sim.oracles.brokers import Brokers
    from sim.oracles.replica import Replica
    from sim.oracles.wire import Said, Tap

DEPOSED_TICKS: Final = 20
"""After so many ticks a leader that is none any more has told its store."""
WRITTEN_TICKS: Final = 2
"""An answer is written in the turn of the loop behind the one in which it was made."""


class BrokerEnd:
    """Listens at a broker's end of its connections; a `wire.Listener`."""

    def __init__(self, brokers: Brokers, replica: Replica) -> None:
        self._brokers = brokers
        self._replica = replica
        self._pipeline = Pipeline()
        self._members = brokers.members(replica)

    def on_request(self, tap: Tap, request: Said) -> None:
        """A request comes in."""
        self._pipeline.on_request(request)
        self._members.on_request(tap, request)
        self._brokers.on_request(self._replica, request)

    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """It is answered; it is judged when the event is over, and the log has been read."""
        self._pipeline.on_answer(tap, request, answer)
        self._members.on_answer(tap, request, answer)
        brokers, replica = self._brokers, self._replica
        leads = replica.is_up and _leads(replica)
        replica.deferred.append(lambda: brokers.on_answer(replica, request, answer, leads=leads))

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """An answer goes out that nobody waits for."""
        self._brokers.on_stray(self._replica, tap, answer)


def _leads(replica: Replica) -> bool:
    """Tell whether a replica leads, or has not been told yet that it does no more."""
    state = replica.state
    if state.role is LEADER:
        return True
    since = state.tick - replica.tick if replica.tick >= 0 else DEPOSED_TICKS + 1
    is_told_late = since <= DEPOSED_TICKS and replica.controller.store.writer.writable
    return since <= WRITTEN_TICKS or is_told_late

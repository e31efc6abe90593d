"""A leader that nothing hinders takes messages: it does not send its clients away.

Who asks for another leader is told that this one is none. As long as it leads, clients find nobody
else; so a leader must not say so for long, whatever it was about to do.
Source: docs/adr/0007; docs/raft.md; dissertation 3.10 (a transfer ends within an election timeout).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dledger.core.model import LEADER
from sim.oracles.base import Violation
from sim.oracles.crowding import Crowding
from sim.oracles.patience import NAME as HASTE
from sim.oracles.patience import find_haste

if TYPE_CHECKING:
    from sim.oracles.replica import Replica
    from sim.oracles.wire import Said

NAME: Final = "A43 leader that takes nothing"
NOT_LEADER: Final = 14
FREE_TICKS: Final = 40
"""A leader that has been free for so long takes what it is sent."""
NO_TOPIC: Final = "topic not created"
TRANSFERS: Final = 2
"""A transfer may take so many of the longest election timeouts."""


class Leads(NamedTuple):
    """One leadership of one process."""

    term: int
    incarnation: int


class Taking:
    """Judges what leaders refuse."""

    def __init__(self) -> None:
        self._free: dict[str, tuple[Leads, int]] = {}
        """By replica: the tick since which nothing hinders it."""
        self._transfers: dict[str, tuple[object, int]] = {}
        """By replica: the transfer that is under way, and the tick at which it was first seen."""
        self._crowding = Crowding()

    def on_tick(self, replica: Replica) -> None:
        """Look at a leader, once a tick."""
        self._crowding.on_tick(replica)
        state = replica.state
        leads = Leads(state.term, replica.incarnation)
        if self._is_hindered(replica):
            self._free.pop(replica.name, None)
            return
        known = self._free.get(replica.name)
        if known is None or known[0] != leads:
            self._free[replica.name] = (leads, state.tick)

    def on_answer(self, replica: Replica, request: Said, answer: Said) -> None:
        """A send was answered. Errors: `Violation`."""
        if answer.code == NOT_LEADER:
            self.on_refused(replica, answer.remark)
            return
        if not answer.code:
            self._crowding.on_taken(replica, request)
        waited_ms = replica.now_ms() - request.note.now_ms
        found = find_haste(answer, waited_ms, replica.wait_ack_ms)
        if found:
            raise Violation(HASTE, f"{replica.name} {found}", node=replica.name)

    def on_refused(self, replica: Replica, remark: str) -> None:
        """A send was answered by "not the leader". Errors: `Violation`."""
        state, known = replica.state, self._free.get(replica.name)
        if NO_TOPIC in remark:
            return  # nobody knows whether it will be there; the client is to come again
        if state.role is not LEADER or known is None or self._is_hindered(replica):
            return
        free = state.tick - known[1]
        if known[0] == (state.term, replica.incarnation) and free > FREE_TICKS:
            raise Violation(
                NAME,
                f"{replica.name} leads term {state.term}, nothing hinders it for {free} ticks, and "
                "it sends a client away",
                node=replica.name,
            )

    def _is_hindered(self, replica: Replica) -> bool:
        """Tell whether a leader has a reason to take nothing."""
        state = replica.state
        log = state.log
        is_blocked = replica.disk.is_watched or replica.hangs() or state.blocked is not None
        if self._crowding.refuses(replica):
            return True
        if is_blocked or replica.is_leaving or state.role is not LEADER:
            return True
        if log.term_at(log.commit_index) != state.term:
            return True  # what is committed before that is not known yet
        transfer = state.transfer
        if transfer is None:
            self._transfers.pop(replica.name, None)
            return False
        known = self._transfers.get(replica.name)
        if known is None or known[0] is not transfer:
            known = self._transfers[replica.name] = (transfer, state.tick)
        return state.tick - known[1] <= TRANSFERS * state.config.election_ticks_max

"""The end of a transaction that its leader has heard is in the log some time later.

Clients send it oneway, and ask nobody what became of it. A leader that loses it asks again, and
parks the half at last, as one whose end nobody knows: so nothing else tells.
Source: docs/transactions.md; spec/wire.md 7.8; RocketMQ EndTransactionProcessor.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from dledger.core.model import LEADER
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from sim.oracles.replica import Replica
    from sim.oracles.transactions import Half, Transactions
    from sim.oracles.truth import Truth
    from sim.oracles.wire import Said

NAME: Final = "A23 end that was heard and is not in the log"
END_TRANSACTION: Final = 37
ENDS: Final = frozenset({8, 12})
"""Commit and roll back; 0 says that it is not known."""
TAKEN_TICKS: Final = 20
"""A request is handled by then, though others come before it."""
WRITTEN_TICKS: Final = 60
"""What was put has been committed by then, if anything that came behind it has."""


class Heard(msgspec.Struct):
    """What a leader has heard of one half."""

    half: Half
    term: int
    incarnation: int
    tick: int
    mark: int = -1
    """The last entry of its log when it must have put the end."""


class HeardEnds:
    """Judges what leaders make of the ends that producers tell them."""

    def __init__(self, truth: Truth, transactions: Transactions) -> None:
        self._truth = truth
        self._transactions = transactions
        self._heard: dict[str, dict[int, Heard]] = defaultdict(dict)
        """By replica, and by the place of the half in the log."""

    def on_request(self, replica: Replica, request: Said) -> None:
        """A broker hears an end from who means it."""
        place = request.number("commitLogOffset")
        half = self._transactions.at(place)
        if half is None or half.is_ended or half.row.entry_index > replica.applied_index:
            return
        is_of_it = (
            request.number("commitOrRollback") in ENDS
            and half.row.queue_offset == request.number("tranStateTableOffset")
            and half.parts.told("PGROUP") == request.text("producerGroup")
        )
        if is_of_it and _is_free(replica) and replica.controller.store.writer.writable:
            state = replica.state
            one = Heard(half, state.term, replica.incarnation, state.tick)
            self._heard[replica.name].setdefault(place, one)

    def on_tick(self, replica: Replica) -> None:
        """Look at a leader, now and then. Errors: `Violation`."""
        heard = self._heard[replica.name]
        for place, one in list(heard.items()):
            if not self._is_to_come(replica, one):
                del heard[place]

    def _is_to_come(self, replica: Replica, one: Heard) -> bool:
        """Tell whether a heard end is still to be judged. Errors: `Violation`."""
        state = replica.state
        is_same = (state.term, replica.incarnation) == (one.term, one.incarnation)
        if not is_same or not _is_free(replica):
            return False  # it need not have put it, or what it has put may be gone
        waited = state.tick - one.tick
        if one.mark < 0:
            if waited >= TAKEN_TICKS:
                one.mark = replica.last_index
            return True
        half = one.half
        if half.is_ended and half.parked_at <= one.mark:
            return False
        if not half.is_ended and (
            waited < WRITTEN_TICKS or self._truth.commit_index < one.mark
        ):  # fmt: skip
            return True
        what = "is open" if not half.is_ended else f"was parked by entry {half.parked_at}"
        raise Violation(
            NAME,
            f"{replica.name} heard how half {half.row.queue_offset} ends, {waited} ticks ago, and "
            f"leads since then: it {what}, entry {one.mark} is committed",
            node=replica.name,
        )


def _is_free(replica: Replica) -> bool:
    """Tell whether nothing keeps a leader from taking what it is told."""
    state = replica.state
    is_sound = not (replica.is_corrupt or replica.disk.is_watched or replica.hangs())
    return state.role is LEADER and state.transfer is None and state.blocked is None and is_sound

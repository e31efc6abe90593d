"""A leader that has something to do later comes back to it: a timer is set, or an answer awaited.

Open halves are asked for, and what waits for its time is delivered, by a timer that is set anew
each time that it has gone off. One that is not set loses nothing, and shows only where somebody
waits for what would come: much later, or never. So it is looked for whether one is set.
Source: `broker.transactions.service`, `broker.delays.service`; RocketMQ's timers have periods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.delays.service import DelayedDelivery
    from broker.transactions.service import Transactions
    from sim.oracles.replica import Replica

NAME: Final = "A41 left for ever"
LOOKS: Final = 3
"""So often in a row: what a timer has begun may end in another turn."""


class ComesBack:
    """Judges leaders."""

    def __init__(self) -> None:
        self._left: dict[tuple[str, int, int, str], int] = {}
        """By broker, its life and term, and what is left: how often that was seen in a row."""

    def on_tick(self, replica: Replica) -> None:
        """Look at a leader, now and then. Errors: `Violation`."""
        life = (replica.name, replica.incarnation, replica.state.term)
        before = self._left
        self._left = {key: times for key, times in before.items() if key[0] != replica.name}
        for what in _left_by(replica):
            key = (*life, what)
            self._left[key] = times = before.get(key, 0) + 1
            if times >= LOOKS:
                text = f"{replica.name} leads, has {what}, and no timer is set"
                raise Violation(NAME, text, node=replica.name)


def _left_by(replica: Replica) -> Iterator[str]:
    """Yield what a leader has to do later, and does not wait for."""
    services = replica.controller._services
    if _leaves_halves(services.transactions):
        yield "halves that are open"
    if _leaves_levels(services.delays):
        yield "messages that wait for their time"


def _leaves_halves(one: Transactions) -> bool:
    if not one._leads or one.taken_over_before or not one.table.rows:
        return False
    waits_for_puts = one._counted > 0 or (one._pass is not None and one._is_parking_full())
    return not waits_for_puts and one._alarm._handle is None  # type: ignore[attr-defined]  # an `Alarm`


def _leaves_levels(one: DelayedDelivery) -> bool:
    agenda = one._agenda
    if agenda is None or all(level.due_ms is None for level in agenda.levels.values()):
        return False
    return not one._is_full() and one._alarm._handle is None  # type: ignore[attr-defined]  # likewise

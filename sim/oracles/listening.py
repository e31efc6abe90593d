"""A broker goes on listening to a client that has read what it was told.

It stops reading from who does not read its answers, and from who says too much at a time; neither
lasts. What such a client asks for afterwards is not even heard, so that no answer seems late.
Source: docs/architecture.md; `ledgermq.remoting.transport.connection`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.oracles.replica import Replica
    from sim.oracles.wire import Tap

NAME: Final = "A41 a client that is not listened to"
UNHEARD_TICKS: Final = 40
"""So long nothing is read from a client though it has read everything."""


class Listening:
    """Judges what brokers do with connections."""

    def __init__(self) -> None:
        self._since: dict[str, dict[Tap, tuple[int, int]]] = defaultdict(dict)
        """By replica and connection: in which life, and since which tick, it is not read."""

    def on_tick(self, replica: Replica, taps: Iterable[Tap]) -> None:
        """Look at the connections of a broker, now and then. Errors: `Violation`."""
        since, tick = self._since[replica.name], replica.state.tick
        for tap in taps:
            if tap.is_closed or tap.end.is_reading() or tap.is_unread:
                since.pop(tap, None)
                continue
            known = since.setdefault(tap, (replica.incarnation, tick))
            if known[0] == replica.incarnation and tick - known[1] > UNHEARD_TICKS:
                raise Violation(
                    NAME,
                    f"{replica.name} has read nothing from {tap.end.remote} for "
                    f"{tick - known[1]} ticks, and owes it nothing",
                    node=replica.name,
                )

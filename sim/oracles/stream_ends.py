"""Both ends of the stream between a master and its slaves: what is told, and what is made of it.

What a slave reports counts at once, at its master: a report that is lost, counts for another slave,
or goes on counting when its connection has gone, delays acknowledgements or gives them too early,
each only while nobody reports again. So both ends are compared after each of their events: what a
slave has reported with its disk, what a master counts with what its connections have told it.
Source: docs/replication.md; RocketMQ HAConnection, GroupTransferService, AutoSwitchHAService.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from broker.controller import BrokerController
    from sim.oracles.copies import Book, Copy

COUNTED: Final = "A38 counted otherwise than slaves have told"
TOLD: Final = "A38 slave that tells what it may lose"


class StreamEnds:
    """Looks at the ends of one world's streams.

    Args:
        book: knows the logs.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._judged: dict[str, tuple[object, int]] = {}
        """By slave: its connection, and what it had told over it when it was judged."""

    def look(self, name: str, controller: BrokerController, copy: Copy, *, is_synced: bool) -> None:
        """Look at a broker after an event of it. Errors: `Violation`."""
        mode: Any = controller.mode
        ha = getattr(mode, "_ha", None)
        if ha is None:
            return
        if not hasattr(ha, "_links"):
            self._look_at_slave(name, ha, copy, is_synced=is_synced)
        elif hasattr(ha, "_in_sync"):
            _check_followers(name, ha)
        else:
            _check_gate(name, ha, mode.log._gate)

    def _look_at_slave(self, name: str, ha: Any, copy: Copy, *, is_synced: bool) -> None:  # noqa: ANN401  # of either kind
        link = ha._link
        told = -1 if link is None else link._reported
        if told <= 0 or self._judged.get(name) == (link, told):
            return
        self._judged[name] = link, told
        if copy.files.disk.blocked:
            return  # it stands still in a call that hangs, though what comes behind was computed
        if told > max(copy.end, ha.log.next_position):
            raise Violation(TOLD, f"{name} reports {told}, and its log ends at {copy.end}")
        if not (is_synced and link.is_verified):
            return
        line = self._book.lines[max(copy.lines)]
        found = line.between(copy.base, min(told, copy.end))
        at = found[-1] if found else -1
        if found and not copy.files.is_durable(at, len(line.rows[at].data)):
            text = f"{name} reports {told}; it has SYNC_FLUSH, and may lose what lies at {at}"
            raise Violation(TOLD, text, node=name)


def _check_gate(name: str, ha: Any, gate: Any) -> None:  # noqa: ANN401  # a synchronous master's
    """What a synchronous master believes of its slaves the connected ones have told it."""
    if gate is None:
        return
    told = [link.position for link in ha._links if link.is_confirming]
    best = max(told, default=None)
    if gate.best != best or (best is not None and gate.confirmed < best):
        text = f"{name} counts {gate.best} of its slaves, and {gate.confirmed} as confirmed"
        raise Violation(COUNTED, f"{text}; they have told it {told}", node=name)


def _check_followers(name: str, ha: Any) -> None:  # noqa: ANN401  # of who controllers made master
    """What counts as confirmed by each slave it has told over the connection that it has now."""
    told: dict[int, int] = {}
    for link in ha._links:
        if link.slave_id:
            position = link.position if link.is_confirming else 0
            told[link.slave_id] = max(position, told.get(link.slave_id, 0))
    for one, found in ha._in_sync._followers.items():
        counted = (found.is_connected, found.confirmed)
        if found.is_connected != (one in told) or found.confirmed != told.get(one, counted[1]):
            text = f"{name} counts {counted} of slave {one}, and connections have told {told}"
            raise Violation(COUNTED, text, node=name)
    missing = sorted(set(told) - set(ha._in_sync._followers))
    if missing:
        raise Violation(COUNTED, f"{name} counts nothing of {missing}, which are connected")

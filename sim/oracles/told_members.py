"""Whom a group has lost or got its other members hear of at once, not when they look again.

Until they hear of it, nobody consumes what a member that has left held. Judged at the leader: the
members that it counts, and what it sends on their connections.
Source: spec/wire.md 3.6 (40); RocketMQ Broker2Client.notifyConsumerIdsChanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from broker.groups.client_registry import BROADCASTING
from dledger.core.model import LEADER
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.oracles.replica import Replica
    from sim.oracles.wire import Tap

NAME: Final = "A41 members that are not told"
NOTIFY: Final = 40
TOLD_TICKS: Final = 20
"""So long after a change those who stay have been told of it."""


class Seen(NamedTuple):
    """What was so at a look."""

    incarnation: int
    tick: int
    at_ns: int
    members: dict[str, frozenset[tuple[str, int]]]
    """By group, the addresses of its members."""


class ToldMembers:
    """Judges what leaders tell the members of consumer groups."""

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}
        self._owed: dict[str, dict[tuple[str, tuple[str, int]], tuple[int, int]]] = {}
        """By replica: group and member, since when (ns) it is to be told, and from which tick."""

    def on_tick(self, replica: Replica, taps: Iterable[Tap], now_ns: int) -> None:
        """Look at a leader, now and then. Errors: `Violation`."""
        name, tick = replica.name, replica.state.tick
        before = self._seen.get(name)
        if not replica.is_up or replica.state.role is not LEADER:
            return
        groups = replica.controller.tables.consumers.groups()
        now = Seen(replica.incarnation, tick, now_ns, {
            group.name: frozenset(client.connection.remote for client in group.clients.values())
            for group in groups
            if group.traits.message_model != BROADCASTING
        })  # fmt: skip
        self._seen[name] = now
        if before is None or before.incarnation != now.incarnation or before.tick > tick:
            self._owed[name] = {}
            return
        owed = self._owed.setdefault(name, {})
        for group, members in now.members.items():
            known = before.members.get(group, members)
            if known != members:
                for member in known & members:
                    owed.setdefault((group, member), (before.at_ns, tick))
        self._check(replica, {tap.end.remote: tap for tap in taps if not tap.is_closed}, owed, now)

    @staticmethod
    def _check(
        replica: Replica,
        taps: dict[tuple[str, int], Tap],
        owed: dict[tuple[str, tuple[str, int]], tuple[int, int]],
        now: Seen,
    ) -> None:
        for (group, member), (since_ns, tick) in list(owed.items()):
            tap = taps.get(member)
            is_gone = tap is None or member not in now.members.get(group, ())
            told_ns = -1 if tap is None else tap.pushed.get((NOTIFY, group), -1)
            if is_gone or told_ns >= since_ns or replica.hangs() or replica.disk.is_watched:
                del owed[group, member]
            elif now.tick - tick > TOLD_TICKS:
                raise Violation(
                    NAME,
                    f"{replica.name} has other members of {group} for {now.tick - tick} ticks, and "
                    f"has not told {member}",
                    node=replica.name,
                )

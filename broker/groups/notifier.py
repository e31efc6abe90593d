"""Tells the members of a consumer group that they changed (40): at once, but never in one go.

The members of a small group hear of it in the same turn. Members beyond a slice hear of it in later
turns, and a group is notified again only after a millisecond for each of its members: a large group
whose members come and go in a row would otherwise cost their number squared. A member that waits
for a notification gets it once.
Source: spec/wire.md 3.6; RocketMQ Broker2Client.notifyConsumerIdsChanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import FLAG_ONEWAY, RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ledgermq.runtime.clock import Clock

SLICE: Final = 200
"""Members told in one turn of the loop."""
MEMBER_MS: Final = 1


class Notifier:
    """Knows which groups are to be told, and who of them was not yet.

    Args:
        members: returns the connections of a group.
        wake: has `run` called after so many milliseconds, and not when it was to before.
    """

    def __init__(
        self,
        members: Callable[[str], Iterable[Any]],
        clock: Clock,
        wake: Callable[[float], object],
    ) -> None:
        self._members = members
        self._clock = clock
        self._wake = wake
        #: Groups that changed and when they are told, in the order of the changes.
        self._due: dict[str, int] = {}
        #: Large groups that were told a moment ago, and when they may be told again.
        self._rests: dict[str, int] = {}
        self._left: list[tuple[str, Any]] = []

    def notify(self, group: str) -> None:
        """Take that a group's members changed."""
        now_ms = self._clock.monotonic_ms()
        rests_until = self._rests.get(group, 0)
        if not self._left and rests_until <= now_ms:
            self._tell(group, now_ms)
            self._send(SLICE)
            if self._left:
                self._wake(0)
        elif group not in self._due:
            self._due[group] = rests_until
            self._wake(0 if self._left else max(0, min(self._due.values()) - now_ms))

    def run(self) -> None:
        """Tell the next slice."""
        now_ms = self._clock.monotonic_ms()
        for group in [group for group, until in self._rests.items() if until <= now_ms]:
            del self._rests[group]
        if not self._left:
            for group in [one for one, due in self._due.items() if due <= now_ms]:
                del self._due[group]
                self._tell(group, now_ms)
                if len(self._left) >= SLICE:
                    break
        self._send(SLICE)
        if self._left:
            self._wake(0)
        elif self._due:
            self._wake(max(0, min(self._due.values()) - now_ms))

    def _tell(self, group: str, now_ms: int) -> None:
        members = list(self._members(group))
        if len(members) > SLICE:
            self._rests[group] = now_ms + len(members) * MEMBER_MS
        members.reverse()
        self._left += [(group, connection) for connection in members]

    def _send(self, count: int) -> None:
        for _ in range(min(count, len(self._left))):
            group, connection = self._left.pop()
            connection.send(
                RemotingCommand(
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                    FLAG_ONEWAY,
                    ext_fields={"consumerGroup": group},
                )
            )

"""Which replicas were heard of lately, and how much log they have. Pure; times are given.

Each controller hears heartbeats by itself; nothing of it is replicated. So one that begins to lead
does not know yet who is alive: until a full period has passed it takes nobody for dead.
Source: DefaultBrokerHeartbeatManager of RocketMQ 5.
"""

from typing import NamedTuple

from namesrv.controller.limits import GROUPS_MAX, REPLICAS_MAX

HEARD_MAX = GROUPS_MAX * REPLICAS_MAX


class Heard(NamedTuple):
    """The last heartbeat of a replica."""

    at_ms: int
    silence_ms: int
    """After so long without another one it counts as dead."""
    address: str
    connection_id: int
    epoch: int
    """Of the end of its log."""
    max_offset: int
    """The end of its log."""


class Liveness:
    """Heartbeats of all replicas, by name and id."""

    def __init__(self) -> None:
        self._heard: dict[tuple[str, int], Heard] = {}

    def hear(self, group: str, replica: int, heard: Heard) -> bool:
        """Remember a heartbeat; False if there is no room for one more replica."""
        key = group, replica
        if key not in self._heard and len(self._heard) >= HEARD_MAX:
            return False
        self._heard[key] = heard
        return True

    def get(self, group: str, replica: int) -> Heard | None:
        """Return the last heartbeat, None if there was none or it does not count any more."""
        return self._heard.get((group, replica))

    def forget(self, group: str, replica: int) -> None:
        """Forget a replica that has started again: its heartbeat told of its log before that."""
        self._heard.pop((group, replica), None)

    def alive(self, group: str, replicas: tuple[int, ...], now_ms: int) -> tuple[int, ...]:
        """Return who of ``replicas`` lives; who has most comes first, then the lowest id."""
        found = [(one, self._heard.get((group, one))) for one in replicas]
        living = [
            (-heard.epoch, -heard.max_offset, one)
            for one, heard in found
            if heard is not None and now_ms - heard.at_ms < heard.silence_ms
        ]
        return tuple(one for _, _, one in sorted(living))

    def excuse(self, late_ms: int, now_ms: int) -> None:
        """Take that nothing could be heard for a while: who was alive before it still is."""
        for key, heard in self._heard.items():
            self._heard[key] = heard._replace(at_ms=min(now_ms, heard.at_ms + late_ms))

    def expire(self, now_ms: int) -> list[tuple[str, int]]:
        """Forget who was silent for too long; return whom."""
        gone = [
            key for key, heard in self._heard.items() if now_ms - heard.at_ms >= heard.silence_ms
        ]
        for key in gone:
            del self._heard[key]
        return gone

    def on_connection_closed(self, connection_id: int) -> list[tuple[str, int]]:
        """Forget who was heard over a connection that is gone: its process most likely is, too."""
        gone = [key for key, heard in self._heard.items() if heard.connection_id == connection_id]
        for key in gone:
            del self._heard[key]
        return gone

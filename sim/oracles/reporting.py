"""A slave says in time how far its log is, also where it has no news.

A master counts on it: who has said nothing for long leaves the in-sync set, or keeps up no more.
One that comes late is only seen where the limits of both are close to each other.
Source: RocketMQ DefaultHAClient.isTimeToReportOffset; docs/replication.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.controller import BrokerController

NAME: Final = "A41 slave that reports late"
SLACK_MS: Final = 60
"""A turn of the loop, and a call to the disk."""
LOOKS: Final = 2
"""It is late if it is so when it is looked at so often."""
SETTLING: Final = 10
"""So many looks more may find it late once nothing holds its process up any more."""


class Reporting:
    """Judges when slaves report.

    Args:
        is_held_up: whether a host stands still, or waits for its disk.
    """

    def __init__(self, is_held_up: Callable[[str], bool]) -> None:
        self._is_held_up = is_held_up
        self._late: dict[str, int] = {}
        """By broker, at how many looks in a row it was late."""

    def look(self, brokers: Iterable[tuple[str, BrokerController]]) -> None:
        """Look at those that serve. Errors: `Violation`."""
        for name, controller in brokers:
            late_ms, before = late_by_ms(controller), self._late.get(name, 0)
            if self._is_held_up(name):
                self._late[name] = -SETTLING
            else:
                self._late[name] = before + 1 if late_ms > SLACK_MS else min(before + 1, 0)
            if self._late[name] >= LOOKS:
                raise Violation(
                    NAME, f"{name} was to report {late_ms} ms ago, and has not", node=name
                )


def late_by_ms(controller: BrokerController) -> int:
    """Return for how long a report of a slave is due, 0 or less if none is."""
    ha = getattr(controller._mode, "_ha", None)
    link = getattr(ha, "_link", None)
    transport = getattr(link, "_transport", None)
    is_open = transport is not None and not transport.is_closing()
    if ha is None or link is None or not is_open or not ha.is_following:
        return 0
    return int(ha.clock.monotonic_ms() - link._said_ms - ha.config.heartbeat_ms)

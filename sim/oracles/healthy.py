"""A leader that nothing has blocked stays leader: an election without a cause is a failure.

Strict about what it calls calm: for some seconds no fault was on, none began or ended, every broker
ran, and nobody asked for another leader. Source: dissertation 4.2.3, 9.6 (disruptive servers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.core.model import LEADER
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.oracles.replica import Change, Replica
    from sim.oracles.truth import Truth

CALM_NS: Final = 5_000_000_000
"""Longer than election timeouts, hung disks and what was on its way."""


class Healthy:
    """Judges the end of a leadership. ``disturbed_ns``: when anything happened that may end one."""

    name = "A43 leader deposed without a cause"

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._since: dict[str, int] = {}
        self.disturbed_ns: Callable[[], int] = lambda: truth.now_ns()  # noqa: PLW0108 - it is set later

    def led_since_ns(self, name: str) -> int | None:
        """Return since when a broker leads, None if it does not."""
        return self._since.get(name)

    def on_boot(self, replica: Replica) -> None:
        """Who starts does not lead."""
        self._since.pop(replica.name, None)

    def on_change(self, replica: Replica, change: Change) -> None:
        """Look whether a leader is none any more. Errors: `Violation`."""
        now_ns, name = self._truth.now_ns(), replica.name
        leads, led = change.now[0] is LEADER, change.before[0] is LEADER
        if leads and not led:
            self._since[name] = now_ns
        if not led or (leads and change.now[1] == change.before[1]):
            return
        since_ns = self._since.pop(name, now_ns)
        calm_ns = now_ns - max(since_ns, self.disturbed_ns())
        if calm_ns > CALM_NS:
            raise Violation(
                self.name,
                f"{name} led term {change.before[1]} for {(now_ns - since_ns) / 1e9:.1f} s and is "
                f"{change.now[0].value} of term {change.now[1]}; nothing has happened for "
                f"{calm_ns / 1e9:.1f} s",
                node=name,
            )

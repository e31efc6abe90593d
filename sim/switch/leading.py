"""A majority of controllers that nothing hinders has one that leads.

Strict about what it calls a majority: all of them without any fault, or all but one that is down or
stands still while nothing concerns the others. No fault that is drawn cuts links of others than it
names. Elections take a second or two, connections that end are made anew within one.
Source: docs/adr/0020; dissertation 9.6 (pre-votes must not keep a majority from electing).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from sim.switch.world import SwitchWorld

NS_PER_MS: Final = 1_000_000
ELECTED_MS: Final = 6_000
"""Within so long one of a majority leads: several elections, and connections before them."""


class Leading:
    """Looks whether a controller leads.

    Args:
        touched_ms: when a fault of some hosts was on, or ended (`sim.faults.apply.Nemesis`).
    """

    name = "A41 no controller leads"

    def __init__(
        self, world: SwitchWorld, touched_ms: Callable[[Collection[str], int], int]
    ) -> None:
        self._world = world
        self._touched_ms = touched_ms
        self._since_ms: dict[tuple[str, ...], int] = {}
        """By majority: since when it could have one that leads."""

    def look(self) -> None:
        """Look at all majorities. Errors: `Violation`."""
        world = self._world
        now_ms, every = world.loop.now_ns // NS_PER_MS, tuple(world.namesrvs())
        leader = world.controller()
        world.record.count("leader_looks")
        but_one = [tuple(one for one in every if one != absent) for absent in every]
        for members in (every, *(some for some in but_one if 2 * len(some) > len(every))):
            since_ms = self._since_ms.get(members, now_ms)
            if leader is not None or not self._is_left_alone(members, every, since_ms):
                self._since_ms[members] = now_ms
                continue
            self._since_ms[members] = since_ms
            if now_ms - since_ms > ELECTED_MS:
                text = f"of {', '.join(members)}, which nothing has hindered for {ELECTED_MS} ms"
                raise Violation(self.name, f"nobody leads {text}", node=members[0])

    def _is_left_alone(self, members: Sequence[str], every: Sequence[str], since_ms: int) -> bool:
        """Whether these run, nothing concerned them since then, and who is absent says nothing."""
        now_ms = self._world.loop.now_ns // NS_PER_MS
        others = set(every) - set(members)
        runs = all(self._runs(one) for one in members)
        return (
            runs
            and not any(map(self._runs, others))
            and (self._touched_ms(members, now_ms) <= since_ms)
        )

    def _runs(self, name: str) -> bool:
        host = self._world.hosts[name]
        return host.alive and not host.paused

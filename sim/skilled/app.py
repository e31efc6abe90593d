"""One machine with clients that know what a broker can do: each goes on by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sim.everyday.app import HabitsApp
from sim.skilled.batches import Batches
from sim.skilled.filters import Filters
from sim.skilled.frames import Frames
from sim.skilled.halves import DelayedHalves
from sim.skilled.locks import Locks
from sim.skilled.members import NewGroups
from sim.skilled.once import Once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledgermq.client import PushConsumer
    from sim.everyday.life import Life
    from sim.faults.skilled import Skilled


class Times(NamedTuple):
    """When and how long; milliseconds."""

    until: int
    """When the faults are over."""
    delays: Sequence[int]
    """Of each level of delay; none where clocks do not run as time does."""
    lease: int
    """How long a lock holds."""


class SkilledApp(HabitsApp):
    """The program of the machine.

    Args:
        on_made: told of consumers that lock queues, before they start.
    """

    def __init__(
        self, name: str, life: Life, settings: Skilled, times: Times,
        on_made: Callable[[PushConsumer], None],
    ) -> None:  # fmt: skip
        super().__init__(name, life, (settings.every_ms, times.until))
        habits = self._habits
        if settings.filters:
            habits["filters"] = Filters(life)
        if settings.halves:
            habits["halves"] = DelayedHalves(life, times.delays)
        if settings.batches:
            habits["batches"] = Batches(life)
        if settings.frames:
            habits["frames"] = Frames(life)
        if settings.locks:
            is_steady = bool(times.delays)
            habits["locks"] = Locks(life, times.lease, on_made, is_steady=is_steady)
        if settings.members:
            habits["members"] = NewGroups(life)
        if settings.once:
            habits["once"] = Once(life)

"""The program of the machine of fitful clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sim.everyday.app import HabitsApp
from sim.fitful.held import HeldQueues
from sim.fitful.hurried import Hurried
from sim.fitful.names import Names
from sim.fitful.polled import PolledQueues
from sim.fitful.returning import Returning
from sim.fitful.viewers import Viewers

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgermq.client import PushConsumer
    from sim.disk import SimDisk
    from sim.everyday.life import Life
    from sim.faults.fitful import Fitful
    from sim.oracles.further import Further as Judge


class Around(NamedTuple):
    """What is around the machine."""

    until_ms: int
    """When the faults are over."""
    disk: SimDisk
    """Of the machine."""
    judge: Judge
    """Of what is polled."""
    on_made: Callable[[PushConsumer], None]
    """Hears of each consumer in order before it starts."""


class FitfulApp(HabitsApp):
    """The program of the machine of fitful clients."""

    def __init__(self, name: str, life: Life, settings: Fitful, around: Around) -> None:
        super().__init__(name, life, (settings.every_ms, around.until_ms))
        if settings.returning:
            self._habits["returning"] = Returning(life, "a")
            self._habits["returning too"] = Returning(life, "b")
            self._habits["viewers"] = Viewers(life, around.disk)
        if settings.polled:
            self._habits["polled"] = PolledQueues(life, around.judge)
        if settings.hurried:
            self._habits["hurried"] = Hurried(life)
        if settings.held:
            self._habits["held"] = HeldQueues(life, around.on_made)
        if settings.names:
            self._habits["names"] = Names(life)

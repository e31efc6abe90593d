"""Machines with habits: each goes on by itself until the faults are over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ledgermq.client import RemotingError
from sim.everyday.bare import Bare
from sim.everyday.groups import Administration
from sim.everyday.life import MS_PER_S
from sim.everyday.tags import Changing
from sim.everyday.topics import NewTopics
from sim.everyday.values import Values
from sim.everyday.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.everyday.life import Habit, Life
    from sim.faults.everyday import Everyday

EARLY_P: Final = 0.6
"""How many of the topics have a group before they are there, where any has."""


class HabitsApp:
    """The program of a machine with habits: a subclass says which.

    Args:
        times_ms: how long a step waits for the next one, as a mean, and when the faults are over.
    """

    def __init__(self, name: str, life: Life, times_ms: tuple[int, int]) -> None:
        self.name = name
        self.is_busy = True
        self._life = life
        self._every_ms, self._until_ms = times_ms
        self._habits = dict[str, "Habit"]()

    async def run(self) -> None:
        """Go on until the faults are over."""
        await asyncio.gather(*(self._go_on(*one) for one in self._habits.items()))
        self.is_busy = False
        await asyncio.get_running_loop().create_future()

    async def _go_on(self, name: str, habit: Habit) -> None:
        life, steps = self._life, 0
        await habit.start()
        while life.now_ms() < self._until_ms:
            steps += 1
            rng = life.rng.split(f"{name}{steps}")
            await asyncio.sleep(rng.exponential(self._every_ms) / MS_PER_S)
            try:
                await habit.step(rng)
            except RemotingError:
                life.count("client_errors")

    def missing(self) -> str:
        """Say what has not come yet of what must, once all is healed; empty for nothing."""
        return next(filter(None, (habit.missing() for habit in self._habits.values())), "")


class EverydayApp(HabitsApp):
    """The program of the machine of everyday clients.

    Args:
        until_ms: when the faults are over.
        delays_ms: of each level of delay.
    """

    def __init__(
        self, name: str, life: Life, settings: Everyday, until_ms: int, delays_ms: Sequence[int]
    ) -> None:
        super().__init__(name, life, (settings.every_ms, until_ms))
        if settings.bare:
            self._habits["bare"] = Bare(life, delays_ms)
        if settings.unmade or settings.early:
            self._habits["new topics"] = NewTopics(life, EARLY_P if settings.early else 0.0)
        if settings.changing:
            self._habits["tags"] = Changing(life)
            self._habits["versions"] = Versions(life)
        if settings.groups:
            self._habits["groups"] = Administration(life)
        if settings.values:
            self._habits["values"] = Values(life)

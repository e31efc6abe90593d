"""Randomness, the only source of it: jitter, election timeouts, queue choice. Not for secrets."""

import random
from typing import Protocol


class Rng(Protocol):
    """What a component may ask of chance."""

    def randint(self, low: int, high: int) -> int:
        """Return an integer of ``low``..``high``, both included."""
        ...

    def random(self) -> float:
        """Return a float of [0, 1)."""
        ...


class SystemRng:
    """A generator seeded by the machine, or by ``seed`` where a run must be repeatable."""

    __slots__ = ("_random",)

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)

    def randint(self, low: int, high: int) -> int:
        """Return an integer of ``low``..``high``, both included."""
        return self._random.randint(low, high)

    def random(self) -> float:
        """Return a float of [0, 1)."""
        return self._random.random()

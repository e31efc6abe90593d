"""Randomness, the only source of it: jitter, election timeouts, queue choice.

For secrets there is `Rng.token` alone.
"""

import os
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

    def token(self, size: int) -> bytes:
        """Return bytes that nobody else can guess."""
        ...


class SystemRng:
    """A generator seeded by the machine, or by ``seed`` where a run must be repeatable."""

    __slots__ = ("_is_seeded", "_random")

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self._is_seeded = seed is not None

    def randint(self, low: int, high: int) -> int:
        """Return an integer of ``low``..``high``, both included."""
        return self._random.randint(low, high)

    def random(self) -> float:
        """Return a float of [0, 1)."""
        return self._random.random()

    def token(self, size: int) -> bytes:
        """Return bytes that nobody else can guess, unless who made this knows the seed."""
        return self._random.randbytes(size) if self._is_seeded else os.urandom(size)

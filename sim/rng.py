"""Randomness that splits: each consumer has a stream of its own, named, from one seed.

Taking a consumer away, or letting one draw more, does not shift what the others draw. The streams
are those of `random.Random`, whose 53-bit floats are the same on every machine and version.
"""

import hashlib
from _random import Random  # what `random.Random` is made of, without seeding it twice
from collections.abc import Callable, MutableSequence, Sequence
from itertools import pairwise
from math import log
from typing import Final, TypeVar

T = TypeVar("T")

STEPS: Final = 1024
POINT_BYTES: Final = 6
EXPONENTIAL: Final = (*(round(-log(1 - k / STEPS) * 2**20) / 2**20 for k in range(STEPS)), 10.0)
"""Quantiles of the exponential distribution of mean 1, rounded: logarithms differ between machines
in their last bits, and runs must not."""
EXPONENTIAL_STEPS: Final = tuple(pairwise(EXPONENTIAL))
"""Each with the one that follows."""


class SplitRng:
    """A stream of chance; also a `ledgermq.runtime.rng.Rng`."""

    __slots__ = ("_seed", "random")

    def __init__(self, seed: int | str) -> None:
        """Begin the stream of ``seed``."""
        self._seed = str(seed)
        digest = hashlib.blake2b(self._seed.encode(), digest_size=16).digest()
        self.random: Callable[[], float] = Random(int.from_bytes(digest, "big")).random
        """Return a float of [0, 1)."""

    def split(self, name: str) -> "SplitRng":
        """Return the stream called ``name``; it depends on seed and name only."""
        return SplitRng(f"{self._seed}/{name}")

    def point(self, name: str) -> float:
        """Return a float of [0, 1) that depends on seed and name only; cheaper than a stream."""
        text = f"{self._seed}/{name}".encode()
        digest = hashlib.blake2b(text, digest_size=POINT_BYTES).digest()
        return int.from_bytes(digest, "big") / (1 << 8 * POINT_BYTES)

    def randint(self, low: int, high: int) -> int:
        """Return an integer of ``low``..``high``, both included; 53 bits of it are chance."""
        return low + int(self.random() * (high - low + 1))

    def token(self, size: int) -> bytes:
        """Return bytes."""
        return bytes(int(self.random() * 256) for _ in range(size))

    def chance(self, probability: float) -> bool:
        """Return true with ``probability``."""
        return self.random() < probability

    def exponential(self, mean: float) -> float:
        """Return a float of an exponential distribution."""
        point = self.random() * STEPS
        step = int(point)
        low, high = EXPONENTIAL_STEPS[step]
        return mean * (low + (high - low) * (point - step))

    def choice(self, items: Sequence[T]) -> T:
        """Return one of ``items``, which has an order of its own (no set) and is not empty."""
        return items[int(self.random() * len(items))]

    def weighted(self, items: Sequence[T], weights: Sequence[float]) -> T:
        """Return one of ``items``, each as likely as its weight among ``weights``."""
        point = self.random() * sum(weights)
        for item, weight in zip(items, weights, strict=True):
            point -= weight
            if point < 0:
                return item
        return items[-1]

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Put ``items`` into a random order."""
        for last in range(len(items) - 1, 0, -1):
            other = int(self.random() * (last + 1))
            items[last], items[other] = items[other], items[last]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Return ``count`` different ones of ``items``, in random order."""
        pool = list(items)
        self.shuffle(pool)
        return pool[:count]

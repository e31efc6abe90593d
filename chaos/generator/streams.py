"""Seeded randomness without state: a value is a hash of (root seed, name, counter).

Streams of different names are independent, and removing a draw from one shifts no other, so a plan
stays the same when a part of it is left out. Source: spec/proof.md 4.4 (split streams).
"""

import hashlib
from dataclasses import dataclass
from typing import Self

_BITS = 64


@dataclass(frozen=True, slots=True)
class Stream:
    """A named stream of random values; the caller keeps the counter."""

    seed: int
    name: str = ""

    def split(self, name: str) -> Self:
        """Return the stream of a part of this one."""
        return type(self)(self.seed, f"{self.name}/{name}")

    def u64(self, counter: int) -> int:
        """Return draw ``counter``, an integer of 64 bits."""
        text = f"{self.seed}{self.name}#{counter}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")

    def random(self, counter: int) -> float:
        """Return draw ``counter`` as a float of [0, 1)."""
        return (self.u64(counter) >> 11) / (1 << (_BITS - 11))

    def randint(self, counter: int, low: int, high: int) -> int:
        """Return draw ``counter`` as an integer of ``low``..``high``, both included."""
        assert low <= high, (low, high)
        return low + self.u64(counter) % (high - low + 1)

"""Who takes up how much of a table that all share, and whether one may have more.

A holder may have a quarter of what is free. So a single one can fill a fifth of the table, and the
more holders take what they can, the less each of them gets, but there is always something left for
those that come later: none can lock the others out. Pure.
Source: dynamic thresholds of shared buffers (Choudhury and Hahne).
"""

from __future__ import annotations

from typing import Final

SHARE: Final = 4


class FairShare:
    """What the holders of one table have.

    Args:
        limit: what they may have together.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0
        self._used_by: dict[str | int, int] = {}

    def fits(self, holder: str | int, more: int = 1) -> bool:
        """Tell whether a holder may have so much more."""
        free = self._limit - self.used - more
        return self._used_by.get(holder, 0) + more <= free // SHARE

    @property
    def free(self) -> int:
        """What nobody has."""
        return self._limit - self.used

    def of(self, holder: str | int) -> int:
        """Return what a holder has."""
        return self._used_by.get(holder, 0)

    def largest(self) -> str | int:
        """Return the holder that has most. Raises `ValueError` where there is none."""
        return max(self._used_by, key=self._used_by.__getitem__)

    def take(self, holder: str | int, count: int) -> None:
        """Note that a holder has more, or less."""
        self.used += count
        left = self._used_by.get(holder, 0) + count
        if left:
            self._used_by[holder] = left
        else:
            self._used_by.pop(holder, None)

"""How many bytes clients may have copied in the log by small requests.

A request that gives a message back names it, and the broker copies all of it. Without a bound a
client of some hundred bytes a second fills the log. The bytes copied for an address count against
it, and a fixed number of them is forgiven each second; all addresses share one bound
(`broker.fair_share`). Pure.
Source: leaky buckets (Turner).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.fair_share import FairShare
from broker.limits import COPIED_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

DRAIN_BYTES_PER_S: Final = 8 * 1024**2
"""What each address gets back."""
DRAIN_MS: Final = 100
"""How often it gets it."""


class CopyBudget:
    """The budget of one broker; `holds` says what counts against whom."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._drained_ms = now_ms()
        self._share = FairShare(COPIED_BYTES_MAX)
        self._holds: dict[str, int] = {}

    @property
    def used(self) -> int:
        """Bytes that count now."""
        self._drain()
        return self._share.used

    def take(self, address: str, size: int) -> bool:
        """Have so many bytes count against an address; False, and none do, if it had too many."""
        self._drain()
        if not self._share.fits(address, size):
            return False
        self._share.take(address, size)
        self._holds[address] = self._holds.get(address, 0) + size
        return True

    def _drain(self) -> None:
        """Forget what is long enough ago."""
        passed_ms = self._now_ms() - self._drained_ms
        if passed_ms < DRAIN_MS:
            return
        self._drained_ms += passed_ms
        less = passed_ms * DRAIN_BYTES_PER_S // 1000
        for address, held in list(self._holds.items()):
            gone = min(less, held)
            self._share.take(address, -gone)
            if gone == held:
                del self._holds[address]
            else:
                self._holds[address] = held - gone

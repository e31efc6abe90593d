"""Puts that are refused as if too much waited for a majority, until the faults are over.

What waits is bounded in bytes, and the bound is far beyond what a plan writes. A smaller one would
shut out entries that are larger, for ever. So puts are refused by chance, whatever their size: each
caller has to stand that at any time. Source: docs/protocol.md.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dledger.errors import PendingFull

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.controller import BrokerController
    from sim.rng import SplitRng


class Refusals:
    """Refuses puts of the brokers of a run.

    Args:
        share: of the puts that are refused; 0: none.
        is_over: whether the faults are over.
        on_refused: hears of each.
    """

    def __init__(
        self, share: float, is_over: Callable[[], bool], on_refused: Callable[[], None]
    ) -> None:
        self._share = share
        self._is_over = is_over
        self._on_refused = on_refused

    def listen(self, controller: BrokerController, rng: SplitRng) -> None:
        """Refuse puts of a broker that is about to start."""
        if self._share:
            commit_log = controller.store.writer._commit_log
            commit_log._reserve = partial(self._reserve, commit_log._reserve, rng)

    def _reserve(self, reserve: Callable[[int], int], rng: SplitRng, body_bytes: int) -> int:
        """See `LogWriter.reserve`. Errors: `PendingFull`, too: this one is refused."""
        if not self._is_over() and rng.chance(self._share):
            self._on_refused()
            raise PendingFull(1, 0)
        return reserve(body_bytes)

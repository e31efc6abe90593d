"""Puts that are refused as if too much waited for a majority, until the faults are over.

What waits is bounded in bytes, and the bound is far beyond what a plan writes. A smaller one would
shut out entries that are larger, for ever. So puts are refused by chance, whatever their size: each
caller has to stand that at any time. Source: docs/protocol.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dledger.errors import PendingFull

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
            log = _Log(commit_log._log, lambda: self._check(rng))
            commit_log._log = log
            commit_log._reserve = log.reserve

    def _check(self, rng: SplitRng) -> None:
        """Errors: `PendingFull`: this one is refused."""
        if not self._is_over() and rng.chance(self._share):
            self._on_refused()
            raise PendingFull(1, 0)


class _Log:
    """A log that looks first whether it takes what is to be appended."""

    def __init__(self, log: Any, check: Callable[[], None]) -> None:  # noqa: ANN401  # a LogWriter
        self._log = log
        self._check = check

    def reserve(self, body_bytes: int) -> int:
        """See `LogWriter`."""
        self._check()
        place: int = self._log.reserve(body_bytes)
        return place

    def reserve_batch(self, body_sizes: Sequence[int]) -> list[int]:
        """See `LogWriter`."""
        self._check()
        places: list[int] = self._log.reserve_batch(body_sizes)
        return places

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever else a log has
        return getattr(self._log, name)

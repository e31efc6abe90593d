"""Which brokers a producer keeps away from, and for how long, by how long their answers took. Pure.

RocketMQ's table: an answer that took 550 ms keeps sends away for 30 s, one that took 15 s for ten
minutes. A failure counts as 550 ms at least; RocketMQ counts it as 30 s, but here a group that
failed has a leader again within a second. Source: MQFaultStrategy, LatencyFaultToleranceImpl.
"""

from collections.abc import Callable
from typing import Final

from ledgermq.client.message import SendResult

_AWAY_MS: Final = (
    (15_000, 600_000), (3_000, 180_000), (2_000, 120_000), (1_000, 60_000), (550, 30_000),
)  # fmt: skip
"""From how long an answer takes, for how long its broker is kept away from."""
FAILED_MS: Final = 550


class SlowBrokers:
    """Those of one producer; ``now_ms`` tells the time."""

    __slots__ = ("_now_ms", "_until_ms")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._until_ms: dict[str, int] = {}

    def note(self, broker_name: str, took_ms: int) -> None:
        """Take how long the last answer of a broker took; a quick one ends what was before."""
        away_ms = next((away for least, away in _AWAY_MS if took_ms >= least), 0)
        if away_ms:
            self._until_ms[broker_name] = self._now_ms() + away_ms
        elif self._until_ms:
            self._until_ms.pop(broker_name, None)

    def note_result(self, result: SendResult) -> None:
        """Take how long the attempt took that a result is of."""
        last = result.attempts[-1]
        self.note(result.queue.broker_name, (last.t_end_ns - last.t_start_ns) // 1_000_000)

    def is_avoided(self, broker_name: str) -> bool:
        """Tell whether sends should go elsewhere, if they can."""
        until_ms = self._until_ms.get(broker_name)
        return until_ms is not None and self._now_ms() < until_ms

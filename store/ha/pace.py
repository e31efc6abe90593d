"""How fast a backlog is sent while clients are served: the slave's haste is not theirs. Pure.

Two processes that move the log as fast as they can take the processors from those who send, whose
requests then wait for a turn of the scheduler. Somewhat less than that leaves gaps, and is fast
enough: a slave that lacks 1 GiB has it after four seconds.
Source: HAService's flow control in RocketMQ 5 (`maxHaTransferByteInSecond`), which is off there.
"""

from typing import Final

BYTES_A_MS: Final = 256 * 1024
"""To all slaves together that catch up, as long as the log grows. What others are sent does not
count: however fast the log grows, whoever lacks more gets its share."""
SAVED_BYTES_MAX: Final = 2 * 1024 * 1024
"""What was not sent so far may be sent at once: a log that is followed is never held up."""
SERVED_MS: Final = 100
"""For so long after an entry clients count as served."""


class Pace:
    """What one master may send at a moment; times are milliseconds."""

    def __init__(self, now_ms: int) -> None:
        self._at_ms = now_ms
        self._served_ms = now_ms - SERVED_MS
        self._saved_bytes = SAVED_BYTES_MAX

    def on_served(self, now_ms: int) -> None:
        """Take that the log has grown."""
        self._served_ms = now_ms

    def on_sent(self, now_ms: int, size_bytes: int) -> None:
        """Take that so much was sent to a slave that lacks more."""
        self._earn(now_ms)
        self._saved_bytes = max(self._saved_bytes - size_bytes, -SAVED_BYTES_MAX)

    def is_due(self, now_ms: int) -> bool:
        """Tell whether more may be sent now; otherwise it is asked again a millisecond later."""
        if now_ms - self._served_ms >= SERVED_MS:
            return True
        self._earn(now_ms)
        return self._saved_bytes > 0

    def _earn(self, now_ms: int) -> None:
        earned = (now_ms - self._at_ms) * BYTES_A_MS
        self._at_ms = now_ms
        self._saved_bytes = min(self._saved_bytes + earned, SAVED_BYTES_MAX)

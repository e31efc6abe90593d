"""One measured row of a benchmark and its arithmetic."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Acknowledged operations of a closed loop with ``window`` outstanding."""

    window: int
    rate: float
    """Acknowledged operations a second."""
    errors: int
    p50_ms: float
    p99_ms: float

    def as_dict(self) -> dict[str, float]:
        """Return the fields for JSON."""
        return asdict(self)


def summarize(
    window: int, latencies_s: Sequence[float], elapsed_s: float, errors: int
) -> Measurement:
    """Reduce latencies in seconds to a row; -1 where nothing was acknowledged."""
    ordered = sorted(latencies_s)
    count = len(ordered)
    return Measurement(
        window=window,
        rate=round(count / elapsed_s, 1),
        errors=errors,
        p50_ms=round(ordered[count // 2] * 1e3, 3) if count else -1.0,
        p99_ms=round(ordered[int(count * 0.99)] * 1e3, 3) if count else -1.0,
    )

"""One measured row of a benchmark and its arithmetic."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Acknowledged operations of a closed loop with ``window`` outstanding."""

    window: int
    rate: float
    """Acknowledged operations a second."""
    errors: int
    p50_ms: float
    p99_ms: float
    processor_us: Mapping[str, float] = field(default_factory=dict[str, float])
    """Processor time of a message in microseconds, by role; empty where it was not measured."""

    def as_dict(self) -> dict[str, object]:
        """Return the fields for JSON; without processor time where there is none."""
        fields = asdict(self)
        if not self.processor_us:
            del fields["processor_us"]
        return fields

    def with_processor(self, processor_us: Mapping[str, float]) -> "Measurement":
        """Return the row with the processor time of a message."""
        return replace(self, processor_us=dict(processor_us))


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

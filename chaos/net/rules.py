"""What a link does to the frames that pass: the rule of a direction, and its effect on one frame.

Pure; the proxy applies it. Source: spec/proof.md N4, N6, N8, N9, N12, 2.1.
"""

from dataclasses import asdict, dataclass

from chaos.generator import Stream
from chaos.net.wire import flip_last_byte, frame_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What happens to frames in one direction; the default lets everything pass."""

    withhold: bool = False
    """Nothing passes until the rule is lifted; then what was held goes out in order."""
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    """Each frame is late by ``delay_ms`` plus a uniform share of ``jitter_ms``; order is kept."""
    dup_p: float = 0.0
    corrupt_p: float = 0.0
    drop_codes: frozenset[int] = frozenset()
    """Frames with these request codes are dropped."""


@dataclass(slots=True)
class Counters:
    """What happened in one direction of a link since the proxy began. Bytes include prefixes."""

    frames: int = 0
    bytes: int = 0
    withheld_bytes: int = 0
    lost_bytes: int = 0
    """Withheld bytes whose sender was gone before the link healed: they died with it."""
    dropped: int = 0
    duplicated: int = 0
    corrupted: int = 0
    delayed: int = 0

    def snapshot(self) -> dict[str, int]:
        """Return the counts as plain data."""
        return asdict(self)


def apply_rule(
    rule: Rule, frame: bytes, counters: Counters, stream: Stream, draw: int
) -> list[tuple[float, bytes]]:
    """Return what leaves for ``frame``: pairs (delay in seconds, bytes); counts the effects.

    ``draw`` numbers the frame; equal streams and draws give equal effects.
    """
    if rule.drop_codes and frame_code(frame) in rule.drop_codes:
        counters.dropped += 1
        return []
    delay_s = 0.0
    if rule.delay_ms or rule.jitter_ms:
        counters.delayed += 1
        delay_s = (rule.delay_ms + rule.jitter_ms * stream.random(4 * draw)) / 1000
    if rule.corrupt_p and stream.random(4 * draw + 1) < rule.corrupt_p:
        counters.corrupted += 1
        frame = flip_last_byte(frame)
    out = [(delay_s, frame)]
    if rule.dup_p and stream.random(4 * draw + 2) < rule.dup_p:
        counters.duplicated += 1
        out.append((delay_s, frame))
    return out

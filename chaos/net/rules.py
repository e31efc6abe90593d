"""What a link does to the frames that pass: the rule of a direction, and its effect on one frame.

Pure; the proxy applies it. Knows frames and their codes, no Raft: `CODES` only gives names to
numbers. Source: spec/proof.md N4, N6, N8 to N13, 2.1.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from chaos.generator import Stream
from chaos.net.wire import flip_last_byte, frame_code

CODES: Final[Mapping[str, frozenset[int]]] = {
    "append": frozenset({31_005, 31_014}),
    "ack": frozenset({31_006, 31_007}),
    "heartbeat": frozenset({31_008, 31_009}),
    "vote": frozenset({31_001, 31_002, 31_003, 31_004, 31_031}),
    "snapshot": frozenset({31_020, 31_021}),
}
"""Messages between brokers by the name of their kind: questions and answers."""
KEPT_FRAMES_MAX: Final = 16
KEPT_CODES_MAX: Final = 32
KEPT_BYTES_MAX: Final = 16 * 1024
"""For replays: so many frames of each code, of so many codes, none larger than this."""
DELAY_MS_MAX: Final = 60_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What happens to frames in one direction; the default lets everything pass."""

    withhold: bool = False
    """Nothing passes until the rule is lifted; then what was held goes out in order."""
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    """Each frame is late by ``delay_ms`` plus a uniform share of ``jitter_ms``; order is kept."""
    rate_bytes_s: float = 0.0
    """No more than this passes in a second, of all connections together; 0: no limit."""
    reset_after_bytes: int = 0
    """Each connection ends by a reset once so much has passed, amid a frame; 0: none does."""
    dup_p: float = 0.0
    reorder_p: float = 0.0
    """This share of the frames leaves behind the one that comes next on its connection."""
    replay_p: float = 0.0
    """Behind this share of the frames another one leaves that the link has carried before."""
    corrupt_p: float = 0.0
    drop_codes: frozenset[int] = frozenset()
    """Frames with these request codes are dropped."""


_SHARES: Final = ("dup_p", "reorder_p", "replay_p", "corrupt_p")


def rule_from(wanted: Mapping[str, Any]) -> Rule:
    """Return the rule of a command. Errors: ValueError for an unknown or impossible field."""
    known = {one.name for one in fields(Rule)}
    unknown = sorted(set(wanted) - known)
    if unknown:
        raise ValueError(f"a rule has no {', '.join(unknown)}")
    values = dict(wanted)
    if "drop_codes" in values:
        values["drop_codes"] = frozenset(int(code) for code in values["drop_codes"])
    rule = Rule(**values)
    wrong = [name for name in _SHARES if not 0 <= getattr(rule, name) <= 1]
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: a share is from 0 to 1")
    if not 0 <= rule.delay_ms + rule.jitter_ms <= DELAY_MS_MAX:
        raise ValueError(f"a delay is from 0 to {DELAY_MS_MAX:.0f} ms")
    if rule.rate_bytes_s < 0 or rule.reset_after_bytes < 0:
        raise ValueError("a rate and a number of bytes are not below 0")
    return rule


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
    reordered: int = 0
    replayed: int = 0
    corrupted: int = 0
    delayed: int = 0
    late_us: int = 0
    """How late delayed frames left, all together, as measured when they did."""
    slowed_bytes: int = 0
    """Bytes that waited for the rate."""
    resets: int = 0
    """Connections that were reset amid a frame."""

    def snapshot(self) -> dict[str, int]:
        """Return the counts as plain data."""
        return asdict(self)


@dataclass(slots=True)
class Kept:
    """Frames that a direction has carried, for replays: the latest of each code."""

    by_code: dict[int, deque[bytes]] = field(default_factory=dict)

    def keep(self, frame: bytes) -> None:
        """Keep a frame, if there is room for its kind."""
        code = frame_code(frame)
        if code is None or len(frame) > KEPT_BYTES_MAX:
            return
        if code not in self.by_code and len(self.by_code) >= KEPT_CODES_MAX:
            return
        self.by_code.setdefault(code, deque(maxlen=KEPT_FRAMES_MAX)).append(frame)

    def pick(self, stream: Stream, draw: int) -> bytes | None:
        """Return one of the frames, each code as likely as any other; None if there is none."""
        if not self.by_code:
            return None
        of_code = self.by_code[sorted(self.by_code)[stream.u64(draw) % len(self.by_code)]]
        return of_code[stream.u64(draw + 1) % len(of_code)]


_DRAWS: Final = 8
"""Draws that one frame may take."""


class Treatment:
    """Applies a rule to the frames of one connection, in one direction.

    ``aside`` is the frame that waits to be overtaken. Equal streams and draws give equal effects.
    """

    def __init__(self, counters: Counters, kept: Kept, stream: Stream) -> None:
        self.aside: tuple[float, bytes] | None = None
        self._counters = counters
        self._kept = kept
        self._stream = stream

    def treat(self, rule: Rule, frame: bytes, draw: int) -> list[tuple[float, bytes]]:
        """Return what leaves for ``frame``: pairs (delay in seconds, bytes); count the effects.

        ``draw`` numbers the frame among all of its direction.
        """
        counters, stream, first = self._counters, self._stream, _DRAWS * draw
        if rule.drop_codes and frame_code(frame) in rule.drop_codes:
            counters.dropped += 1
            return []
        original = frame
        delay_s = 0.0
        if rule.delay_ms or rule.jitter_ms:
            delay_s = (rule.delay_ms + rule.jitter_ms * stream.random(first)) / 1000
        if rule.corrupt_p and stream.random(first + 1) < rule.corrupt_p:
            counters.corrupted += 1
            frame = flip_last_byte(frame)
        out = [(delay_s, frame)]
        if rule.dup_p and stream.random(first + 2) < rule.dup_p:
            counters.duplicated += 1
            out.append((delay_s, frame))
        if rule.replay_p and stream.random(first + 3) < rule.replay_p:
            again = self._kept.pick(stream, first + 4)
            if again is not None:
                counters.replayed += 1
                out.append((delay_s, again))
        self._kept.keep(original)
        if self.aside is not None:
            counters.reordered += 1
            out.append(self.aside)
            self.aside = None
        elif rule.reorder_p and stream.random(first + 6) < rule.reorder_p:
            self.aside = out.pop(0)
        return out

    def release(self) -> list[tuple[float, bytes]]:
        """Return the frame that waits to be overtaken: nothing did."""
        left, self.aside = self.aside, None
        return [] if left is None else [left]

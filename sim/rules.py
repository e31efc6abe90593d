"""What a rule about frames says; `sim.frames` carries it out."""

import enum
from dataclasses import dataclass

from dledger.codec.peer import APPEND_HINTED, CODES
from dledger.core.messages import Append


class Action(enum.Enum):
    """What happens to a frame that a rule matches."""

    DROP = "drop"
    DUPLICATE = "duplicate"
    DELAY = "delay"
    """Held back while later frames pass."""
    REPLAY = "replay"
    """Passes, and an old one that matched follows it."""
    CORRUPT = "corrupt"
    """One byte behind the length is changed."""


@dataclass(slots=True, eq=False)
class FrameRule:
    """Does ``action`` to frames from ``source`` to ``target``, addresses or None for any.

    ``codes`` are codes of requests, None for any; ``responses`` tells whether responses are meant
    (None: both); ``holds`` is what a frame must contain. Delays are of the interval ``delay_ms``.
    ``limit`` ends it after so many frames.
    """

    action: Action
    source: str | None = None
    target: str | None = None
    codes: frozenset[int] | None = None
    responses: bool | None = None
    probability: float = 1.0
    delay_ms: tuple[int, int] = (1, 100)
    limit: int | None = None
    holds: bytes = b""
    applied: int = 0
    """Frames it was done to: the witness."""

    def is_for(self, source: str, target: str) -> bool:
        """Tell whether it is about a link."""
        return self.source in (None, source) and self.target in (None, target)

    def matches(self, code: int, frame: bytes, *, is_response: bool) -> bool:
        """Tell whether it is about a frame."""
        if self.holds not in frame:
            return False
        if self.responses is not None and self.responses is not is_response:
            return False
        if self.limit is not None and self.applied >= self.limit:
            return False
        return self.codes is None or (code in self.codes and not is_response)


def peer_codes(*names: str) -> frozenset[int]:
    """Return the codes of messages between replicas, by the names of their classes."""
    known = {cls.__name__: code for cls, code in CODES.items()}
    codes = {known[name] for name in names}
    return frozenset(codes | {APPEND_HINTED} if Append.__name__ in names else codes)

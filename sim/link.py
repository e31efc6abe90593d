"""One direction between two addresses: how long it takes, and whether anything passes.

A link knows nothing of connections but which sockets send on it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from sim.rng import EXPONENTIAL_STEPS, STEPS

if TYPE_CHECKING:
    from sim.rng import SplitRng
    from sim.rules import FrameRule

US: Final = 1_000
NS_PER_MS: Final = 1_000_000
STALL_NS: Final = 200_000_000
"""First retransmission of a lost packet; each further one takes twice as long."""
STALLS_MAX: Final = 3
"""Retransmissions that are lost as well: a peer gives a connection up that is silent for longer."""


@dataclass(frozen=True, slots=True)
class Delay:
    """How long a packet takes: ``base_us`` plus an exponential share of ``spread_us`` on average.

    ``loss`` is the probability that a packet is lost and comes 200 ms * 2**k later instead, as
    TCP's retransmissions have it; ``split`` that a write comes in two pieces. ``bytes_per_ms``
    bounds what passes in all connections together, 0 does not.
    """

    base_us: int
    spread_us: int
    loss: float = 0.0
    split: float = 0.0
    bytes_per_ms: int = 0


LOOPBACK: Final = Delay(15, 5)
LAN: Final = Delay(150, 100)


class Sender(Protocol):
    """An end of a connection, as the link that it sends on sees it."""

    def on_healed(self) -> None:
        """This link or the one back works again."""
        ...

    def reset(self) -> None:
        """A fault ends the connection for this end."""
        ...


class Link:
    """From ``source`` to ``target``, both addresses."""

    __slots__ = (
        "_base_ns", "_busy_until_ns", "_loss", "_random", "_spread_ns", "bytes_per_ms",
        "changed_ns", "chunks", "cut", "cut_acks", "cut_since_ns", "delay", "frames", "rng",
        "rules", "sockets", "source", "split", "stopped", "target",
    )  # fmt: skip

    def __init__(self, source: str, target: str, delay: Delay, rng: "SplitRng") -> None:
        """Make a link that works."""
        self.source = source
        self.target = target
        self.rng = rng
        self._random = rng.random
        self.cut = False
        """Whether nothing with a payload passes."""
        self.cut_acks = False
        """Whether no acknowledgements of the other direction's bytes, and no handshakes, pass."""
        self.cut_since_ns = 0
        self.changed_ns = 0
        """When a cut was healed, or packets began to take another time."""
        self.rules: list[FrameRule] = []
        self.frames: list[bytes] = []
        """What passed lately, for replays; kept only while a rule replays."""
        self.sockets: dict[Sender, None] = {}
        """Ends of connections that send on this link."""
        self.chunks = 0
        """Chunks that were sent."""
        self.stopped = 0
        """Chunks that met a cut: the witness of a partition."""
        self._busy_until_ns = 0
        self.set_delay(delay)

    def set_delay(self, delay: Delay) -> None:
        """Let packets take so long from now on."""
        self.delay = delay
        self.split = delay.split
        self.bytes_per_ms = delay.bytes_per_ms
        self._loss = delay.loss
        self._base_ns = delay.base_us * US
        self._spread_ns = delay.spread_us * US

    def draw_ns(self) -> int:
        """Return how long the next packet takes."""
        point = self._random() * STEPS
        step = int(point)
        low, high = EXPONENTIAL_STEPS[step]
        took = self._base_ns + int(self._spread_ns * (low + (high - low) * (point - step)))
        if self._loss and self._random() < self._loss:
            stall = STALL_NS
            took += stall
            for _ in range(STALLS_MAX):
                if self._random() >= self._loss:
                    break
                stall *= 2
                took += stall
        return took

    def pass_ns(self, now_ns: int, size: int) -> int:
        """Return how long a packet waits for its turn, where the link is narrow."""
        start = max(now_ns, self._busy_until_ns)
        self._busy_until_ns = start + size * NS_PER_MS // self.bytes_per_ms
        return self._busy_until_ns - now_ns

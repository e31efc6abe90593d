"""While nothing happens a leader answers at once: nothing that it waits for takes long.

A request that waits for its timeout, and is answered then, costs its sender that much each time,
and nobody loses anything: nothing else tells. Source: docs/operations.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from sim.oracles.replica import Replica
    from sim.oracles.wire import Said

NAME: Final = "A41 slow while nothing happens"
PULL: Final = 11
REPLY: Final = 325
"""It is answered once the asker has been told, whose connection may be a half-open one."""
AT_ONCE_NS: Final = 700_000_000
"""Some round trips between members, to name servers, and to the disk; shorter than timeouts."""


class CalmSince(Protocol):
    """Since when a leader has led undisturbed; see `sim.health.Health.calm_since_ns`."""

    def __call__(self, name: str, *, clients: bool = False) -> int | None:
        """Return the time, None for one that does not lead."""
        ...


class Prompt:
    """Judges how long a leader takes. ``calm_since_ns``: when it began to lead undisturbed."""

    def __init__(self) -> None:
        self.calm_since_ns: CalmSince = lambda name, *, clients=False: None

    def check(self, replica: Replica, request: Said, now_ns: int) -> None:
        """Judge how long who means what he says has waited. Errors: `Violation`."""
        waited_ns = now_ns - request.at_ns
        if request.code == PULL or waited_ns <= AT_ONCE_NS:
            return
        since_ns = self.calm_since_ns(replica.name, clients=request.code == REPLY)
        if since_ns is not None and request.at_ns >= since_ns:
            text = f"lets {request.code} {dict(request.fields)} wait for {waited_ns / 1e6:.0f} ms"
            text = f"{replica.name} {text}, undisturbed since {since_ns / 1e9:.3f} s"
            raise Violation(NAME, text, node=replica.name)

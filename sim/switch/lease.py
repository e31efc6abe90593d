"""How long a master goes on that hears of no controller: for its lease, and then not.

Safety does not rest on it (docs/adr/0020); who asks such a master would wait, or read what others
have gone beyond. Heard is what comes over the connection: the answer of a controller that leads to
the question who is master.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.oracles.wire import Said, Tap

WHO_IS_MASTER: Final = 1004
SUCCESS: Final = 0
ASKED_MS: Final = 6_000
"""A question that began before the lease ended, at three controllers that do not answer."""
HELD_NS: Final = 1_000_000_000
"""A process that did nothing for so long was held: it cannot have heard of anything."""
NS_PER_MS: Final = 1_000_000


class Lease:
    """Knows when each broker heard of the controllers; a `wire.Listener` at its end.

    Args:
        lease_ms: after so long without a word a master gives up.
    """

    name: Final = "A43 master that hears of no controller"

    def __init__(self, lease_ms: int, now_ns: Callable[[], int]) -> None:
        self._limit_ns = (lease_ms + ASKED_MS) * NS_PER_MS
        self._now_ns = now_ns
        self._heard_ns: dict[str, int] = {}
        self._seen_ns: dict[str, int] = {}
        self._names: dict[str, str] = {}

    def follow(self, address: str, name: str) -> None:
        """Take that a broker asks from an address."""
        self._names[address] = name

    def on_event(self, name: str) -> None:
        """A broker has done something."""
        now_ns = self._now_ns()
        if now_ns - self._seen_ns.get(name, 0) > HELD_NS:
            self._heard_ns[name] = now_ns
        self._seen_ns[name] = now_ns

    def check(self, name: str) -> None:
        """A broker acknowledges as a master. Errors: `Violation`: it has been none for long."""
        silent_ns = self._now_ns() - self._heard_ns.get(name, self._now_ns())
        if silent_ns > self._limit_ns:
            raise Violation(
                self.name,
                f"{name} acknowledges a message, and no controller has answered it for "
                f"{silent_ns // NS_PER_MS} ms",
            )

    def on_request(self, tap: Tap, request: Said) -> None:
        """The broker asks a controller."""

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """An answer that nobody waits for."""

    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """A controller answers."""
        if request.code == WHO_IS_MASTER and answer.code == SUCCESS:
            self._heard_ns[self._names[tap.end.local[0]]] = self._now_ns()

"""Who asks for a reply is known to the broker over the connection by which it asks.

Brokers pass replies on over the connections of those whose heartbeats came over them. A request
over one that has carried none gets no reply until the next heartbeat, half a minute later.
Source: docs/client.md (request and reply); RocketMQ DefaultMQProducerImpl.prepareSendRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Findings, Violation, guarded
from sim.oracles.library import SENDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.oracles.wire import Said, Tap

NAME: Final = "A46 asks for a reply where nobody knows it"
HEARTBEAT: Final = 34
OLD_NS: Final = 5_000_000_000
"""A connection that is younger may have been made after somebody began to ask."""


class Greeting:
    """Listens at the clients' end of their connections to brokers; a `wire.Listener`.

    Args:
        calm_since_ns: since when nothing has happened to anybody, None if something does.
    """

    def __init__(self, findings: Findings, calm_since_ns: Callable[[], int | None]) -> None:
        self.findings = findings
        self._calm_since_ns = calm_since_ns
        self._begun_ns: dict[Tap, int] = {}
        """When something was first asked over a connection that has carried no heartbeat."""
        self._greeted: set[Tap] = set()

    @guarded
    def on_request(self, tap: Tap, request: Said) -> None:
        """A client asks a broker."""
        if request.code == HEARTBEAT:
            self._greeted.add(tap)
        if tap in self._greeted:
            return
        since_ns = self._begun_ns.setdefault(tap, request.at_ns)
        if request.code not in SENDS or b"REPLY_TO_CLIENT" not in request.frame:
            return
        calm_ns = self._calm_since_ns()
        limit_ns = request.at_ns - OLD_NS
        if since_ns < limit_ns and calm_ns is not None and calm_ns < limit_ns:
            age_s = (request.at_ns - since_ns) / 1e9
            text = f"{tap.end.local} asks {tap.other} over a connection of {age_s:.1f} s"
            raise Violation(NAME, f"{text} that has carried no heartbeat")

    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """What is answered says nothing of it."""

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """Likewise."""

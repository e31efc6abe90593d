"""A client that has nothing to do does not ask the same again and again.

Who goes on asking where an answer has come long ago costs brokers and name servers time, and loses
nothing: nothing else tells. Judged is what the library asks by itself, heard where it is asked,
while nothing has happened for as long as is counted. Source: docs/client.md; RocketMQ
MQClientInstance.startScheduledTask, which asks for routes each 30 s and for members each 20 s.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final

from sim.oracles.base import Findings, Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.oracles.wire import Said, Tap

NAME: Final = "A41 asks again and again"
COUNTED: Final = {14: "an offset", 34: "to be known", 38: "members", 41: "locks", 42: "to unlock",
                  46: "a filter", 105: "a route"}  # fmt: skip
"""What is no message, no read, and nothing that a program asks for once for each message."""
WINDOW_NS: Final = 3_000_000_000
MOST: Final = 36
"""Of one kind of one client in that time: a client with ten topics asks three name servers."""


class Busy:
    """Listens where clients ask; a `wire.Listener`.

    Args:
        clients: addresses of those that are judged.
        calm_since_ns: since when nothing has happened to anybody; None: something does.
    """

    def __init__(
        self,
        findings: Findings,
        clients: frozenset[str],
        calm_since_ns: Callable[[], int | None],
    ) -> None:
        self._findings = findings
        self._clients = clients
        self._calm_since_ns = calm_since_ns
        self._asked_ns: defaultdict[tuple[str, int], deque[int]] = defaultdict(
            lambda: deque(maxlen=MOST + 1)
        )
        """By client and code, when the last ones came."""

    def on_request(self, tap: Tap, request: Said) -> None:
        """A request comes in."""
        del tap
        if request.code not in COUNTED or request.asker not in self._clients:
            return
        asked_ns = self._asked_ns[request.asker, request.code]
        asked_ns.append(request.at_ns)
        if len(asked_ns) <= MOST or request.at_ns - asked_ns[0] > WINDOW_NS:
            return
        since_ns = self._calm_since_ns()
        if since_ns is not None and since_ns <= asked_ns[0]:
            took_ms = (request.at_ns - asked_ns[0]) // 1_000_000
            text = f"{request.asker} asks for {COUNTED[request.code]} {len(asked_ns)} times"
            text = f"{text} in {took_ms} ms, and nothing has happened"
            self._findings.report(Violation(NAME, text))

    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """It is answered."""

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """An answer goes out that nobody waits for."""

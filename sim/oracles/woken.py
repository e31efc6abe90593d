"""Who is told that its group has other members looks at once, not at its next turn.

Until it looks, queues that a member has left lie idle, or two members consume one. Judged where a
consumer pulls on, some seconds after it was told, and has not asked for the members meanwhile; in
times in which nothing is disturbed.
Source: spec/wire.md 3.6 (38, 40); RocketMQ RebalanceService.wakeup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.oracles.base import Findings
    from sim.oracles.wire import Said, Tap

NAME: Final = "A41 told of other members, and does not look"
PULL, MEMBERS, NOTIFY = 11, 38, 40
GROUP: Final = "consumerGroup"
LOOKS_NS: Final = 3_000_000_000
"""A look comes by then: a rebalance that is under way ends first, and waits for listeners."""
SETTLED_NS: Final = 5_000_000_000
"""So long after the last fault clients and brokers have found each other."""


class Woken:
    """Listens at the clients' end of their connections to brokers; a `wire.Listener`.

    Args:
        touched_ns: when a fault of anybody was last on, 0 for never.
    """

    def __init__(self, findings: Findings, touched_ns: Callable[[], int]) -> None:
        self.findings = findings
        self._touched_ns = touched_ns
        self._looked: dict[tuple[str, str], int] = {}
        """By machine and group, when somebody there asked for the members last."""
        self._owed: dict[tuple[str, str], int] = {}
        """Likewise, when it was told first and has not looked since."""

    def on_request(self, tap: Tap, request: Said) -> None:
        """A consumer asks for members, or pulls."""
        group = request.text(GROUP)
        if request.code == MEMBERS:
            self._looked[request.asker, group] = request.at_ns
        elif request.code == PULL and (NOTIFY, group) in tap.pushed:
            self._check(tap, request, group)

    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """See `wire.Listener`."""

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """See `wire.Listener`."""

    def _check(self, tap: Tap, request: Said, group: str) -> None:
        told_ns, who = tap.pushed[NOTIFY, group], (request.asker, group)
        looked_ns = self._looked.get(who, -1)
        if looked_ns >= told_ns or looked_ns < 0:  # who broadcasts asks nobody
            del tap.pushed[NOTIFY, group]
            return
        if self._owed.get(who, -1) <= looked_ns:
            self._owed[who] = told_ns
        told_ns = self._owed[who]
        if request.at_ns - told_ns > LOOKS_NS:
            del tap.pushed[NOTIFY, group]
            touched_ns = self._touched_ns()
            if not touched_ns or told_ns - touched_ns > SETTLED_NS:
                waited_ms = (request.at_ns - told_ns) // 1_000_000
                self.findings.report(Violation(
                    NAME, f"{request.asker} pulls {waited_ms} ms after it was told that {group} has"
                    " other members, and has not asked for them",
                ))  # fmt: skip

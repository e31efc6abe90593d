"""Who is master only a controller tells that leads: others may be behind what was decided.

A broker or an administrator that hears of a former master believes it. Whether one leads is asked
of its Raft, not of what answers. Source: RocketMQ ControllerManager; docs/adr/0020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Findings, Violation, guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.oracles.wire import Said, Tap

NAME: Final = "A40 told by a controller that does not lead"
TOLD: Final = frozenset({1004, 1006})
"""Questions for who is master, and for all replicas: answered at once, from what is applied."""
SUCCESS: Final = 0


class ControllerEnd:
    """Listens at a controller's end of its connections; a `wire.Listener`.

    Args:
        leads: tells whether its Raft leads at this moment.
    """

    def __init__(self, name: str, findings: Findings, leads: Callable[[str], bool]) -> None:
        self.findings = findings
        self._name = name
        self._leads = leads

    def on_request(self, tap: Tap, request: Said) -> None:
        """Somebody asks."""
        request.note = self._leads(self._name)

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """An answer that nobody waits for."""

    @guarded
    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """A controller answers."""
        if request.code not in TOLD or answer.code != SUCCESS:
            return
        if not request.note and not self._leads(self._name):
            text = f"{self._name} answers {request.code} of {tap.other}, and does not lead"
            raise Violation(NAME, text, node=self._name)

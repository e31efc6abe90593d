"""What lies behind the end of a plain log: nothing, of a message that was refused or is lost.

A full disk may leave whole records of a write that failed, whose senders were told so: a start
would find them. And an index of keys that goes on behind the log takes what comes to those places
next for known, and never finds it. Both show only after a crash, and to who asks for such a message;
so the files are judged while the broker runs, and the index when it has started.
Source: spec/disk.md 5.3, 5.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sim.oracles.base import Violation
from store.plain import PlainLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.controller import BrokerController
    from sim.oracles.copies import Files

LEFT: Final = "A7 refused and left on the disk"
AHEAD: Final = "A39 index ahead of the log"


class Tails:
    """Judges one broker with a plain log."""

    def __init__(self, name: str, files: Files, count: Callable[[str], None]) -> None:
        self._name = name
        self._files = files
        self._count = count
        self._started: BrokerController | None = None
        """Whose index was looked at."""
        self._refused = 0
        """Writes that met a full disk when it was looked behind the end."""

    def on_event(self, controller: BrokerController | None) -> None:
        """Look at one that serves, if it has just started, or was refused. Errors: `Violation`."""
        if controller is None or not controller._started:
            return
        if controller is not self._started:
            self._started = controller
            self._check_index(controller)
        refused = self._files.disk.writes_refused
        if refused != self._refused:
            self._refused = refused
            self._count("refusals_looked_at")
            self._check_files(controller)

    def _check_index(self, controller: BrokerController) -> None:
        keeper: Any = controller.store._index
        if keeper is None:
            return
        self._count("indexes_looked_at")
        end, last = _log_of(controller).end_position, keeper.index.last_physical
        if last >= end:
            text = f"{self._name} starts with a log that ends at {end}, and its index with {last}"
            raise Violation(AHEAD, text, node=self._name)

    def _check_files(self, controller: BrokerController) -> None:
        end = _log_of(controller).written.position
        found = next(self._files.read(end), None)
        if found is not None:
            raise Violation(
                LEFT, f"{self._name} has written its log up to {end}, and behind that there is a record "
                f"of {len(found[1])} bytes", node=self._name,
            )  # fmt: skip


def _log_of(controller: BrokerController) -> PlainLog:
    log = controller._mode.log
    assert isinstance(log, PlainLog)
    return log

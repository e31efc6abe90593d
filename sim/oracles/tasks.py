"""No task and no callback ends with an error that nobody expects, such as a `KeyError`.

Production logs such an error and goes on, and so would a run of the simulator, which then says
nothing, or that the cluster is not live. An error made in the harness's own code is raised as it
is: such a run has no verdict.
"""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Final

from sim.context import CURRENT, error_of, is_unexpected
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sim.loop import SimLoop
    from sim.oracles.base import Findings

HARNESS: Final = ("sim", "chaos")


LOG_CHARS: Final = 300
EXPECTED: Final = (
    "event=slow_write", "event=fatal", "event=disk_full", "event=queue_corruption",
    "event=corruption", "event=index_damaged", "event=disk_hung", "event=listener_failed",
    "event=delayed_messages_removed",
)  # fmt: skip
"""What an operator is to read, and no mistake: a disk that is slow or full, bytes that a loss of
power has torn and that are repaired, a listener of ours that fails, messages that waited in a log
that was dropped, and the end of a process, which are judged for themselves."""


class Ear(logging.Handler):
    """Hears what production logs as an error: a finding, unless a fault explains it."""

    name = "error in the log"

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._findings: Findings | None = None
        self._is_blocked: Callable[[str], bool] = lambda _host: False

    def follow(self, findings: Findings, is_blocked: Callable[[str], bool]) -> None:
        """Report there; ``is_blocked`` tells whether a fault explains an error of a host."""
        self._findings, self._is_blocked = findings, is_blocked

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line of the log."""
        process = CURRENT.get()
        if self._findings is None or process is None:
            return
        package, host = record.name.partition(".")[0], process.host.name
        text = record.getMessage()
        if package in HARNESS or any(word in text for word in EXPECTED) or self._is_blocked(host):
            return
        error = record.exc_info[1] if record.exc_info else None
        why = f"{host}: {text}" + (f": {error!r}" if error is not None else "")
        self._findings.report(Violation(self.name, why[:LOG_CHARS], node=host))


def check_tasks(loop: SimLoop) -> None:
    """Look at all that has ended. Errors: `Violation`; the error itself if it is the harness's."""
    for name, error in _errors(loop):
        if not is_unexpected(error):
            continue
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        package = frames[-1].f_globals["__name__"].partition(".")[0] if frames else ""
        if package in HARNESS:
            raise error
        where = f" in {frames[-1].f_code.co_qualname}" if frames else ""
        raise Violation("process error", f"{name}: {error!r}{where}", node=name) from error


def _errors(loop: SimLoop) -> Iterator[tuple[str, BaseException]]:
    for process in loop.processes():
        for task in process.tasks:
            error = error_of(task)
            if error is not None:
                yield process.host.name, error
    for context in loop.uncaught:
        error = context.get("exception")
        if error is not None:
            yield "-", error

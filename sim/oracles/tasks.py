"""No task and no callback ends with an error that nobody expects, such as a `KeyError`.

Production logs such an error and goes on, and so would a run of the simulator, which then says
nothing, or that the cluster is not live. An error made in the harness's own code is raised as it
is: such a run has no verdict.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Final

from sim.context import error_of, is_unexpected
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.loop import SimLoop

HARNESS: Final = ("sim", "chaos")


def judge_tasks(loop: SimLoop) -> None:
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

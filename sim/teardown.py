"""The end of a world: its coroutines go without anyone hearing what they still do.

A coroutine that is dropped in the middle runs its ``finally`` blocks; those of a killed process may
not run in the world, so all tasks are held until it is over, and let go here, in silence.
"""

import contextlib
import logging
import sys
import warnings
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio

CLOSE_TRIES: Final = 100
"""How often a coroutine may await in its clean-up before it is given up."""


@contextlib.contextmanager
def silence() -> Generator[None, None, None]:
    """Let nothing be logged and nobody be warned."""
    disabled, hook = logging.root.manager.disable, sys.unraisablehook
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = _hear_nothing
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        sys.unraisablehook = hook


def _hear_nothing(unraisable: object) -> None:
    """Drop what a coroutine raises that is closed in the middle of its clean-up."""
    del unraisable


def let_go(tasks: "Iterable[asyncio.Task[Any]]") -> None:
    """Close the coroutines of tasks that will never end."""
    for task in tasks:
        if not task.done():
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own switch
            _close(task.get_coro())


def _close(coro: Any) -> None:  # noqa: ANN401 - a coroutine or a generator
    for _ in range(CLOSE_TRIES):
        try:
            coro.close()
        except BaseException:  # noqa: BLE001, S112 - what a coroutine does on its way out
            continue
        return

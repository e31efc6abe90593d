"""Failures of the environment, and the exit codes they end in.

A `FatalError` is not handled anywhere but in `ledgermq.runtime.process.run_process`: one log line,
exit.

An `AssertionError` says that a program is wrong, not whose data are in danger. Where requests enter
what keeps the data (the store's puts, the Raft log's entry points), `invariants_are_fatal` makes a
`FatalError` of it. Anywhere else on the way of a request it is the failure of that request alone.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

EXIT_BAD_INPUT: Final = 2
"""Wrong configuration, or an environment in which the process cannot start (port, directory)."""

EXIT_ENVIRONMENT: Final = 3
"""The environment failed while running: an fsync, an unwritable vote, a task that died."""


class FatalError(Exception):
    """The process cannot go on; ``message`` names the file, key, port or directory at fault."""

    def __init__(self, message: str, exit_code: int = EXIT_BAD_INPUT) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code


def invariants_are_fatal(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function, with a `FatalError` in the place of an `AssertionError`."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except AssertionError as error:
            raise broken_invariant(error) from error

    return call


def async_invariants_are_fatal(
    function: Callable[P, Coroutine[Any, Any, R]],
) -> Callable[P, Coroutine[Any, Any, R]]:
    """Do what `invariants_are_fatal` does, for a coroutine function."""

    @wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await function(*args, **kwargs)
        except AssertionError as error:
            raise broken_invariant(error) from error

    return call


def broken_invariant(error: AssertionError) -> FatalError:
    """Return what an assertion about the data comes to."""
    return FatalError(f"invariant broken: {error!r}", EXIT_ENVIRONMENT)

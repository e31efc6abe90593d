"""Failures of the environment, and the exit codes they end in.

A `FatalError` is not handled anywhere but in `runtime.process.run_process`: one log line, exit.
"""

from typing import Final

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

"""The frame of every process of ours: event loop, signals, the way out.

SIGTERM and SIGINT cancel the main coroutine, which cleans up in ``finally``; a second signal, or a
clean-up that takes too long, ends the process at once. A `FatalError` is one log line and its exit
code: raised by the main coroutine it passes through the clean-up, raised anywhere else in the loop
it ends the process on the spot, because after a failed fsync nothing may be written any more.
An `AssertionError` that nobody caught is a broken invariant of log, store or clockwork, and ends it
too. What serves clients never lets one come here by itself: it is told as the failure of a request.
"""

import asyncio
import errno
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn

import uvloop

from ledgermq.runtime.errors import EXIT_BAD_INPUT, EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.log_format import configure_logging
from ledgermq.runtime.tasks import SERVING

_log = logging.getLogger(__name__)

STOP_TIMEOUT_S: Final = 15
"""How long the clean-up after a signal may take."""
GC_THRESHOLDS: Final = (50_000, 20, 100)
"""Fewer collections: on the hot path hardly anything is garbage in cycles."""
EXIT_SIGNAL_BASE: Final = 128
OPEN_FILES_WANTED: Final = 65_536
"""Files and connections of a process, as far as the system lets it have so many."""

BAD_PATHS: Final = frozenset(
    (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ENXIO,
     errno.ENAMETOOLONG, errno.EROFS)
)  # fmt: skip
"""Errors of a directory that is not as it should be: who set it up is told which name it is."""

Main = Callable[[], Coroutine[Any, Any, None]]


def run_process(main: Main) -> NoReturn:
    """Run ``main`` until it returns or a signal comes, then exit.

    Exit codes: 0 after a return or a signal, that of a `FatalError`, 2 for a path that cannot be
    used, 3 after any other exception.
    """
    if not logging.getLogger().handlers:
        configure_logging()
    sys.exit(run_main(main))


def run_main(main: Main) -> int:
    """Do what `run_process` does, but return the exit code."""
    if not __debug__:
        _log_fatal(FatalError("run without -O: assertions guard the data", EXIT_BAD_INPUT))
        return EXIT_BAD_INPUT
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_supervise(main))
    except FatalError as error:
        _log_fatal(error)
        return error.exit_code
    except OSError as error:
        if error.errno not in BAD_PATHS or error.filename is None:
            _log.exception("event=crashed")
            return EXIT_ENVIRONMENT
        _log_fatal(FatalError(f"{error.filename}: {error.strerror}", EXIT_BAD_INPUT))
        return EXIT_BAD_INPUT
    except (Exception, asyncio.CancelledError):  # noqa: BLE001 - last resort: say it and exit
        _log.exception("event=crashed")
        return EXIT_ENVIRONMENT
    return 0


def raise_open_files_limit() -> int:
    """Let this process open as many files as it may, and return how many that is.

    A shell's usual limit is 1024: fewer than the connections that a server takes, and a process
    without a descriptor left cannot write its log.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(OPEN_FILES_WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return OPEN_FILES_WANTED if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def freeze_gc() -> None:
    """Take what exists out of garbage collection; call it once, after the start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def on_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle what nobody caught: fatal errors and broken invariants end the process at once."""
    error = context.get("exception")
    if isinstance(error, FatalError):
        _log_fatal(error)
        _exit_now(error.exit_code)
    serving = SERVING in context
    if isinstance(error, AssertionError) and not serving:
        _log.critical("event=invariant_broken", exc_info=error)
        _log_fatal(FatalError(f"invariant broken: {error}", EXIT_ENVIRONMENT))
        _exit_now(EXIT_ENVIRONMENT)
    del loop
    event = "serving_failed" if serving else "uncaught"
    _log.error("event=%s what=%r", event, context.get("message"), exc_info=error)


async def _supervise(main: Main) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    signals: list[int] = []

    def on_signal(number: int) -> None:
        signals.append(number)
        if len(signals) > 1:
            _exit_now(EXIT_SIGNAL_BASE + number)
        _log.info("event=stopping signal=%s", signal.Signals(number).name)
        loop.call_later(STOP_TIMEOUT_S, _stop_took_too_long)
        task.cancel()

    loop.set_exception_handler(on_loop_exception)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    try:
        await main()
    except asyncio.CancelledError:
        if not signals:
            raise
        _log.info("event=stopped")


def _stop_took_too_long() -> None:
    _log_fatal(FatalError(f"stopping took longer than {STOP_TIMEOUT_S} s", EXIT_ENVIRONMENT))
    _exit_now(EXIT_ENVIRONMENT)


def _log_fatal(error: FatalError) -> None:
    _log.critical("event=fatal exit_code=%d %s", error.exit_code, error.message)


def _exit_now(code: int) -> NoReturn:
    logging.shutdown()
    os._exit(code)

"""Ends a test that hangs, wherever it hangs, and says what it waits for; the others go on.

pytest-timeout raises its failure in a signal's handler. An event loop takes it there for that of
a callback, tells of it, and goes on: on uvloop no test would ever end by it. What loops let through
is a `KeyboardInterrupt`, so this failure is one as well; and it comes again after a while, for
what hangs in the clean-up that the first one began. Where not even that helps, in C for example,
the process ends with all stacks, and with pytest-xdist another worker takes its place.

How long a test may take says ``timeout`` in ``pyproject.toml``, or the mark of that name.
"""

import asyncio
import faulthandler
import signal
import sys
import threading
import traceback

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

AGAIN = 1 / 15
"""After what part of its time a test that goes on is told again, and then each time."""
LAST = 1 / 3
"""After what part of its time more the process ends, and `SPARE_S`."""
SPARE_S = 5
"""For what pytest does with a failure."""

_settings = pytest.StashKey()


class TestHangs(pytest.fail.Exception, KeyboardInterrupt):
    """A failure that event loops do not keep for themselves."""


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item, settings):
    """Take the place of pytest-timeout's own timer."""
    if settings.method != "signal" or threading.current_thread() is not threading.main_thread():
        return None
    item.stash[_settings] = settings
    _arm(item, settings)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    return (yield from _as_a_failure())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    return (yield from _as_a_failure())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    if (settings := item.stash.get(_settings, None)) is not None:
        _arm(item, settings)  # A failure stops all timers, for whoever debugs it.
    return (yield from _as_a_failure())


def _arm(item, settings):
    def end(_signal, _frame):
        raise TestHangs(f"has not ended after {settings.timeout:g} s; it waits here:\n{waits()}")

    def cancel():
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        faulthandler.cancel_dump_traceback_later()

    item.cancel_timeout = cancel
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout, settings.timeout * AGAIN)
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    last_s = settings.timeout * (1 + LAST) + SPARE_S
    faulthandler.dump_traceback_later(last_s, file=stderr, exit=True)


def _as_a_failure():
    """Run what is wrapped; pytest takes a `KeyboardInterrupt` for the user's."""
    try:
        return (yield)
    except TestHangs as hangs:
        signal.setitimer(signal.ITIMER_REAL, 0)
        pytest.fail(str(hangs))


def waits():
    """Return where the tasks of the running loop and all threads are."""
    found = []
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        tasks = set()
    for task in sorted(tasks, key=lambda task: task.get_name()):
        found += [f"task {task.get_name()}", *_places(task.get_coro())]
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        stack = traceback.extract_stack(frame)[-8:]
        found += [f"thread {names.get(ident, ident)}", *(f"  {_place(*one[:3])}" for one in stack)]
    return "\n".join(found)


def _places(coroutine):
    """Give where a coroutine awaits, from the outside to the inside."""
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        yield f"  {_place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)}"
        coroutine = coroutine.cr_await


def _place(file, line, name):
    return f"{file}:{line} in {name}"

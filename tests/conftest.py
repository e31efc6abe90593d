"""Settings of all tests: random inputs are the same in every run, so a failure is the change's.

``LEDGERMQ_RANDOM=1`` draws new ones, to look for what nobody has thought of. Which tests run side
by side says `tests.side_by_side`, and how one that hangs is ended `tests.time_limit`.
"""

import gc
import logging
import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable",
    derandomize="LEDGERMQ_RANDOM" not in os.environ,
    # How long one takes says so, too; tests that bound time measure the processor's.
    deadline=None,
    # How long an input takes to draw says how busy the machine is.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")


def pytest_configure(config):
    from tests import time_limit

    config.pluginmanager.register(time_limit, "time_limit")


def pytest_collection_finish():
    """Let no later garbage collection look at the tests themselves: there are 450,000 objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _root_logger_as_it_was():
    """A command under test sets the root logger's level and handlers: each test starts afresh."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    from tests.side_by_side import count_jobs

    return count_jobs(config.args, captures=config.option.capture != "no")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    if config.getvalue("dist") != "load":
        return None  # Somebody asks for another way of xdist's.
    from tests.side_by_side import SideBySideThenAlone

    return SideBySideThenAlone(config, log)

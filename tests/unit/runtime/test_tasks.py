"""Timers of a supervisor, in virtual time: when they call, when not, and what an error comes to."""

import asyncio
import logging

import pytest

from ledgermq.runtime.errors import FatalError, async_invariants_are_fatal, invariants_are_fatal
from ledgermq.runtime.process import on_loop_exception
from ledgermq.runtime.tasks import SERVING, Supervisor
from mutants.patches import BY_TESTS
from mutants.planting import planted
from sim.loop import SimLoop


class Bench:
    """A supervisor on a loop of its own; ``calls`` are times in ms, ``fatal`` what it failed of."""

    def __init__(self):
        self.loop = SimLoop(1)
        self.supervisor = Supervisor()
        self.calls = []
        self.fatal = []
        self.served = []
        self.loop.set_exception_handler(self.on_exception)

    def on_exception(self, _loop, context):
        (self.served if SERVING in context else self.fatal).append(context["exception"])

    def note(self):
        self.calls.append(self.loop.now_ns // 1_000_000)

    def do(self, function, *args):
        return self.loop.call(None, function, *args)


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.loop.close()


def test_a_function_is_called_at_intervals_until_the_stop(bench):
    bench.do(bench.supervisor.every, "tick", 20, bench.note)
    bench.loop.run_for(70)
    assert bench.calls == [20, 40, 60]
    bench.loop.run_until_complete(bench.supervisor.stop())
    bench.loop.run_for(100)
    assert bench.calls == [20, 40, 60]


def test_an_alarm_goes_off_once_at_the_time_set_last(bench):
    alarm = bench.supervisor.alarm("alarm", bench.note)
    bench.loop.run_for(5)
    bench.do(alarm.set, 10)
    bench.do(alarm.set, 30)
    bench.loop.run_for(100)
    assert bench.calls == [35]
    bench.do(alarm.set, 10)
    bench.do(alarm.cancel)
    bench.loop.run_for(100)
    assert bench.calls == [35]


def test_an_alarm_that_is_set_after_the_stop_stays_silent(bench):
    alarm = bench.supervisor.alarm("alarm", bench.note)
    bench.loop.run_until_complete(bench.supervisor.stop())
    bench.do(alarm.set, 10)
    bench.loop.run_for(100)
    assert bench.calls == []


@pytest.mark.parametrize("error", [ValueError("x"), FatalError("fsync failed", 3)])
def test_an_error_of_a_timer_takes_the_process_down_and_ends_the_timer(bench, error):

    def fail():
        bench.note()
        raise error

    bench.do(bench.supervisor.every, "tick", 20, fail)
    bench.loop.run_for(100)
    assert bench.calls == [20]
    (fatal,) = bench.fatal
    assert isinstance(fatal, FatalError)
    assert fatal is error or ("tick" in fatal.message and fatal.__cause__ is error)


async def fails_when_cancelled(error):
    try:
        await asyncio.Event().wait()
    finally:
        raise error


def ends_by(bench, error):
    bench.do(bench.supervisor.spawn, "writer", fails_when_cancelled(error))
    bench.loop.run_for(1)
    bench.loop.run_until_complete(bench.supervisor.stop())
    return bench.fatal


def test_of_what_fails_while_it_stops_only_a_broken_environment_is_told(bench):
    assert ends_by(bench, ValueError("x")) == []
    error = FatalError("fsync failed", 3)
    assert ends_by(bench, error) == [error]


def test_a_failure_that_a_stop_hides_is_seen(bench):
    with planted(BY_TESTS["fatal-error-of-a-stop-is-lost"]), pytest.raises(AssertionError):
        test_of_what_fails_while_it_stops_only_a_broken_environment_is_told(bench)


async def raises(error):
    await asyncio.sleep(0)
    raise error


@pytest.mark.parametrize("error", [ValueError("x"), AssertionError("x"), KeyError("x")])
def test_what_serves_a_request_may_fail_and_whoever_waits_is_told(bench, error):
    told = []
    task = bench.do(bench.supervisor.serve, "request", raises(error), told.append)
    bench.loop.run_for(1)
    assert (bench.fatal, bench.served, told) == ([], [error], [error])
    assert task.done()


def test_without_that_it_ends_the_process(bench):
    with planted(BY_TESTS["served-coroutine-is-supervised"]):
        bench.do(bench.supervisor.serve, "request", raises(ValueError("x")))
        bench.loop.run_for(1)
    assert [type(error) for error in bench.fatal] == [FatalError]


def test_a_fatal_error_of_what_serves_a_request_is_not_kept_from_the_process(bench):
    error = FatalError("fsync failed", 3)
    bench.do(bench.supervisor.serve, "request", raises(error))
    bench.loop.run_for(1)
    assert bench.served == [error]
    with pytest.raises(SystemExit) as ended:
        exit_of(error)
    assert ended.value.code == 3


def test_telling_who_waits_may_fail_too(bench):
    def fail(_error):
        raise KeyError("twice")

    bench.do(bench.supervisor.serve, "request", raises(ValueError("once")), fail)
    bench.loop.run_for(1)
    assert bench.fatal == []
    assert [repr(error) for error in bench.served] == ["ValueError('once')", "KeyError('twice')"]


def test_a_cancelled_request_is_no_failure_and_is_cancelled_by_the_stop(bench):
    told = []
    first = bench.do(bench.supervisor.serve, "request", asyncio.sleep(9), told.append)
    second = bench.do(bench.supervisor.serve, "request", asyncio.sleep(9), told.append)
    bench.loop.run_for(1)
    bench.do(first.cancel)
    bench.loop.run_until_complete(bench.supervisor.stop())
    assert first.cancelled()
    assert second.cancelled()
    assert (bench.fatal, bench.served, told) == ([], [], [])


def test_a_timer_that_tends_clients_survives_its_failures(bench):
    def fail():
        bench.note()
        raise AssertionError("x")

    bench.do(bench.supervisor.tend, "clients", 20, fail)
    bench.loop.run_for(70)
    assert bench.calls == [20, 40, 60]
    assert len(bench.served) == 3
    assert bench.fatal == []


def exit_of(error, **context):
    """Have the handler of a process take ``error``, with its exit made an exception."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(
            "ledgermq.runtime.process._exit_now",
            lambda code: (_ for _ in ()).throw(SystemExit(code)),
        )
        on_loop_exception(None, {"message": "x", "exception": error, **context})


def test_a_process_survives_a_broken_assertion_only_while_it_serves(caplog):
    with pytest.raises(SystemExit) as ended:
        exit_of(AssertionError("1 < 0"))
    assert ended.value.code == 3
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        exit_of(AssertionError("1 < 0"), **{SERVING: True})
    (line,) = caplog.records
    assert "serving_failed" in line.getMessage()
    assert line.exc_info is not None


@pytest.mark.parametrize("error", [AssertionError("1 < 0"), ValueError("x")])
def test_an_entry_point_of_the_log_makes_broken_invariants_fatal(bench, error):
    def fail():
        raise error

    expected = FatalError if isinstance(error, AssertionError) else ValueError
    with pytest.raises(expected):
        invariants_are_fatal(fail)()
    with pytest.raises(expected):
        bench.loop.run_until_complete(async_invariants_are_fatal(raises)(error))

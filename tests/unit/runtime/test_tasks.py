"""Timers of a supervisor, in virtual time: when they call, when not, and what an error comes to."""

import pytest

from runtime.errors import FatalError
from runtime.tasks import Supervisor
from sim.loop import SimLoop


class Bench:
    """A supervisor on a loop of its own; ``calls`` are times in ms, ``fatal`` what it failed of."""

    def __init__(self):
        self.loop = SimLoop(1)
        self.supervisor = Supervisor()
        self.calls = []
        self.fatal = []
        self.loop.set_exception_handler(
            lambda _loop, context: self.fatal.append(context["exception"])
        )

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

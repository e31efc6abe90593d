"""A run that stands still ends, and says where it stood."""

import asyncio
import re

import pytest

from sim import standstill
from sim.faults.plan import Options, Plan
from sim.run import NOT_LIVE, VALID, run_plan
from store.index.keeper import IndexKeeper

PLAN = Plan(seed=3, options=Options(safety_ms=1_500))


def hang_at_the_first_tick(monkeypatch, hang):
    tick = IndexKeeper.tick

    def planted(self, now_ms, applied):
        hang()
        return tick(self, now_ms, applied)

    monkeypatch.setattr(IndexKeeper, "tick", planted)


def spin():
    while True:
        pass


def call_again():
    asyncio.get_running_loop().call_soon(call_again)


@pytest.mark.parametrize("hang", [spin, call_again])
def test_a_run_that_stands_still_is_not_live(monkeypatch, hang):
    limited = standstill.limited
    monkeypatch.setattr("sim.stepping.limited", lambda: limited(1.0))
    hang_at_the_first_tick(monkeypatch, hang)
    result = run_plan(PLAN)
    assert (result.verdict, result.oracle) == (NOT_LIVE, "liveness")
    assert re.match(r"no end after 1 s of processor time: \w+/[\w.]+:\d+ in \w+", result.text)
    if hang is spin:
        assert f"{__name__.rpartition('.')[2]}.py" in result.text


def test_a_run_that_goes_on_is_left_alone(monkeypatch):
    limited = standstill.limited
    monkeypatch.setattr("sim.stepping.limited", lambda: limited(5.0))
    assert run_plan(PLAN).verdict == VALID


def test_the_signal_is_as_before():
    before = standstill.signal.getsignal(standstill.signal.SIGVTALRM)
    with standstill.limited(10):
        assert standstill.signal.getsignal(standstill.signal.SIGVTALRM) is not before
    assert standstill.signal.getsignal(standstill.signal.SIGVTALRM) is before
    assert standstill.signal.getitimer(standstill.signal.ITIMER_VIRTUAL) == (0.0, 0.0)

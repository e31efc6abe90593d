"""Held pulls expire by their deadlines, and nothing wakes up while none can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.pulls.hold_sweep import HoldSweep
from broker.pulls.long_polling import HeldPull, HoldTable
from ledgermq.runtime.tasks import Supervisor
from sim.clock import SimClock
from sim.loop import SimLoop
from tests.unit.broker.fakes import FakeConnection

if TYPE_CHECKING:
    from collections.abc import Iterator


def pull(deadline_ms: int) -> HeldPull:
    return HeldPull(FakeConnection(), 1, 0, "T", 0, 5, 32, None, deadline_ms)


class Bench:
    """A table that is swept; ``expired`` are (time, deadline) in ms."""

    def __init__(self) -> None:
        self.loop = SimLoop(1)  # type: ignore[abstract]  # what asyncio has and nobody uses
        self.held = HoldTable(resolution_ms=100)
        self.expired: list[tuple[int, int]] = []
        clock = SimClock(self.loop)
        sweep = (self.held, clock, Supervisor(), self.expire)
        self.loop.call(None, HoldSweep, *sweep)

    def expire(self, now_ms: int) -> None:
        self.expired += [(now_ms, one.deadline_ms) for one in self.held.expire(now_ms)]

    def hold(self, deadline_ms: int) -> None:
        assert self.loop.call(None, self.held.hold, pull(deadline_ms))

    def run_until(self, now_ms: int) -> None:
        self.loop.run_until(now_ms * 1_000_000)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.loop.close()


@pytest.mark.parametrize("deadlines", [(1_050, 15_020), (15_020, 1_050), (1_050, 1_060, 15_020)])
def test_each_pull_expires_in_the_bucket_of_its_deadline(
    bench: Bench, deadlines: tuple[int, ...]
) -> None:
    for deadline_ms in deadlines:
        bench.hold(deadline_ms)
    bench.run_until(20_000)
    expected = [(1_100 if one < 15_000 else 15_100, one) for one in sorted(deadlines)]
    assert sorted(bench.expired) == expected


def test_nothing_wakes_up_while_no_pull_is_due(bench: Bench) -> None:
    bench.run_until(60_000)
    assert bench.loop.events == 0
    bench.hold(90_000)
    bench.run_until(90_000)
    assert (bench.loop.events, bench.expired) == (0, [])
    bench.run_until(120_000)
    assert bench.expired == [(90_100, 90_000)]


def test_a_pull_that_was_woken_leaves_the_later_ones_their_time(bench: Bench) -> None:
    bench.hold(1_000)
    bench.held.arrived("T", 0, 6)
    bench.run_until(500)
    bench.hold(3_000)
    bench.run_until(5_000)
    assert bench.expired == [(3_100, 3_000)]


def test_a_pull_whose_deadline_has_passed_expires_at_once(bench: Bench) -> None:
    bench.run_until(10_000)
    bench.hold(500)
    bench.run_until(10_001)
    assert bench.expired == [(10_000, 500)]


def test_pulls_that_were_held_before_the_sweep_began_expire_too(bench: Bench) -> None:
    table = HoldTable(resolution_ms=100)
    table.hold(pull(200))
    out: list[HeldPull] = []
    clock = SimClock(bench.loop)
    expire = lambda now_ms: out.extend(table.expire(now_ms))  # noqa: E731 - one line of wiring
    bench.loop.call(None, HoldSweep, table, clock, Supervisor(), expire)
    bench.run_until(300)
    assert len(out) == 1

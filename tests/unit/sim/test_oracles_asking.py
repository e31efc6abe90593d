"""A leader asks for open halves again and again."""

from types import SimpleNamespace

import pytest

from dledger.core.model import FOLLOWER, LEADER
from sim.oracles.asking import INTERVALS, NAME, SETTLED_MS, Asking
from sim.oracles.base import Violation
from sim.oracles.replica import Mark
from tests.unit.sim.test_oracles_transactions import CHECK_MS, One

TICK_MS = 50
LATE_TICKS = ((1 + INTERVALS) * CHECK_MS + SETTLED_MS) // TICK_MS


class Led(One):
    """A half, and a leader that may ask for it."""

    def __init__(self):
        super().__init__()
        self.asking = Asking(self.truth, self.oracle, CHECK_MS)
        self.led = SimpleNamespace(role=LEADER, term=3, tick=0, transfer=None, blocked=None)
        self.replica = SimpleNamespace(
            name="n0", state=self.led, incarnation=1, tick_ms=TICK_MS, last_index=5,
            applied_index=5, is_corrupt=False, disk=SimpleNamespace(is_watched=False),
            hangs=lambda: False,
            controller=SimpleNamespace(store=SimpleNamespace(writer=SimpleNamespace(writable=True))),
        )  # fmt: skip
        self.truth.committed += [Mark(1, 0, 0, 0)] * 5

    def wait(self, ticks):
        for _ in range(ticks):
            self.asking.on_tick(self.replica)
            self.led.tick += 1
        return self


def test_a_half_that_nobody_asks_for_is_found():
    led = Led().wait(LATE_TICKS)
    with pytest.raises(Violation, match=NAME):
        led.wait(2)


def test_each_question_gives_it_as_much_time_again():
    led = Led().wait(LATE_TICKS)
    led.ask(1).wait(LATE_TICKS)
    with pytest.raises(Violation, match="was asked for 1 times"):
        led.wait(2)


@pytest.mark.parametrize(
    "why", ["parked", "new term", "new life", "follows", "full", "not committed"]
)
def test_nothing_is_said_of_who_could_not_ask(why):
    led = Led().wait(LATE_TICKS)
    if why == "parked":
        led.ask(1, 2).park()
    elif why == "new term":
        led.led.term += 1
    elif why == "new life":
        led.replica.incarnation += 1
    elif why == "follows":
        led.led.role = FOLLOWER
        led.wait(1)
        led.led.role = LEADER
    elif why == "full":
        led.replica.disk.is_watched = True
    else:
        led.replica.last_index = 100
    led.wait(LATE_TICKS // 2)

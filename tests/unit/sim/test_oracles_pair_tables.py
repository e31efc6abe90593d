"""What a slave knows of offsets is never ahead of its log, was asked for, and is not forgotten."""

from types import SimpleNamespace

import pytest

from broker.config import BrokerConfig
from broker.delays.progress import DelayProgress
from broker.state.kinds import StateKind
from broker.state.own_offsets import OwnOffsets
from broker.tables import Tables
from ledgermq.runtime.clock import SystemClock
from sim.oracles.base import Violation
from sim.oracles.delays import SCHEDULE_TOPIC
from sim.oracles.pair_tables import FORGOTTEN_NS, PairTables

KEY = ("readers", "orders", 0)


class Slave:
    def __init__(self):
        self.tables = Tables(BrokerConfig(), SystemClock())
        self.tables.add(DelayProgress())
        self.own = OwnOffsets(self.tables.offsets)
        copy = SimpleNamespace(base=0, queue_ends={("orders", 0): 10, (SCHEDULE_TOPIC, 1): 3})
        broker = SimpleNamespace(
            name="a1", is_master=False, is_up=True, copy=copy,
            running=SimpleNamespace(tables=self.tables, _started=True),
        )  # fmt: skip
        self.pair = SimpleNamespace(brokers={"a1": broker}, replaced=set())
        self.pair.book = SimpleNamespace(lines=[None])
        self.now_ns = 1
        self.oracle = PairTables(self.pair, lambda: self.now_ns)

    def told(self, offset):
        """The master tells an offset, and the slave takes it over."""
        text = b'{"orders@readers":{"0":%d}}' % offset
        self.tables.state.apply(-1, StateKind.OFFSET, text)

    def take(self, offset):
        """A consumer commits."""
        self.oracle.on_offered("a1", KEY, offset)
        assert self.own.commit(*KEY, offset)
        self.oracle.on_taken("a1", KEY, offset)

    def wait(self):
        self.oracle.look()
        self.now_ns += FORGOTTEN_NS + 1
        self.oracle.look()


def test_an_offset_at_the_end_is_not_ahead():
    slave = Slave()
    slave.told(10)
    slave.wait()


def test_an_offset_past_the_end_is():
    slave = Slave()
    slave.told(11)
    with pytest.raises(Violation, match="knows offset 11"):
        slave.oracle.look()
    slave.pair.replaced.add(("orders", 0, 9))
    slave.oracle.look()


def test_delays_past_the_end_are_found():
    slave = Slave()
    slave.tables.state.apply(-1, StateKind.DELIVERED, b"[1,2]")
    slave.oracle.look()
    slave.tables.state.apply(-1, StateKind.DELIVERED, b"[1,3]")
    with pytest.raises(Violation, match="level 2"):
        slave.oracle.look()


def test_what_was_committed_may_be_kept():
    slave = Slave()
    slave.take(7)
    slave.wait()


def test_what_nobody_committed_may_not():
    slave = Slave()
    slave.take(7)
    slave.own.commit(*KEY, 8)
    with pytest.raises(Violation, match="nobody has"):
        slave.oracle.look()


def test_what_was_taken_and_has_no_other_in_its_place_is_forgotten():
    slave = Slave()
    slave.told(5)
    slave.take(7)
    slave.wait()
    slave.tables.offsets.drop("orders@readers", 0)
    with pytest.raises(Violation, match="as before"):
        slave.wait()


def test_what_the_master_says_instead_counts():
    slave = Slave()
    slave.told(5)
    slave.take(7)
    slave.tables.offsets.drop("orders@readers", 0)
    slave.told(9)
    slave.wait()


def test_each_change_of_a_slave_is_looked_at_when_it_comes():
    slave = Slave()
    slave.told(10)
    slave.oracle.on_event("a1")
    slave.told(11)
    with pytest.raises(Violation, match="which ends at 10 in its log"):
        slave.oracle.on_event("a1")
    slave.oracle.on_event("a1")  # nothing has changed since


def test_a_master_and_who_does_not_run_are_left_alone():
    for name, value in (("is_master", True), ("is_up", False)):
        slave = Slave()
        setattr(slave.pair.brokers["a1"], name, value)
        slave.told(11)
        slave.oracle.on_event("a1")

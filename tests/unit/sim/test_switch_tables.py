"""Offsets of switched brokers: what counts in the log is told by every later master."""

import json
from types import SimpleNamespace

import pytest

from broker.config import BrokerConfig
from broker.delays.progress import DelayProgress
from broker.state.kinds import StateKind
from broker.tables import Tables
from ledgermq.runtime.clock import SystemClock
from sim.oracles.base import Violation
from sim.switch import tables as module
from sim.switch.tables import SwitchTables

KEY = ("readers", "orders", 0)
NS_PER_S = 1_000_000_000


class World:
    """Two brokers; ``a0`` is the master of epoch 1."""

    def __init__(self, monkeypatch):
        self.kind = "offset"
        monkeypatch.setattr(module, "properties_of", lambda data: {"KIND": self.kind})
        monkeypatch.setattr(module, "body_of", lambda data: data[module.ENTRY_HEADER_BYTES :])
        self.now_ns = 0
        self.brokers = {name: self.broker(name) for name in ("a0", "a1")}
        self.brokers["a0"].is_master = True
        self.replicas = SimpleNamespace(
            brokers=self.brokers, replaced=set(), excused=0, book=SimpleNamespace(lines=[None]),
            decisions=SimpleNamespace(group=SimpleNamespace(master_epoch=1)),
        )  # fmt: skip
        self.oracle = SwitchTables(self.replicas, lambda: self.now_ns)

    def broker(self, name):
        tables = Tables(BrokerConfig(), SystemClock())
        tables.add(DelayProgress())
        running = SimpleNamespace(tables=tables, _started=True, store=SimpleNamespace(applied=999))
        copy = SimpleNamespace(base=0, queue_ends={("orders", 0): 10})
        return SimpleNamespace(
            name=name, is_master=False, is_up=True, copy=copy, running=running, epoch=1
        )

    def ask(self, offset, name="a0"):
        self.now_ns += NS_PER_S
        self.oracle.on_asked(name, KEY, offset)

    def count(self, offset, position):
        self.now_ns += NS_PER_S
        text = json.dumps({"orders@readers": {"0": offset}}).encode()
        self.oracle.on_counted(position, SimpleNamespace(data=text))

    def forget(self, position):
        self.kind = "forget-offsets"
        text = json.dumps({"offsets": {"orders@readers": [0]}}).encode()
        self.oracle.on_counted(position, SimpleNamespace(data=text))
        self.kind = "offset"

    def apply(self, offset, name="a0"):
        text = b'{"orders@readers":{"0":%d}}' % offset
        self.brokers[name].running.tables.state.apply(-1, StateKind.OFFSET, text)

    def switch(self):
        self.brokers["a0"].is_master, self.brokers["a1"].is_master = False, True
        self.brokers["a1"].epoch = self.replicas.decisions.group.master_epoch = 2


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


def test_the_next_master_tells_what_counts(world):
    world.ask(5)
    world.count(5, 100)
    world.switch()
    world.apply(5, "a1")
    world.oracle.look()
    world.oracle.on_told("a1", KEY, 5)


@pytest.mark.parametrize("told", [4, None])
def test_a_master_that_tells_less_is_found(world, told):
    world.ask(5)
    world.count(5, 100)
    world.switch()
    with pytest.raises(Violation, match=r"5 counts, at 100"):
        world.oracle.on_told("a1", KEY, told)


def test_tables_are_looked_at_though_nobody_asks(world):
    world.ask(5)
    world.count(5, 100)
    world.apply(3)
    with pytest.raises(Violation, match="tells 3"):
        world.oracle.on_event("a0")


def test_who_has_not_dispatched_so_far_is_not_judged(world):
    world.ask(5)
    world.count(5, 100)
    world.switch()
    world.brokers["a1"].running.store.applied = 100
    world.oracle.on_told("a1", KEY, 4)


def test_a_former_master_is_not_judged(world):
    world.ask(5)
    world.count(5, 100)
    world.replicas.decisions.group.master_epoch = 2
    world.oracle.on_told("a0", KEY, 4)


def test_what_was_asked_for_before_does_not_excuse_and_what_came_later_does(world):
    world.ask(3)
    world.ask(5)
    world.count(5, 100)
    with pytest.raises(Violation, match="less than 5"):
        world.oracle.on_told("a0", KEY, 3)
    world.ask(3)
    world.oracle.on_told("a0", KEY, 3)


def test_a_slave_gives_what_it_took_later(world):
    world.ask(3, "a1")
    world.ask(5)
    world.count(5, 100)
    world.oracle.on_told("a0", KEY, 3)


def test_what_was_lost_as_it_may_be_does_not_count(world):
    world.ask(5)
    world.count(5, 100)
    world.replicas.excused = 1
    world.oracle.on_told("a0", KEY, 1)


def test_a_slave_ahead_of_its_log_is_found(world):
    world.apply(10, "a1")
    world.oracle.on_event("a1")
    world.apply(11, "a1")
    with pytest.raises(Violation, match="a1 knows offset 11"):
        world.oracle.on_event("a1")


def test_what_is_forgotten_stays_so_when_a_slave_counts_it_later(world):
    world.ask(5)
    world.count(5, 100)
    world.forget(200)
    world.count(5, 100)  # of a slave that lags
    world.oracle.on_told("a0", KEY, None)


def test_a_slave_that_lags_forgets_nothing_newer(world):
    world.ask(5)
    world.forget(200)
    world.count(5, 300)
    world.forget(200)
    with pytest.raises(Violation, match="at 300"):
        world.oracle.on_told("a0", KEY, None)

"""Tables of brokers with a plain log: what their logs state is there, a master's own exactly."""

import json
from functools import partial
from types import SimpleNamespace

import pytest

from broker.config import BrokerConfig
from broker.delays.progress import DelayProgress
from broker.tables import Tables
from broker.transactions.table import HalfTable
from ledgermq.remoting.protocol.message import MessageExt, encode_record
from ledgermq.runtime.clock import SystemClock
from sim.disk import SimDisk
from sim.oracles.base import Findings, Violation
from sim.oracles.copies import Book, Copy
from sim.oracles.line_tables import NAME, LineTables
from sim.oracles.plain_saved import PlainSaved, ends_alone, ends_copied
from sim.oracles.plain_tables import PlainTables
from sim.oracles.plain_truth import PlainTruth
from sim.oracles.saved_tables import SavedTables
from sim.rng import SplitRng
from store.layout import STATE_TOPIC, state_properties

KEY = "orders@readers"
QUEUE = ("orders", 0)
DIRECTORY = "/store/config"


def record_at(position, kind="", payload=b"", offset=0):
    """A record of state, or a message of `QUEUE` where there is no kind."""
    topic, properties = (STATE_TOPIC, state_properties(kind)) if kind else ("orders", b"")
    return encode_record(
        MessageExt(topic, 0, 0, 0, offset, position, 0, bytes(8), 5, bytes(8), 0, 0, payload,
                   properties)
    )  # fmt: skip


class Machine:
    """A broker, its log and its tables; what is put lies in the log and is applied."""

    def __init__(self):
        self.disk = SimDisk(SplitRng(1), host="a0")
        self.tables = Tables(BrokerConfig(), SystemClock())
        self.progress = self.tables.add(DelayProgress())
        halves = SimpleNamespace(table=HalfTable())
        self.store = SimpleNamespace(applied=0, _queues=SimpleNamespace(by_name={QUEUE: 1}))
        self.running = SimpleNamespace(
            tables=self.tables, store=self.store, _started=True, state_index=-1,
            _services=SimpleNamespace(delays=SimpleNamespace(progress=self.progress)),
            _processors=SimpleNamespace(transactions=halves),
        )  # fmt: skip
        self.files = SimpleNamespace(disk=self.disk)
        self.copy = Copy("a0", self.files)
        self.book = Book({"a0": self.copy})
        self.truth = PlainTruth()
        self.broker = SimpleNamespace(
            name="a0",
            copy=self.copy,
            is_up=True,
            is_master=True,
            own_from=0,
            running=self.running,
            log=SimpleNamespace(first_position=0),
        )
        self.judged, self.first_position = self.running, 0
        self.messages = 0
        self.lined = LineTables(self.book)
        self.alone = PlainTables("b0", lambda: self.truth, lambda: 0)

    def put(self, kind="", payload=b"", *, applied=True):
        position = self.book.line.end
        data = record_at(position, kind, payload, self.messages)
        self.messages += not kind
        self.book.line.add(position, data, 0)
        self.copy.add(position, self.book.line.rows[position])
        self.truth.take(position, data)
        self.store.applied = position + len(data)
        if kind and applied:
            assert self.tables.state.apply(position, kind, payload)

    def commit(self, offset, *, applied=True):
        self.put("offset", json.dumps({KEY: {"0": offset}}).encode(), applied=applied)

    def look(self):
        """Which oracle finds something where the broker is one of several, and alone."""
        found = []
        for look in (
            partial(self.lined.on_event, self.broker), partial(self.alone.look, self.running)
        ):  # fmt: skip
            try:
                look()
            except Violation as error:
                found.append(error.oracle)
        return found


def test_tables_that_have_what_the_log_says():
    machine = Machine()
    machine.put()
    machine.commit(4)
    machine.put("delivered", b"[3,6]")
    assert machine.look() == []
    assert machine.lined.compared == 1
    machine.commit(3)
    assert machine.look() == []


def test_a_row_that_the_log_states_and_the_table_lacks_is_found():
    machine = Machine()
    machine.commit(4, applied=False)
    assert machine.look() == [NAME, NAME]
    machine = Machine()
    machine.put("delivered", b"[3,6]", applied=False)
    assert machine.look() == [NAME, NAME]


def test_a_row_that_a_master_did_not_put_is_found():
    machine = Machine()
    machine.commit(4)
    machine.tables.offsets.apply(b'{"orders@readers":{"1":2}}')
    assert machine.look() == [NAME, NAME]


def test_a_slave_may_know_more_than_its_log():
    machine = Machine()
    machine.broker.is_master = False
    machine.commit(4)
    machine.tables.offsets.apply(b'{"orders@readers":{"0":9,"1":2}}')
    machine.lined.on_event(machine.broker)


def test_a_later_master_has_its_own_changes_exactly():
    machine = Machine()
    machine.commit(4)
    machine.tables.offsets.apply(b'{"orders@readers":{"0":6,"1":2}}')
    machine.broker.own_from = machine.book.line.end
    machine.lined.on_event(machine.broker)
    machine.commit(7)
    machine.lined.on_event(machine.broker)
    machine.commit(8, applied=False)
    with pytest.raises(Violation, match="7"):
        machine.lined.on_event(machine.broker)


def test_what_a_start_has_read_from_files_may_be_newer():
    machine = Machine()
    machine.commit(4, applied=False)
    machine.tables.offsets.apply(b'{"orders@readers":{"0":9}}')
    machine.running.state_index = machine.book.line.end
    assert machine.look() == []
    machine.alone.begin()
    machine.running.state_index = machine.book.line.end - 1
    assert machine.look() == [NAME]  # the one of several has seen this state


def saved(machine, offset, index=None):
    """Have the broker save its tables; return what is found."""
    findings = Findings()
    PlainSaved(machine.disk, machine, findings)
    machine.disk.make_directories(DIRECTORY)
    end = machine.book.line.end - 1 if index is None else index
    files = {
        "topics": b'{"ledgerIndex":1,"topicConfigTable":{}}',
        "subscriptionGroup": b'{"subscriptionGroupTable":{}}',
        "delayOffset": b'{"offsetTable":{4:7}}',
        "consumerOffset": b'{"offsetTable":{"%s":{0:%d}}}' % (KEY.encode(), offset),
        "appliedIndex": b'{"appliedIndex":%d}' % end,
    }
    for name, text in files.items():
        machine.disk.replace(f"{DIRECTORY}/{name}.json", text)
    return None if findings.first is None else findings.first.oracle


def with_progress():
    machine = Machine()
    machine.put("delivered", b"[3,6]")
    machine.commit(4)
    return machine


def test_tables_are_saved_as_the_log_says():
    assert saved(with_progress(), 4) is None
    assert saved(with_progress(), 3) == SavedTables.name


def test_what_a_log_has_that_lost_its_end_is_not_judged():
    machine = with_progress()
    machine.judged = None
    assert saved(machine, 3) is None


def test_what_is_saved_is_judged_up_to_the_entry_that_is_named():
    machine = with_progress()
    end = machine.book.line.end - 1
    machine.commit(8)
    assert saved(machine, 4, end) is None
    assert saved(machine, 8, end) == SavedTables.name


@pytest.mark.parametrize("is_alone", [True, False])
def test_queues_end_where_the_log_says(is_alone):
    machine = Machine()
    machine.put()
    first = machine.book.line.end - 1
    machine.commit(1)
    machine.put()
    last = machine.book.line.end - 1
    ends = partial(ends_copied, machine.book, machine.broker)
    if is_alone:
        ends = partial(ends_alone, machine.disk, machine)
    assert list(ends(first, 0)) == [(*QUEUE, 1)]
    assert list(ends(last, 0)) == [(*QUEUE, 2)]
    assert not list(ends(last + 1, 0))
    machine.store._queues.by_name.clear()
    assert not list(ends(last, 0))

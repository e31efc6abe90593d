"""What a broker serves: reads of the leader alone, pulls that are woken, offsets that stay."""

from types import SimpleNamespace

import pytest

from broker.pulls.long_polling import HeldPull, HoldTable
from broker.state.consumer_offset import ConsumerOffsetTable
from dledger.core.model import Role
from sim.oracles.base import Findings, Violation
from sim.oracles.replica import Change
from sim.oracles.serving import LOOK_TICKS, Serving

LEADS = (Role.LEADER, 3, -1, 0, 3, -1, -1)
FOLLOWS = (Role.FOLLOWER, 3, -1, 0, 3, -1, -1)


class Store:
    """A queue with so many messages."""

    def __init__(self, end=0):
        self.reader = self.writer = self
        self.writable = self.readable = True
        self.end = end

    def get(self, *place):
        return place

    def max_offset(self, topic, queue_id):
        return self.end


def broker(end=0):
    offsets = ConsumerOffsetTable()
    state = SimpleNamespace(revisions={"offset": 0})
    tables = SimpleNamespace(offsets=offsets, held=HoldTable(), state=state)
    controller = SimpleNamespace(store=Store(end), tables=tables)
    one = SimpleNamespace(name="n0", controller=controller, state=SimpleNamespace(tick=1, term=3))
    findings = Findings()
    serving = Serving(findings)
    serving.on_boot(one)
    return one, controller, serving, findings


@pytest.mark.parametrize("writable", [True, False])
def test_reads_belong_to_the_leader(writable):
    _, controller, _, findings = broker()
    controller.store.writable = writable
    assert controller.store.get("orders", 0, 7) == ("orders", 0, 7)
    assert (findings.first is None) == writable


@pytest.mark.parametrize("writable", [True, False])
def test_offsets_belong_to_the_leader(writable):
    _, controller, _, findings = broker()
    controller.store.writable = writable
    assert controller.tables.offsets.commit("g", "orders", 0, 7)
    assert (findings.first is None) == writable


def apply(controller, payload):
    controller.tables.offsets.apply(payload)
    controller.tables.state.revisions["offset"] += 1


def test_an_offset_that_was_taken_is_told_until_another_one_is_taken():
    one, controller, serving, _ = broker()
    offsets = controller.tables.offsets
    offsets.commit("g", "orders", 0, 7)
    (older,) = offsets.take_proposals()
    offsets.commit("g", "orders", 0, 8)
    (newer,) = offsets.take_proposals()
    for payload in (older, newer):
        apply(controller, payload)
        serving.on_change(one, Change(LEADS, LEADS, 0, 0))
    apply(controller, older)
    with pytest.raises(Violation, match="took 8 for g in orders/0, and tells 7"):
        serving.on_change(one, Change(LEADS, LEADS, 0, 0))


def test_offsets_of_a_leadership_end_with_it():
    one, controller, serving, findings = broker()
    offsets = controller.tables.offsets
    offsets.commit("g", "orders", 0, 7)
    offsets.drop_pending()
    apply(controller, b"{}")
    serving.on_change(one, Change(LEADS, LEADS, 0, 0))
    assert findings.first is None


def test_offsets_that_outlive_their_leadership_are_found():
    one, controller, serving, findings = broker()
    offsets = controller.tables.offsets
    offsets.drop_pending = lambda: None
    serving.on_boot(one)
    offsets.commit("g", "orders", 0, 7)
    offsets.drop_pending()
    assert findings.first is not None


def hold(controller, offset):
    connection = SimpleNamespace(id=1, closed=False)
    pull = HeldPull(connection, 1, 0, "orders", 0, offset, 32, None, 15_000)
    assert controller.tables.held.hold(pull)


@pytest.mark.parametrize(
    ("end", "writable", "is_fine"), [(7, True, True), (8, True, False), (7, False, False)]
)
def test_nobody_waits_for_what_is_there_or_for_who_does_not_lead(end, writable, is_fine):
    one, controller, serving, _ = broker(end)
    controller.store.writable = writable
    hold(controller, 7)
    serving.on_tick(one)
    one.state.tick += LOOK_TICKS - 1
    serving.on_tick(one)
    one.state.tick += 1
    change = Change(FOLLOWS, FOLLOWS, 0, 0)
    if is_fine:
        serving.on_change(one, change)
    else:
        with pytest.raises(Violation, match="holds a pull of orders/0@7"):
            serving.on_change(one, change)


@pytest.mark.parametrize(("seen", "is_fine"), [(7, False), (8, True)])
def test_a_pull_that_goes_back_to_waiting_has_seen_all_there_is(seen, is_fine):
    _, controller, _, findings = broker(7)
    hold(controller, 7)
    assert findings.first is None
    controller.store.end = 8
    (pull,) = controller.tables.held.arrived("orders", 0, 8)
    pull.offset = seen
    assert controller.tables.held.hold(pull)
    assert (findings.first is None) == is_fine


@pytest.mark.parametrize("how", ["answered", "closed", "forgotten"])
def test_a_pull_that_is_woken_is_answered(how):
    one, controller, serving, _ = broker(8)
    hold(controller, 7)
    (pull,) = controller.tables.held.arrived("orders", 0, 8)
    pull.connection.closed = how == "closed"
    if how == "answered":
        controller.store.get("orders", 0, 7, 32, 1024, None)
    one.state.tick += LOOK_TICKS
    if how == "forgotten":
        with pytest.raises(Violation, match="has woken a pull of orders/0@7"):
            serving.on_tick(one)
    else:
        serving.on_tick(one)


def test_a_pull_that_came_since_the_last_look_has_time():
    one, controller, serving, _ = broker(8)
    serving.on_tick(one)
    one.state.tick += LOOK_TICKS
    hold(controller, 7)
    serving.on_tick(one)

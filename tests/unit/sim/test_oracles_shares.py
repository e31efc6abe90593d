"""A broker counts of offsets, locks, halves, members and claims what it has."""

import json
from types import SimpleNamespace

import pytest

from broker.fair_share import FairShare
from broker.groups.claims import ClaimedQueue, Claims
from broker.groups.client_registry import (
    Client,
    ConsumerRegistry,
    GroupTraits,
    ProducerRegistry,
    Subscription,
)
from broker.pulls.long_polling import HoldTable
from broker.state.consumer_offset import ConsumerOffsetTable
from broker.state.queue_lock import QueueLockTable
from broker.transactions.halves import Half
from broker.transactions.table import HalfTable
from sim.oracles.base import Findings, Violation
from sim.oracles.shares import (
    CLAIMED,
    COUNTED,
    LEASED,
    LOOK_NS,
    PEERS,
    Looks,
    check_peers,
    look_at_shares,
)

GROUP = "g"
QUEUE = ClaimedQueue(GROUP, "orders", 0)


def member(number):
    connection = SimpleNamespace(id=number, remote=("10.0.3.1", 4_000 + number))
    return Client(connection=connection, client_id=f"c{number}", language=0, version=0,
                  last_seen_ms=0)  # fmt: skip


def broker():
    offsets = ConsumerOffsetTable()
    consumers = ConsumerRegistry()
    producers = ProducerRegistry(consumers._members.room)
    halves = HalfTable()
    halves.add(Half(0, 100, 1, 0, 0, 7, 9))
    assert offsets.commit(GROUP, "orders", 0, 5)
    offsets.apply(b'{"orders@g":{"0":5,"1":6}}')
    assert offsets.commit(GROUP, "orders", 1, 8)
    traits = GroupTraits(*("" for _ in GroupTraits.__struct_fields__))
    for number in (1, 2):
        assert consumers.register(GROUP, traits, member(number), [])
    producers.register("p", member(3))
    assert not consumers.claim(QUEUE, 1, anyway=False)
    tables = SimpleNamespace(
        offsets=offsets, locks=QueueLockTable(lambda: 0), consumers=consumers,
        producers=producers, held=HoldTable(),
    )  # fmt: skip
    processors = SimpleNamespace(transactions=SimpleNamespace(table=halves))
    node = SimpleNamespace(_transport=None)
    room = SimpleNamespace(
        _is_stalled=False, used=0, _share=FairShare(100), _flows=SimpleNamespace(_waiting={})
    )
    return SimpleNamespace(tables=tables, _processors=processors, node=node, _room=room)


def look(controller):
    try:
        look_at_shares(SimpleNamespace(name="n0", controller=controller, node=controller.node))
    except Violation as found:
        return found.oracle
    return None


def test_what_is_counted_is_what_is_there():
    one = broker()
    assert look(one) is None
    one.tables.consumers.unregister(GROUP, 1)
    one.tables.offsets.drop_pending()
    assert look(one) is None


@pytest.mark.parametrize(
    "share",
    [
        lambda one: one.tables.offsets.room,
        lambda one: one.tables.locks._room,
        lambda one: one.tables.consumers._members.room,
        lambda one: one.tables.consumers.claims._room,
        lambda one: one.tables.held._room,
        lambda one: one.tables.held._filters_room,
        lambda one: one._room._share,
        lambda one: one._processors.transactions.table.room,
        lambda one: one._processors.transactions.table.sources,
    ],
)
def test_what_is_counted_twice_is_found(share):
    one = broker()
    share(one).take(GROUP, 1)
    assert look(one) == COUNTED


def test_a_broker_without_a_group_is_looked_at_again_and_again():
    one, findings, due = broker(), Findings(), []
    looks = Looks(lambda *call: due.append(call), lambda: 7, lambda: [("b0", one)], findings)
    looks.look()
    assert [when for when, _ in due] == [7 + LOOK_NS]
    assert findings.first is None
    one.tables.offsets.room.take(GROUP, 1)
    due[-1][1]()
    assert findings.first.oracle == COUNTED
    assert len(due) == 2


def test_a_claim_is_of_a_member(monkeypatch):
    one = broker()
    monkeypatch.setattr(Claims, "end_all", lambda *_: None)
    one.tables.consumers.unregister(GROUP, 1)
    assert look(one) == CLAIMED
    one = broker()
    one.tables.consumers.claims._of.clear()
    assert look(one) == COUNTED


def test_what_has_run_out_lies_behind_nothing_that_holds():
    one = broker()
    locks = one.tables.locks
    for now_ms, queue in ((0, 0), (5, 1), (9, 0)):
        row = {"brokerName": "b", "queueId": queue, "topic": "orders"}
        change = {"group": GROUP, "clientId": "c", "queues": [row]}
        locks.apply_lock(json.dumps(change).encode(), now_ms)
    assert look(one) is None
    locks._leases = dict(reversed(locks._leases.items()))
    assert look(one) == LEASED


def test_what_a_group_subscribes_to_is_weighed_as_it_is():
    one = broker()
    traits = one.tables.consumers.get(GROUP).traits
    wanted = Subscription.parse("orders", "red || green", 2)
    assert one.tables.consumers.register(GROUP, traits, member(1), [wanted])
    assert look(one) is None
    one.tables.consumers.get(GROUP).subscriptions.clear()
    assert look(one) == COUNTED


@pytest.mark.parametrize(
    ("transport", "is_connected", "is_sound"),
    [(object(), True, True), (None, True, False), (None, False, True)],
)
@pytest.mark.parametrize("known", [True, False])
def test_a_connection_that_has_ended_is_kept_by_nobody(transport, is_connected, is_sound, known):
    inbound = SimpleNamespace(
        is_connected=is_connected, _transport=transport, sender="n1", remote="10.0.0.2:5000"
    )
    peers = SimpleNamespace(
        _inbound=[] if known else [inbound], _by_sender={"n1": inbound} if known else {}
    )
    if is_sound:
        check_peers("n0", peers)
    else:
        with pytest.raises(Violation, match=PEERS):
            check_peers("n0", peers)

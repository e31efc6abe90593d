"""What those are told who ask name servers, and where a group may begin by that."""

from types import SimpleNamespace

import pytest

from ledgermq.remoting.protocol.bodies import TopicConfig, TopicConfigWrapper
from namesrv.route_table import Registration, RouteTable
from sim.consumer_app import LateApp
from sim.faults.plan import LateGroup
from sim.oracles.base import Violation
from sim.oracles.routes import KEPT_NAME, Heard, check_kept
from sim.oracles.wire import Said

ASKER = "10.0.6.1"
KNOWN = b'{"brokerDatas":[],"queueDatas":[{"brokerName":"RaftGroup0","readQueueNums":8}]}'
OTHER = b'{"brokerDatas":[],"queueDatas":[{"brokerName":"BrokerAlone","readQueueNums":8}]}'


def heard(*answers, code=105, topic="orders"):
    routes = Heard("RaftGroup0")
    for body in answers:
        request = Said(code, {"topic": topic}, b"", 0, b"", asker=ASKER)
        routes.on_answer(None, request, Said(0 if body else 17, {}, body, 1, b""))
    return routes


@pytest.mark.parametrize(
    ("answers", "lacked"),
    [
        ((KNOWN,), False),
        ((b"",), True),
        ((b"", KNOWN), True),
        ((OTHER,), True),
        ((), False),
    ],
)
def test_topic_without_the_group_is_new_to_who_was_told_so(answers, lacked):
    routes = heard(*answers)
    assert routes.lacked(ASKER, "orders") == lacked
    assert not routes.lacked("10.0.6.2", "orders")
    assert not routes.lacked(ASKER, "others")


def test_other_answers_of_a_name_server_tell_nothing_of_a_topic():
    assert not heard(b"", code=106).lacked(ASKER, "orders")


def late(start, routes):
    """A late group for which queue 0 of the topic had 6 messages when it came."""
    app = LateApp.__new__(LateApp)
    answers = SimpleNamespace(times_may_fall=False, first_since=lambda _place, _since_ms: 4)
    app._validators = SimpleNamespace(group_answers=answers, routes=routes)
    app._late = LateGroup(start=start)
    app._address, app._since_ms, app._ends = ASKER, 0, {("orders", 0): 6}
    return app


@pytest.mark.parametrize(
    ("start", "answers", "first"),
    [
        ("last", (KNOWN,), 6),
        ("last", (b"", KNOWN), 0),
        ("first", (KNOWN,), 0),
        ("timestamp", (KNOWN,), 4),
        ("timestamp", (b"", KNOWN), 4),
    ],
)
def test_group_begins_where_it_says_unless_the_topic_was_new_to_it(start, answers, first):
    assert late(start, heard(*answers))._begins(("orders", 0)) == first


def registered():
    """A table with a broker that has gone and one that is there."""
    table = RouteTable()
    for number, name in enumerate(("g", "h")):
        config = TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4)
        topics = TopicConfigWrapper(topic_config_table={"orders": config})
        taken = table.register(
            Registration(
                cluster="c", broker_name=name, broker_id=0, addr=f"{name}:1", raft_term=3,
                topics=topics, connection=number,
            ),
            0,
        )  # fmt: skip
        assert not taken.refusal
        assert not list(taken.rest or ())
    table.on_connection_closed(0)
    return table


def test_a_table_counts_what_it_has():
    check_kept("ns0", registered())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda table: table.rows._living.update({9: None}),
        lambda table: table.rows.topics["orders"].update({9: None}),
        lambda table: setattr(table.rows, "count", 2),
        lambda table: setattr(table.rows, "names_bytes", 0),
        lambda table: setattr(table, "_names_bytes", 0),
        lambda table: table._by_connection.clear(),
    ],
)
def test_what_a_table_counts_otherwise_is_found(spoil):
    table = registered()
    spoil(table)
    with pytest.raises(Violation, match=KEPT_NAME):
        check_kept("ns0", table)

"""A route that is told is what brokers have registered."""

import json
import zlib
from types import SimpleNamespace

import pytest

from sim.oracles.route_model import EXPIRY_NS, GONE_NS, REGISTER, UNREGISTER, RouteModel
from sim.oracles.wire import Said

ORDERS = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
TOLD = ({"g": {"0": "n0:1"}}, {"g": (4, 4, 6)})
NOTHING = ({}, {})


class Server:
    """A name server that hears brokers, and the model of its table."""

    def __init__(self):
        self.model, self.now_ns = RouteModel(), 1

    def hear(self, tap, request, *, is_success=True, took_ns=0):
        self.now_ns += 1
        request.at_ns = self.now_ns
        self.model.on_request(tap, request)
        if is_success is not None:
            self.now_ns += took_ns
            self.model.on_answer(tap, request, self.now_ns, is_success=is_success)

    def register(self, addr="n0:1", number="0", tap=None, *, compressed=False, **more):
        tap = tap or SimpleNamespace(is_closed=False)
        table = {"topicConfigSerializeWrapper": {"topicConfigTable": {"orders": ORDERS}}}
        body = json.dumps(table).encode()
        fields = {"brokerName": "g", "brokerAddr": addr, "brokerId": number}
        if compressed:
            body, fields["compressed"] = zlib.compress(body), "true"
        self.hear(tap, Said(REGISTER, fields, body, 0, b""), **more)
        return tap

    def wrong(self, told=TOLD):
        self.now_ns += 1
        return self.model.find_wrong("orders", told, self.now_ns)


@pytest.mark.parametrize("compressed", [False, True])
def test_what_was_registered_is_told(compressed):
    server = Server()
    assert not server.wrong(NOTHING)
    server.register(compressed=compressed)
    server.register("n1:1", "2")
    assert not server.wrong(({"g": {"0": "n0:1", "2": "n1:1"}}, {"g": (4, 4, 6)}))
    assert "registered is" in server.wrong(TOLD)


@pytest.mark.parametrize(
    "told",
    [NOTHING, ({"g": {"0": "n9:1"}}, {"g": (4, 4, 6)}), (TOLD[0], {"g": (8, 4, 6)})],
    ids=["nothing", "address", "queues"],
)
def test_what_was_not_registered_is_wrong(told):
    server = Server()
    server.register()
    assert "registered is" in server.wrong(told)


def test_a_broker_that_moves_has_one_place():
    server = Server()
    tap = server.register()
    server.register(number="3", tap=tap)
    assert server.wrong(TOLD)
    assert not server.wrong(({"g": {"3": "n0:1"}}, {"g": (4, 4, 6)}))


def test_who_leaves_or_has_gone_is_told_no_more():
    server = Server()
    tap = server.register()
    server.hear(tap, Said(UNREGISTER, {"brokerName": "g", "brokerAddr": "n0:1"}, b"", 0, b""))
    assert server.wrong(TOLD)
    tap = server.register()
    tap.is_closed = True
    assert not server.wrong(TOLD), "it has just gone"
    server.now_ns += 2 * GONE_NS
    assert server.wrong(TOLD)
    assert not server.wrong(NOTHING)


def test_a_group_that_was_gone_begins_anew():
    server = Server()
    tap = server.register()
    tap.is_closed = True
    server.wrong()
    server.register(number="2")
    assert not server.wrong(NOTHING), "no master has said which topics there are"


@pytest.mark.parametrize("how", ["under way", "silent", "unreadable", "an operator"])
def test_what_is_not_known_is_not_judged(how):
    server = Server()
    tap = server.register()
    if how == "under way":
        server.register("n1:1", tap=tap, is_success=None)
    elif how == "silent":
        server.now_ns += EXPIRY_NS
    elif how == "unreadable":
        fields = {"brokerName": "g", "brokerAddr": "n0:1", "brokerId": "0"}
        server.hear(tap, Said(REGISTER, fields, b"[" * 100_000, 0, b""))
    else:
        server.hear(tap, Said(216, {}, b"", 0, b""))
    assert not server.wrong(NOTHING)


class EndsBetween:
    """A connection that ends while a registration over another one is looked at."""

    def __init__(self):
        self.looks = 0

    @property
    def is_closed(self):
        self.looks += 1
        return self.looks > 1


def test_topics_of_before_are_unclear_where_a_connection_ends_during_a_registration():
    server = Server()
    server.register(tap=EndsBetween())
    server.register(took_ns=5)
    assert not server.wrong(TOLD)
    assert not server.wrong(NOTHING)

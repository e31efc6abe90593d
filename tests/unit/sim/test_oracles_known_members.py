"""Members that are told are those whose heartbeats were taken, and who have not gone."""

import json
from types import SimpleNamespace

import pytest

from sim.oracles.base import Violation
from sim.oracles.known_members import GONE_NS, HEARTBEAT, LEAVE, LIST, NAME, KnownMembers
from sim.oracles.wire import Said

POLITE, RUDE = "10.0.2.1", "10.0.9.1"
MEMBERS, GROUP = "consumerIdList", "readers"


class End:
    """A connection."""

    def __init__(self, other=POLITE):
        self.other, self.is_closed = other, False


class Broker:
    """A broker, and who is connected to it."""

    def __init__(self):
        self.now_ns = 1
        replica = SimpleNamespace(name="n0", hangs=lambda: False)
        self.oracle = KnownMembers(replica, frozenset({POLITE}))

    def ask(self, tap, code, fields=None, body=b"", answer=0, told=b""):
        self.now_ns += 1
        request = Said(code, fields or {}, body, self.now_ns, b"")
        self.oracle.on_request(tap, request)
        self.now_ns += 1
        self.oracle.on_answer(tap, request, Said(answer, {}, told, self.now_ns, b""))

    def join(self, client, source=POLITE, answer=0):
        tap = End(source)
        body = json.dumps({"clientID": client, "consumerDataSet": [{"groupName": GROUP}]})
        self.ask(tap, HEARTBEAT, body=body.encode(), answer=answer)
        return tap

    def tell(self, *clients):
        told = json.dumps({MEMBERS: list(clients)}).encode()
        fields = {"consumerGroup": GROUP}
        self.ask(End(), LIST, fields, told=told, answer=0 if clients else 1)


def test_those_who_have_come_are_told_until_they_go():
    broker = Broker()
    broker.tell()
    first, second = broker.join("a"), broker.join("b")
    broker.tell("a", "b")
    first.is_closed = True
    broker.tell("a", "b")  # it has just gone
    broker.tell("b")
    broker.ask(second, LEAVE, {"consumerGroup": GROUP})
    broker.now_ns += 2 * GONE_NS
    broker.tell()


def test_who_is_refused_or_rude_may_be_told_or_not():
    broker = Broker()
    broker.join("a", answer=1)
    broker.tell()
    broker.tell("a")
    rude = Broker()
    rude.join("a", source=RUDE)
    rude.tell("b", "c")


@pytest.mark.parametrize("how", ["missing", "stranger", "gone"])
def test_a_list_that_is_wrong_is_a_violation(how):
    broker = Broker()
    tap = broker.join("a")
    broker.join("b")
    told = {"missing": ["a"], "stranger": ["a", "b", "c"], "gone": ["a", "b"]}[how]
    if how == "gone":
        tap.is_closed = True
        broker.tell("b")
        broker.now_ns += 2 * GONE_NS
    with pytest.raises(Violation, match=NAME):
        broker.tell(*told)


@pytest.mark.parametrize("body", [b"[" * 100_000, b"\xff", b"[]", b"{}"])
def test_what_nobody_can_read_says_nothing(body):
    broker = Broker()
    broker.ask(End(), HEARTBEAT, body=body)
    broker.tell()

"""A reply goes over the connection on which who waits for it has come last."""

import json
from types import SimpleNamespace

import pytest

from sim.oracles.base import Violation
from sim.oracles.known_members import HEARTBEAT, LEAVE, SILENT_NS, KnownMembers
from sim.oracles.replying import NAME, PUSH_REPLY
from sim.oracles.wire import Said

POLITE, RUDE = "10.0.2.1", "10.0.9.1"
ASKERS, CLIENT = "askers", "10.0.2.1@x0-1-ask0"


class Connection:
    """A broker's end of one."""

    def __init__(self, port, other=POLITE):
        self.other, self.is_closed = other, False
        self.end = SimpleNamespace(remote=(other, port))


class Broker:
    """A broker that is told who comes, and replies."""

    def __init__(self):
        self.now_ns, self._port = 1, 32_768
        replica = SimpleNamespace(name="n0", hangs=lambda: False)
        self.oracle = KnownMembers(replica, frozenset({POLITE}))

    def ask(self, tap, code, body=b"", answer=0, fields=None):
        self.now_ns += 1
        request = Said(code, fields or {}, body, self.now_ns, b"")
        self.oracle.on_request(tap, request)
        self.now_ns += 1
        if answer is not None:
            self.oracle.on_answer(tap, request, Said(answer, {}, b"", self.now_ns, b""))
        return request

    def join(self, tap=None, group=ASKERS, client=CLIENT, answer=0, other=POLITE):
        self._port += 1
        tap = tap or Connection(self._port, other)
        said = {"clientID": client, "producerDataSet": [{"groupName": group}]}
        self.ask(tap, HEARTBEAT, json.dumps(said).encode(), answer)
        return tap

    def reply(self, tap, client=CLIENT, code=PUSH_REPLY):
        self.now_ns += 1
        fields = {"properties": f"a\x01b\x02REPLY_TO_CLIENT\x01{client}\x02"}
        self.oracle.replying.on_pushed(tap, Said(code, fields, b"", self.now_ns, b""))


def test_a_reply_over_the_last_connection_is_right():
    broker = Broker()
    first = broker.join()
    broker.reply(first)
    last = broker.join()
    broker.join(first)  # it says so again, and has come no later by that
    broker.reply(last)


def test_a_reply_over_a_former_connection_is_a_violation():
    broker = Broker()
    first = broker.join()
    broker.join()
    broker.reply(first, code=PUSH_REPLY + 1)
    broker.reply(first, client="somebody else")
    with pytest.raises(Violation, match="over") as violated:
        broker.reply(first)
    assert violated.value.oracle == NAME


@pytest.mark.parametrize("how", ["refused", "unanswered", "closed", "left", "silent", "rude"])
def test_a_connection_that_may_be_none_for_the_broker_does_not_count(how):
    broker = Broker()
    first = broker.join()
    answer = {"refused": 1, "unanswered": None}.get(how, 0)
    last = broker.join(answer=answer, other=RUDE if how == "rude" else POLITE)
    last.is_closed = how == "closed"
    if how == "left":
        broker.ask(last, LEAVE, fields={"producerGroup": ASKERS})
    broker.now_ns += SILENT_NS * (how == "silent")
    broker.reply(first)


def test_of_two_that_may_have_come_in_either_order_each_may_be_the_last():
    broker = Broker()
    first, last = broker.join(answer=None), Connection(1)
    said = json.dumps({"clientID": CLIENT, "producerDataSet": [{"groupName": ASKERS}]}).encode()
    earlier = broker.ask(first, HEARTBEAT, said, None)
    broker.join(last)
    broker.oracle.on_answer(first, earlier, Said(0, {}, b"", broker.now_ns, b""))
    broker.reply(first)
    broker.reply(last)


@pytest.mark.parametrize("how", ["left", "forgotten", "another group"])
def test_who_comes_again_over_a_former_connection_has_come_last_there(how):
    broker = Broker()
    first = broker.join()
    last = broker.join()
    if how == "left":
        broker.ask(first, LEAVE, fields={"producerGroup": ASKERS})
    broker.now_ns += SILENT_NS * (how == "forgotten")
    broker.join(last)
    broker.join(first, group="others" if how == "another group" else ASKERS)
    broker.reply(first)

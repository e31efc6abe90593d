"""What a name server answers is what its table says; headers of both kinds are read."""

import json
from types import SimpleNamespace

import pytest

from ledgermq.remoting.protocol.bodies import TopicConfig, TopicConfigWrapper, encode_body
from ledgermq.remoting.protocol.codes import SerializeType
from mutants.patches import ALL
from mutants.planting import planted
from namesrv.route_table import Registration, RouteTable
from sim.clients.wire import frame_of
from sim.oracles.base import Findings, Violation
from sim.oracles.route_answers import REFUSALS_MAX, REFUSED_NAME, RouteAnswers
from sim.oracles.route_model import RouteModel
from sim.oracles.wire import Said, Tap


def register(routes, queues=4, addr="n0:1", term=3):
    config = TopicConfig(topic_name="orders", read_queue_nums=queues, write_queue_nums=queues)
    wrapper = TopicConfigWrapper(topic_config_table={"orders": config})
    wrapper.data_version.counter = queues
    routes.register(
        Registration(
            cluster="c", broker_name="g", broker_id=0, addr=addr, raft_term=term, topics=wrapper
        ),
        0,
    )  # fmt: skip


class Server:
    """A name server, and somebody who asks it for the route of a topic."""

    def __init__(self):
        self.table = RouteTable()
        self.validator = RouteAnswers("ns0", {"ns0": self})
        # Here the table changes behind the back of those who listen, as by an operator.
        self.validator.on_request(None, Said(216, {}, b"", 0, b""))

    def answer(self, topic="orders"):
        route = self.table.route(topic)
        return (17, b"") if route is None else (0, encode_body(route))

    def hear(self, topic="orders"):
        self.request = Said(105, {"topic": topic}, b"", 0, b"")
        self.validator.on_request(None, self.request)

    def say(self, answer):
        self.validator.on_answer(None, self.request, Said(answer[0], {}, answer[1], 0, b""))


def test_an_answer_of_the_table_as_it_is_or_was_a_moment_ago_is_sound():
    server = Server()
    server.hear()
    server.say(server.answer())
    register(server.table)
    server.hear()
    server.say(server.answer())
    server.hear()
    before = server.answer()
    register(server.table, queues=6)
    server.say(before)
    server.hear("none")
    server.say(server.answer("none"))


@pytest.mark.parametrize(
    "change", [{"queues": 6}, {"addr": "n1:1", "term": 4}, None], ids=["queues", "leader", "gone"]
)
def test_an_answer_that_was_kept_for_too_long_is_a_violation(change):
    server = Server()
    register(server.table)
    old = server.answer()
    if change is None:
        server.table.unregister("g", "n0:1")
    else:
        register(server.table, **change)
    server.hear()
    with pytest.raises(Violation, match="A45 answer"):
        server.say(old)


def test_a_topic_that_is_told_to_nobody_is_missed():
    server = Server()
    register(server.table)
    server.hear()
    with pytest.raises(Violation, match="A45 answer"):
        server.say((17, b""))


def test_a_table_that_is_not_as_was_registered_is_a_violation():
    server, end = Server(), End()
    server.validator._model = (None, RouteModel())
    fields = {"brokerName": "g", "brokerAddr": "n0:1", "brokerId": "0"}
    table = {"topicConfigTable": {"orders": {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6}}}
    body = json.dumps({"topicConfigSerializeWrapper": table}).encode()
    request = Said(103, fields, body, 0, b"")
    register(server.table)
    server.validator.on_request(end, request)
    server.validator.on_answer(end, request, Said(0, {}, b"", 0, b""))
    server.hear()
    server.say(server.answer())
    register(server.table, queues=6)
    server.hear()
    with pytest.raises(Violation, match="A45 route otherwise than was registered"):
        server.say(server.answer())


class End:
    """A connection of a broker to a name server."""

    is_closed = False


def test_who_registered_is_there_as_long_as_its_connection_is():
    server, end = Server(), End()
    request = Said(103, {"brokerAddr": "n0:1"}, b"", 0, b"")
    register(server.table)
    server.validator.on_answer(end, request, Said(0, {}, b"", 7, b""))
    server.validator.check_present()
    server.table.unregister("g", "n0:1")
    with pytest.raises(Violation, match="A45 registered"):
        server.validator.check_present()
    end.is_closed = True
    server.validator.check_present()


@pytest.mark.parametrize("how", ["refused", "leaves", "another life of the server"])
def test_who_is_not_there_by_right_is_not_missed(how):
    server, end = Server(), End()
    request = Said(103, {"brokerAddr": "n0:1"}, b"", 0, b"")
    server.validator.on_answer(end, request, Said(1 if how == "refused" else 0, {}, b"", 7, b""))
    if how == "leaves":
        server.validator.on_request(end, Said(104, {"brokerAddr": "n0:1"}, b"", 0, b""))
    if how == "another life of the server":
        server.validator._servers = {"ns0": Server()}
    server.validator.check_present()


def test_nobody_takes_leave_for_another_one():
    server, end = Server(), End()
    register(server.table)
    request = Said(103, {"brokerAddr": "n0:1"}, b"", 0, b"")
    server.validator.on_answer(end, request, Said(0, {}, b"", 7, b""))
    server.validator.on_request(End(), Said(104, {"brokerAddr": "n0:1"}, b"", 0, b""))
    server.table.unregister("g", "n0:1")
    with pytest.raises(Violation, match="A45 registered"):
        server.validator.check_present()


class Listener:
    """Keeps what it hears."""

    def __init__(self):
        self.heard = []

    def on_request(self, tap, request):
        self.heard.append((request.code, dict(request.fields), request.body))


END = SimpleNamespace(remote=("10.0.0.1", 1), local=("10.0.0.2", 2))


@pytest.mark.parametrize("kind", [SerializeType.JSON, SerializeType.ROCKETMQ])
def test_headers_of_both_kinds_are_read(kind):
    listener, findings = Listener(), Findings()
    tap = Tap(listener, END, lambda: 0, findings, asks=False)
    fields = {"b": "orders", "i": "KEYS\x011\x02ü\x01v", "d": ""}
    frames = b"".join(
        frame_of(310, opaque, fields, body=b"body", serialize_type=kind) for opaque in (3, 4)
    )
    for at in range(0, len(frames), 7):
        tap.pass_on(frames[at : at + 7], leaves=False)
    assert findings.first is None
    assert [(code, body) for code, _, body in listener.heard] == [(310, b"body")] * 2
    told = {name: value for name, value in listener.heard[0][1].items() if value}
    assert told == {name: value for name, value in fields.items() if value}
    assert sorted(tap.open) == [3, 4]


def test_a_header_that_nobody_can_read_ends_listening():
    for header in (b"", b"\x01\x36", b"\x00" * 13 + b"\x00\x00\x00\x09", json.dumps([]).encode()):
        tap = Tap(Listener(), END, lambda: 0, Findings(), asks=False)
        head = (1 << 24 | len(header)).to_bytes(4)
        tap.pass_on((4 + len(header)).to_bytes(4) + head + header, leaves=False)
        assert tap._is_blind


def test_a_broker_that_is_told_at_two_places_is_a_violation():
    server = Server()
    register(server.table)
    body = json.dumps(
        {
            "brokerDatas": [{"brokerName": "g", "brokerAddrs": {"0": "n0:1", "2": "n0:1"}}],
            "queueDatas": [],
        }
    )
    server.hear()
    server.validator._say = lambda _topic: server.request.note
    server.request.note = ({"g": {"0": "n0:1", "2": "n0:1"}}, {})
    with pytest.raises(Violation, match="A45 a broker at two places"):
        server.say((0, body.encode()))


def claim(server, addr, term, broker_id="0", end=None):
    """Have a broker say who it is, and the server take it."""
    fields = {
        "brokerAddr": addr, "brokerName": "g", "brokerId": broker_id, "raftTerm": str(term),
    }  # fmt: skip
    request = Said(103, fields, b"", 0, b"")
    server.validator.on_request(end, request)
    if broker_id == "0":
        with planted(ALL["older-term-takes-the-route"]):
            register(server.table, addr=addr, term=term)
    server.validator.on_answer(end or End(), request, Said(0, {}, b"", 7, b""))


@pytest.mark.parametrize("between", ["nothing", "it follows", "its connection ends", "it is gone"])
def test_a_leader_of_an_older_term_takes_no_place_that_is_held(between):
    server, end = Server(), End()
    claim(server, "n0:1", 4, end=end)
    claim(server, "n0:1", 5, end=end)
    if between == "it follows":
        claim(server, "n0:1", -1, "2", end=end)
    elif between == "its connection ends":
        end.is_closed = True
    elif between == "it is gone":
        server.table.unregister("g", "n0:1")
    if between == "nothing":
        with pytest.raises(Violation, match="A45 leader of an older term taken"):
            claim(server, "n1:1", 4)
    else:
        claim(server, "n1:1", 4)
    claim(server, "n2:1", 6)


def refused(times, broker_id="1", code=1):
    """A follower of a known leader registers, and is told the same each time."""
    server = Server()
    listener = server.validator
    tap = SimpleNamespace(is_closed=False)
    leads = {"brokerName": "g", "brokerAddr": "n0:1", "brokerId": "0", "raftTerm": "3"}
    follows = Said(103, leads | {"brokerAddr": "n1:1", "brokerId": broker_id}, b"", 0, b"")
    for request, answer in ((Said(103, leads, b"", 0, b""), 0), *((follows, code),) * times):
        listener.on_request(tap, request)
        listener.on_answer(tap, request, Said(answer, {}, b"", 0, b""))


@pytest.mark.parametrize(
    ("times", "broker_id", "code", "is_sound"),
    [
        (REFUSALS_MAX, "1", 1, True),
        (REFUSALS_MAX + 1, "1", 1, False),
        (REFUSALS_MAX + 1, "1", 0, True),
        (REFUSALS_MAX + 1, "1", 2, True),
        (REFUSALS_MAX + 1, "0", 1, True),
    ],
)
def test_a_follower_is_not_refused_again_and_again(times, broker_id, code, is_sound):
    if is_sound:
        refused(times, broker_id, code)
    else:
        with pytest.raises(Violation, match=REFUSED_NAME):
            refused(times, broker_id, code)

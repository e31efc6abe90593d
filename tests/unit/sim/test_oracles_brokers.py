"""What brokers say on the wire is compared with the log; frames are read from bytes."""

import json
from types import SimpleNamespace
from zlib import crc32

import pytest

from chaos.history.segment import EntryRow
from dledger.core.model import Role
from ledgermq.remoting.protocol.message import BatchElement, MessageExt, encode_batch, encode_record
from sim.oracles.base import Findings, Violation
from sim.oracles.broker_end import BrokerEnd
from sim.oracles.brokers import Brokers
from sim.oracles.fidelity import NAME as STORED
from sim.oracles.model import Held, Model, Statement
from sim.oracles.records import id_head
from sim.oracles.replica import Mark
from sim.oracles.tables import LEASE_MS
from sim.oracles.truth import Truth
from sim.oracles.wire import Tap

ASKER = "10.0.2.1"
COUNT = 4
SIZE = 48


def frame(code, opaque, fields, body=b"", flag=0):
    header = json.dumps({"code": code, "opaque": opaque, "flag": flag, "extFields": fields})
    head = header.encode()
    return (
        (4 + len(head) + len(body)).to_bytes(4) + len(head).to_bytes(4) + head + body
    )  # fmt: skip


def record(offset, body=b"body", flag=0, born=7, host=b"\x0a\0\x02\x01\0\0\0\1", more=b""):
    text = b"KEYS\x01%d\x02CLUSTER\x01c" % offset + more
    return encode_record(
        MessageExt(
            "orders", 0, flag, 0, offset, 1000 * offset + 48, born, host, 5, bytes(8), 0, 0,
            body, text,
        )
    )  # fmt: skip


class End:
    """A transport."""

    remote, local, _gone = (ASKER, 5), ("10.0.0.1", 10911), False

    def is_closing(self):
        return False

    def is_reading(self):
        return True


class Broker:
    """A leader with `COUNT` messages, which has dropped the first ``begin``."""

    def __init__(self, begin=0, **stored):
        self.truth = Truth(("n0",))
        self.findings = Findings()
        self.rate_changed_ns = self.now_ms = 0
        entries = {}
        rows = self.truth.queues["orders", 0]
        for offset in range(COUNT):
            data = record(offset, **(stored if offset == 1 else {}))
            row = EntryRow(
                offset, 1, 1000 * offset, 0, len(data), True, "message", "orders", 0, offset
            )
            rows.append(row)
            self.truth.positions[row.pos + 48] = row
            self.truth.crcs[offset, 1] = crc32(data)
            entries[offset] = bytes(48) + data
        self.model = Model()
        tables = SimpleNamespace(model_of=lambda _replica: self.model, lease_ms=LEASE_MS)
        self.brokers = Brokers(self.truth, tables, frozenset({ASKER}))
        self.replica = SimpleNamespace(
            name="n0", is_up=True, is_corrupt=False, incarnation=1, tick=5, tick_ms=50, boot_ns=0,
            wait_ack_ms=0, id_head=id_head("10.0.0.1", 10911), deferred=[],
            state=SimpleNamespace(
                role=Role.LEADER, term=1, tick=5, log=SimpleNamespace(commit_index=COUNT)
            ),
            store=SimpleNamespace(first_index=begin),
            applied_index=COUNT - 1,
            disk=SimpleNamespace(is_watched=False), hangs=lambda: False,
            rate_changed_ns=lambda: self.rate_changed_ns, now_ms=lambda: self.now_ms,
            mark=lambda index: Mark(1, 1000 * index, 0, index),
            entry_bytes=lambda mark: entries[mark.crc],
            controller=SimpleNamespace(
                store=SimpleNamespace(writer=SimpleNamespace(writable=False)),
                tables=SimpleNamespace(
                    consumers=SimpleNamespace(groups=list),
                    topics=SimpleNamespace(get=lambda _topic: True),
                    locks=SimpleNamespace(
                        _leases={("g", "orders", 0): SimpleNamespace(client_id="c1")}
                    ),
                ),
            ),
        )  # fmt: skip
        listener = BrokerEnd(self.brokers, self.replica)
        self.tap = Tap(listener, End(), lambda: 0, self.findings, asks=False)
        self.brokers.add(self.replica, self.tap)

    def hear(self, code, fields, body=b""):
        self.tap.pass_on(frame(code, 3, fields, body), leaves=False)

    def say(self, code, fields, body=b""):
        self.tap.pass_on(frame(code, 3, fields, body, flag=1), leaves=True)
        for validator in self.replica.deferred:
            validator()
        if self.findings.first is not None:
            raise self.findings.first


def pull(offset=1, **more):
    fields = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "queueOffset": str(offset)}
    return {**fields, "subscription": "*", "commitOffset": "0", **more}


def found(next_offset, begin="0", end=str(COUNT)):
    return {"nextBeginOffset": str(next_offset), "minOffset": begin, "maxOffset": end}


def test_no_more_is_read_than_was_asked_for():
    broker = Broker()
    broker.hear(11, pull(maxMsgNums="2"))
    broker.say(0, found(3), record(1) + record(2))
    broker.hear(11, pull(maxMsgNums="1"))
    with pytest.raises(Violation, match="1 were asked for"):
        broker.say(0, found(3), record(1) + record(2))


@pytest.mark.parametrize(
    ("flags", "waited_ms", "is_sound"),
    [("2", 1_000, True), ("2", 900, False), ("0", 0, True)],
)
def test_who_may_wait_waits_until_the_time_is_up(flags, waited_ms, is_sound):
    broker = Broker()
    broker.hear(11, pull(COUNT, sysFlag=flags, suspendTimeoutMillis="1000"))
    broker.now_ms += waited_ms
    if is_sound:
        broker.say(19, found(COUNT))
        return
    with pytest.raises(Violation) as caught:
        broker.say(19, found(COUNT))
    assert caught.value.oracle == Brokers.soon_name


def test_an_answer_with_the_records_of_the_log_is_sound():
    broker = Broker()
    broker.hear(11, pull())
    broker.say(0, found(3), record(1) + record(2))


@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        (0, found(3), record(1) + record(2, body=b"else")),
        (0, found(3), record(2)),
        (0, found(4), record(1) + record(2)),
        (0, found(3, begin="1"), record(1) + record(2)),
        (0, found(3, end="9"), record(1) + record(2)),
        (0, found(3, end="3"), record(1) + record(2)),
        (0, found(3), record(1) + record(2)[:-4]),
        (19, found(1), b""),
    ],
)
def test_a_pull_that_is_answered_with_something_else_is_a_violation(code, fields, body):
    broker = Broker()
    broker.hear(11, pull())
    with pytest.raises(Violation):
        broker.say(code, fields, body)


QUEUE = {"topic": "orders", "queueId": "0"}


@pytest.mark.parametrize(
    ("code", "told", "begin", "is_sound"),
    [(30, COUNT, 0, True), (30, COUNT - 1, 0, False), (30, COUNT + 1, 0, False),
     (31, 2, 2, True), (31, 3, 2, False), (31, 0, 0, True), (31, 1, 0, False)],
)  # fmt: skip
def test_where_a_queue_begins_and_ends_is_what_the_log_says(code, told, begin, is_sound):
    broker = Broker(begin)
    broker.hear(code, QUEUE)
    if is_sound:
        broker.say(0, {"offset": str(told)})
    else:
        with pytest.raises(Violation, match="A44"):
            broker.say(0, {"offset": str(told)})


@pytest.mark.parametrize("code", [11, 30, 31])
def test_who_does_not_lead_answers_no_such_question(code):
    broker = Broker()
    broker.replica.state.role, broker.replica.tick = Role.FOLLOWER, -1
    broker.hear(code, pull() if code == 11 else QUEUE)
    with pytest.raises(Violation, match="A40"):
        broker.say(0, {"offset": "0", **found(3)})


def test_an_answer_comes_in_time():
    broker = Broker()
    broker.hear(11, pull(4, sysFlag="2", suspendTimeoutMillis="1000"))
    broker.replica.state.tick += 50
    broker.brokers.on_tick(broker.replica)
    broker.replica.state.tick += 20
    with pytest.raises(Violation, match="A41"):
        broker.brokers.on_tick(broker.replica)


def test_nothing_is_answered_twice():
    broker = Broker()
    broker.hear(30, QUEUE)
    broker.say(0, {"offset": str(COUNT)})
    broker.replica.deferred.clear()
    with pytest.raises(Violation, match="once more"):
        broker.say(0, {"offset": str(COUNT)})


@pytest.mark.parametrize(("body", "code", "is_sound"), [
    (record(2), 0, True), (record(1), 0, False), (b"", 1, False),
])  # fmt: skip
def test_a_message_is_found_by_its_id(body, code, is_sound):
    broker = Broker()
    broker.hear(33, {"offset": "2048"})
    if is_sound:
        broker.say(code, {}, body)
    else:
        with pytest.raises(Violation):
            broker.say(code, {}, body)


def send(**more):
    properties = "KEYS\x011\x02WAIT\x01true"
    return {"b": "orders", "e": "0", "f": "0", "g": "7", "h": "0", "i": properties, **more}


def told(*offsets, first=None):
    ids = ",".join(id_head("10.0.0.1", 10911) + f"{1000 * at + 48:016X}" for at in offsets)
    return {
        "msgId": ids,
        "queueId": "0",
        "queueOffset": str(offsets[0] if first is None else first),
    }


def test_an_acknowledgement_tells_where_the_message_lies():
    broker = Broker()
    broker.hear(310, send(), b"body")
    broker.say(0, told(1))


@pytest.mark.parametrize("fields", [told(2, first=1), told(1, first=9), told(1, 1, first=1)])
def test_an_acknowledgement_with_another_place_or_id_is_a_violation(fields):
    broker = Broker()
    broker.hear(310, send(), b"body")
    with pytest.raises(Violation):
        broker.say(0, fields)


@pytest.mark.parametrize(
    "stored",
    [{"body": b"else"}, {"flag": 1}, {"born": 8}, {"host": bytes(8)}, {"more": b"\x02X\x011"}],
)
def test_what_is_stored_is_what_was_sent(stored):
    broker = Broker(**stored)
    broker.hear(310, send(), b"body")
    with pytest.raises(Violation, match=STORED):
        broker.say(0, told(1))


def test_messages_of_a_batch_are_compared_one_by_one():
    elements = [BatchElement(b"body", b"KEYS\x01%d" % at, 0) for at in (1, 2)]
    for batch, is_sound in ((elements, True), (elements[::-1], False), (elements[:1], False)):
        broker = Broker()
        broker.hear(320, send(i="WAIT\x01true", m="true"), encode_batch(batch))
        if is_sound:
            broker.say(0, told(1, 2))
        else:
            with pytest.raises(Violation):
                broker.say(0, told(1, 2))


@pytest.mark.parametrize(("group", "offset", "is_sound"), [("g", 3, True), ("g", 2, False)])
def test_an_offset_that_nobody_committed_is_not_told(group, offset, is_sound):
    broker = Broker()
    commit = {"consumerGroup": "g", **QUEUE, "commitOffset": "3"}
    broker.tap.pass_on(frame(15, 9, commit, flag=2), leaves=False)
    broker.hear(14, {"consumerGroup": group, **QUEUE})
    if is_sound:
        broker.say(0, {"offset": str(offset)})
    else:
        with pytest.raises(Violation):
            broker.say(0, {"offset": str(offset)})


@pytest.mark.parametrize(("writable", "is_sound"), [(False, False), (True, True)])
def test_who_follows_tells_what_its_log_says_once_its_broker_knows_that_it_does(writable, is_sound):
    broker = Broker()
    broker.replica.state.role = Role.FOLLOWER
    broker.replica.controller.store.writer.writable = writable
    broker.model.offsets = {"orders@g": {0: 2}}
    broker.hear(15, {"consumerGroup": "g", **QUEUE, "commitOffset": "3"})
    broker.hear(14, {"consumerGroup": "g", **QUEUE})
    if is_sound:
        broker.say(0, {"offset": "3"})
    else:
        with pytest.raises(Violation, match="the log has 2"):
            broker.say(0, {"offset": "3"})


def test_a_client_commits_no_offset_that_cannot_be():
    broker = Broker()
    broker.hear(15, {"consumerGroup": "g", **QUEUE, "commitOffset": "-1"})
    assert "A24" in str(broker.findings.first)


def lock_body(name):
    return json.dumps(
        {"clientId": "c1", "consumerGroup": "g",
         name: [{"brokerName": "b", "queueId": 0, "topic": "orders"}]}
    ).encode()  # fmt: skip


def test_a_lock_is_given_with_a_record_and_refused_with_a_reason():
    given = lock_body("lockOKMQSet")
    content = {**json.loads(lock_body("queues")), "group": "g"}
    for statements, held, answer, is_sound in (
        ([Statement(9, 0, "lock", content)], None, given, True),
        ([], None, given, False),
        ([], Held("c2", 0), b'{"lockOKMQSet":[]}', True),
        ([], Held("c1", 0), b'{"lockOKMQSet":[]}', False),
        ([], None, b'{"lockOKMQSet":[]}', False),
        ([Statement(9, 0, "unlock", content)], None, b'{"lockOKMQSet":[]}', True),
    ):
        broker = Broker()
        broker.hear(41, {}, lock_body("mqSet"))
        broker.truth.statements += statements
        if held is not None:
            broker.model.locks["g", "orders", 0] = held
        if is_sound:
            broker.say(0, {}, answer)
        else:
            with pytest.raises(Violation, match="A21"):
                broker.say(0, {}, answer)


def test_frames_are_put_together_and_taken_apart():
    broker = Broker()
    data = frame(30, 3, QUEUE) + frame(31, 4, QUEUE)
    for at in range(len(data)):
        broker.tap.pass_on(data[at : at + 1], leaves=False)
    assert sorted(broker.tap.open) == [3, 4]


def test_what_is_no_frame_is_passed_over():
    broker = Broker()
    broker.tap.pass_on(b"GET / HTTP/1.1\r\n\r\n", leaves=False)
    broker.hear(30, QUEUE)
    assert not broker.tap.open


def test_bytes_that_are_read_once_more_count_once():
    broker = Broker()
    data = frame(30, 3, QUEUE) + frame(31, 4, QUEUE)
    broker.tap.pass_on(data, leaves=False)
    broker.tap.again(10)
    broker.tap.pass_on(data[-10:], leaves=False)
    broker.tap.pass_on(frame(31, 5, QUEUE), leaves=False)
    assert sorted(broker.tap.open) == [3, 4, 5]


@pytest.mark.parametrize(
    ("kind", "offset", "term", "reset", "is_sound"),
    [
        ("offset", 3, 1, "", True),
        ("offset", 2, 1, "", False),
        ("offset", 3, 2, "", False),
        ("offset", 2, 1, "g", True),
        ("lock", 2, 1, "", True),
    ],
)
def test_an_offset_in_the_log_is_one_that_somebody_committed(kind, offset, term, reset, is_sound):
    """In that term: what a leader did not replicate went with its office."""
    broker = Broker()
    broker.truth.committed[:] = [Mark(term, 0, 0, 0)] * 10
    asked = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "commitOffset": "3"}
    broker.hear(15, asked)
    if reset:
        broker.hear(222, {"group": reset, "topic": "orders"})
    said = Statement(9, 0, kind, {"orders@g": {"0": offset}})
    if is_sound:
        broker.truth._state(said)
    else:
        with pytest.raises(Violation, match=Brokers.unasked_name):
            broker.truth._state(said)

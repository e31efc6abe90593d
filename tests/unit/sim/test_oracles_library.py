"""What the producer says is compared with what passed on its connections."""

import asyncio
from types import SimpleNamespace
from typing import ClassVar

import pytest

from ledgermq.client import Attempt, MessageQueue, Outcome, SendFailed, SendResult, SendStatus
from sim.oracles.base import Findings
from sim.oracles.library import EARLY, LATE, LATE_MS, Library
from sim.oracles.wire import Said

QUEUE = MessageQueue("orders", "b", 2)
TAP = SimpleNamespace(other="10.0.0.1", end=SimpleNamespace(remote=("10.0.0.1", 10911)))
UNKNOWN = Attempt("10.0.0.1:10911", 0, 1, None, "RequestTimeout", Outcome.UNKNOWN)
REFUSED = Attempt("10.0.0.1:10911", 0, 1, 14, "ResponseError", Outcome.FAILED)


class Network:
    def __init__(self):
        self.findings = Findings()
        self.library = Library(self.findings)

    def ask(self, *keys):
        frame = b"".join(b"KEYS\\u0001%d\\u0002" % key for key in keys)
        request = Said(310, {"e": "2"}, b"", 0, frame)
        self.library.on_request(TAP, request)
        return request

    def answer(self, request, code=0, queue_id=2, offset=7, ids="A,B", remark=""):
        fields = {"queueId": str(queue_id), "queueOffset": str(offset), "msgId": ids}
        self.library.on_answer(TAP, request, Said(code, fields, b"", 1, b"", remark))

    def is_sound(self):
        return self.findings.first is None


def result(offset=7, queue=QUEUE, ids="A", attempts=1):
    return SendResult(SendStatus.SEND_OK, "U", ids, queue, offset, (UNKNOWN,) * attempts)


@pytest.mark.parametrize(
    ("told", "is_sound"),
    [
        (result(), True),
        (result(offset=8), False),
        (result(ids="B"), False),
        (result(queue=QUEUE._replace(queue_id=3)), False),
        (result(attempts=0), False),
    ],
)
def test_success_is_what_a_broker_said(told, is_sound):
    network = Network()
    network.answer(network.ask(42))
    network.library.on_result(["42"], QUEUE, told)
    assert network.is_sound() == is_sound


def test_success_that_no_broker_told_is_a_violation():
    network = Network()
    network.ask(42)
    network.library.on_result(["42"], None, result())
    assert not network.is_sound()


def test_a_message_of_a_batch_has_its_own_place_and_id():
    for told, is_sound in ((result(8, ids="B"), True), (result(7, ids="A"), False)):
        network = Network()
        network.answer(network.ask(41, 42))
        network.library.on_result(["42"], None, told)
        assert network.is_sound() == is_sound


@pytest.mark.parametrize(
    ("codes", "attempts", "is_sound"),
    [
        ([14], [REFUSED], True),
        ([14, 14], [REFUSED], False),
        ([None], [REFUSED], False),
        ([14, 1], [REFUSED, REFUSED], False),
        ([None], [UNKNOWN], True),
        ([], [], True),
    ],
)
def test_a_failure_is_certain_only_if_each_request_was_refused(codes, attempts, is_sound):
    network = Network()
    for code in codes:
        request = network.ask(42)
        if code is not None:
            network.answer(request, code)
    network.library.on_failed(["42"], SendFailed("gone", tuple(attempts)))
    assert network.is_sound() == is_sound


def test_requests_that_were_refused_have_stored_nothing():
    network = Network()
    network.answer(network.ask(42), 14)
    network.answer(network.ask(42), 0)
    network.ask(42)
    assert network.library.possible(42) == 2
    assert network.library.possible(43) is None


def test_who_is_followed_is_checked():
    network = Network()

    class Sender:
        client_id = "p0"
        clock = SimpleNamespace(monotonic_ms=lambda: 0)
        config = SimpleNamespace(send_timeout_ms=1_500, retry_times=2)
        _instance = SimpleNamespace(running=True)

        async def send(self, message, queue, timeout_ms):
            return result(queue=QUEUE._replace(queue_id=0))

        async def send_batch(self, messages, queue, timeout_ms):
            raise SendFailed("gone", (REFUSED,))

        async def attempt(self, *_):
            return result()

    sender = Sender()
    network.library.follow(sender)
    message = SimpleNamespace(keys="42")
    with pytest.raises(StopIteration):
        sender.send(message, QUEUE).send(None)
    assert not network.is_sound()
    with pytest.raises(SendFailed):
        sender.send_batch([message]).send(None)


@pytest.mark.parametrize(
    ("timeout_ms", "took_ms", "found"),
    [
        (None, 1_500 + LATE_MS, None),
        (None, 1_501 + LATE_MS, LATE),
        (200, 200 + LATE_MS, None),
        (200, 1_500, LATE),
    ],
)
def test_a_send_ends_within_what_it_was_given(timeout_ms, took_ms, found):
    network = Network()
    times = iter((5, 5 + took_ms))
    sender = SimpleNamespace(
        client_id="p0",
        clock=SimpleNamespace(monotonic_ms=lambda: next(times)),
        config=SimpleNamespace(send_timeout_ms=1_500, retry_times=2),
        _instance=SimpleNamespace(running=True),
    )

    async def sending():
        raise SendFailed("no answer", (UNKNOWN,))

    with pytest.raises(SendFailed):
        asyncio.run(network.library._in_time(sender, sending(), timeout_ms))
    first = network.findings.first
    assert (None if first is None else first.oracle) == found


@pytest.mark.parametrize(("chosen", "is_sound"), [(2, True), (1, False)])
def test_each_request_of_a_send_asks_for_the_queue_that_was_chosen(chosen, is_sound):
    network = Network()
    queue = QUEUE._replace(queue_id=chosen)

    async def sending():
        network.ask(42)
        raise SendFailed("no answer", (UNKNOWN,))

    async def send():
        with pytest.raises(SendFailed):
            await network.library._check(sending(), ["42 colour"], queue)

    asyncio.run(send())
    assert network.is_sound() == is_sound, "although nobody is told that it was stored"


@pytest.mark.parametrize(
    ("again", "code", "names", "chosen", "is_sound"),
    [
        ("b", 14, "bc", False, False),
        ("b", None, "bc", False, False),
        ("c", 14, "bc", False, True),
        ("b", 2, "bc", False, True),
        ("b", 14, "b", False, True),
        ("b", 14, "bc", True, True),
    ],
)
def test_a_send_is_tried_at_another_broker_if_there_is_one(again, code, names, chosen, is_sound):
    network = Network()
    targets = [SimpleNamespace(broker_name=name) for name in names]

    class Sender:
        client_id = "p0"
        _topics: ClassVar = {"orders": SimpleNamespace(all=targets)}

        async def attempt(self, *_):
            return result()

    if chosen:
        network.library._chosen["42"] = QUEUE
    attempt = network.library._watched(Sender())
    outgoing = SimpleNamespace(topic="orders", properties_json=b"KEYS\\u000142", body=b"")

    async def send():
        link = SimpleNamespace(addr="10.0.0.1:10911")
        await attempt(link, SimpleNamespace(broker_name="b"), outgoing, 0, ())
        failed = Attempt("10.0.0.1:10911", 0, 1, code, "Failed", Outcome.FAILED)
        link = link if again == "b" else SimpleNamespace(addr="10.0.0.2:10911")
        await attempt(link, SimpleNamespace(broker_name=again), outgoing, 0, (failed,))

    asyncio.run(send())
    assert network.is_sound() == is_sound


@pytest.mark.parametrize(
    ("ids", "is_sound"),
    [(("U1", "U2"), True), (("U1", "U1"), False), (("U1,U3", "U2"), False)],
    ids=["own ones", "shared", "too many"],
)
def test_each_message_is_told_an_id_of_its_own(ids, is_sound):
    network = Network()
    for key, told in zip((41, 42), ids, strict=True):
        network.answer(network.ask(key))
        sent = SendResult(SendStatus.SEND_OK, told, "A", QUEUE, 7, (UNKNOWN,))
        network.library.on_result([str(key)], None, sent)
        network.library.on_result([str(key)], None, sent)
    assert network.is_sound() == is_sound


def tried(code=None, error="ResponseError"):
    return Attempt("10.0.0.1:10911", 0, 1, code, error, Outcome.UNKNOWN)


LOST, MOVED, BUSY = tried(error="ConnectionLost"), tried(14), tried(2)
REFUSED_FOR_GOOD, UNREACHED = tried(13), tried(error="ConnectFailed")


@pytest.mark.parametrize(
    ("attempts", "left_ms", "is_sound"),
    [
        ([LOST], LATE_MS + 1, False),
        ([LOST], LATE_MS, True),
        ([LOST, LOST], LATE_MS + 1, False),
        ([LOST, LOST, LOST], 1_000, True),
        ([BUSY, LOST, LOST], 1_000, True),
        ([MOVED], 1_000, False),
        ([LOST, UNREACHED], 1_000, False),
        ([LOST, REFUSED_FOR_GOOD], 1_000, True),
        ([], 1_000, True),
    ],
)
def test_a_send_that_may_be_tried_again_is_not_given_up(attempts, left_ms, is_sound):
    network = Network()
    times = iter((0, 1_500 - left_ms, 1_500 - left_ms))
    sender = SimpleNamespace(
        client_id="p0",
        clock=SimpleNamespace(monotonic_ms=lambda: next(times)),
        config=SimpleNamespace(send_timeout_ms=1_500, retry_times=2),
        _instance=SimpleNamespace(running=True),
    )

    async def sending():
        raise SendFailed("no more", tuple(attempts))

    with pytest.raises(SendFailed):
        asyncio.run(network.library._in_time(sender, sending(), None))
    first = network.findings.first
    assert (None if first is None else first.oracle) == (None if is_sound else EARLY)


@pytest.mark.parametrize(
    ("remark", "possible"),
    [("[PC_SYNCHRONIZED]broker busy", 0), ("broker busy, outcome unknown", 1)],
)
def test_a_broker_that_takes_no_more_has_stored_nothing(remark, possible):
    network = Network()
    network.answer(network.ask(42), 2, remark=remark)
    assert network.library.possible(42) == possible

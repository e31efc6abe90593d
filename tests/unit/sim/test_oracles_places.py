"""Order of sends and polls, whole queues, groups that are not ahead: what is found, what is not."""

import struct
from types import SimpleNamespace

import pytest

from ledgermq.client import ConsumeContext, ConsumeStatus, MessageQueue
from sim.disk import SimDisk
from sim.oracles.alone_disk import LogFiles
from sim.oracles.base import Findings, Violation
from sim.oracles.beyond import NAME, Beyond
from sim.oracles.model import Statement
from sim.oracles.plain_truth import LOST, OTHER, PlainFollower, PlainTruth
from sim.oracles.polls import BACK, SKIPPED, Polls, PullOrder
from sim.oracles.queue_units import HOLE, MISPLACED, TWICE, check_units
from sim.oracles.sent_order import LATER, MIXED, SentOrder
from sim.oracles.wire import Said
from sim.rng import SplitRng

TAP = SimpleNamespace(other="10.0.0.1")
QUEUE = MessageQueue("orders", "b", 0)
QUEUE_FILE = "/store/consumequeue/orders/0/00000000000000000000"
LOG_FILE = "/store/commitlog/00000000000000000000"
FILE_BYTES = 4_096
LOG = LogFiles("/store/commitlog", FILE_BYTES, 0)


class Sends:
    def __init__(self):
        self.findings = Findings()
        self.oracle = SentOrder(self.findings, lambda _address: "b")

    def ask(self, at_ns, *keys, properties="", queue_id=0):
        frame = b"".join(b"KEYS\x01%d\x02" % key for key in keys)
        fields = {"b": "orders", "e": str(queue_id), "i": properties}
        request = Said(310, fields, b"", at_ns, frame)
        self.oracle.on_request(TAP, request)
        return request

    def answer(self, request, at_ns, offset, ids="A", code=0):
        fields = {"queueOffset": str(offset), "msgId": ids}
        self.oracle.on_answer(TAP, request, Said(code, fields, b"", at_ns, b""))

    @property
    def found(self):
        return None if self.findings.first is None else self.findings.first.oracle


def test_a_send_lies_behind_what_was_acknowledged_before_it():
    sends = Sends()
    sends.answer(sends.ask(1, 1), 5, 7)
    sends.answer(sends.ask(6, 2), 9, 7)
    assert sends.found == LATER


@pytest.mark.parametrize(
    "second",
    [
        {"at_ns": 5},  # as the first was acknowledged
        {"at_ns": 6, "queue_id": 1},
        {"at_ns": 6, "properties": "DELAY\x012\x02"},
        {"at_ns": 6, "properties": "KEYS\x011\x02TRAN_MSG\x01true\x02"},
    ],
)
def test_sends_that_overlap_or_lie_elsewhere_have_no_order(second):
    sends = Sends()
    sends.answer(sends.ask(1, 1), 5, 7)
    sends.answer(sends.ask(second.pop("at_ns"), 2, **second), 9, 3)
    assert sends.found is None


def test_a_batch_counts_to_its_end_and_what_was_refused_not_at_all():
    sends = Sends()
    sends.answer(sends.ask(1, 1), 2, 50, code=2)
    sends.answer(sends.ask(3, 2, 3, 4), 4, 0, ids="A,B,C")
    sends.answer(sends.ask(5, 5), 6, 3)
    assert sends.found is None
    sends.answer(sends.ask(7, 6), 8, 2)
    assert sends.found == LATER


def test_what_brokers_may_have_lost_is_forgotten():
    sends = Sends()
    sends.answer(sends.ask(1, 1), 5, 7)
    late = sends.ask(6, 2)
    sends.oracle.forget("b", 8)
    sends.answer(late, 9, 8)  # on its way as the power went
    sends.answer(sends.ask(10, 3), 11, 7)
    assert sends.found is None


def test_messages_of_a_request_follow_each_other():
    sends = Sends()
    sends.ask(1, 1, 2, 3)
    sends.oracle.check_row(("orders", 0, 0), 1, None)
    sends.oracle.check_row(("orders", 0, 1), 2, 1)
    sends.oracle.check_row(("orders", 0, 1), 9, 1)  # nobody's that is known
    with pytest.raises(Violation, match=MIXED):
        sends.oracle.check_row(("orders", 0, 2), 3, 1)
    sends.ask(2, 3)  # tried again, alone
    sends.oracle.check_row(("orders", 0, 2), 3, 1)


class Push:
    """A consumer that does as it is told; ``lacks``: offsets that are not there."""

    client_id = "c"

    def __init__(self, lacks=()):
        self.findings, self.ms = Findings(), 10
        self.clock = SimpleNamespace(monotonic_ns=lambda: self.ms)
        self.assignment = SimpleNamespace(_hold=self.hold, move=lambda _offsets: None, _held={})
        self.service = SimpleNamespace(_listener=lambda *_call: ConsumeStatus.CONSUME_SUCCESS)
        Polls(self.findings, lambda _queue, offset, _tags: offset not in lacks).follow(self)

    def subscription(self, topic):
        return SimpleNamespace(expression="*", topic=topic)

    def hold(self, queue, offset):
        process_queue = SimpleNamespace(era=0, next_offset=offset)
        held = SimpleNamespace(process_queue=process_queue, puller=SimpleNamespace())
        held.puller._on_illegal_offset = None
        self.assignment._held[queue] = held
        return held

    def take(self, offset):
        self.ms += 1
        return self.assignment._hold(QUEUE, offset)

    def hand_out(self, *offsets, pulled=None):
        self.ms += 1
        messages = [SimpleNamespace(queue_offset=offset) for offset in offsets]
        context = ConsumeContext(QUEUE, 0, self.ms if pulled is None else pulled)
        self.service._listener(messages, context)
        return None if self.findings.first is None else self.findings.first.oracle


def test_what_is_handed_out_in_order_and_again_is_sound():
    push = Push()
    push.take(3)
    assert push.hand_out(3, 4) is None
    assert push.hand_out(3, 4) is None
    assert push.hand_out(5) is None


@pytest.mark.parametrize(
    ("offsets", "found"), [((2,), BACK), ((4, 3), BACK), ((4,), SKIPPED), ((3, 5), SKIPPED)]
)
def test_what_goes_back_or_passes_something_over_is_found(offsets, found):
    push = Push()
    push.take(3)
    assert push.hand_out(*offsets) == found


def test_what_is_not_there_is_not_passed_over():
    push = Push(lacks=(3, 5))
    push.take(3)
    assert push.hand_out(4, 6) is None


def test_a_queue_that_is_taken_anew_begins_anew_and_older_calls_do_not_count():
    push = Push()
    push.take(7)
    before = push.ms
    push.take(3)
    assert push.hand_out(8, pulled=before) is None
    assert push.hand_out(3) is None


def pulled(*offsets, asked=0, goes_on=9):
    findings = Findings()
    request = Said(11, {"topic": "t", "queueId": "2", "queueOffset": str(asked)}, b"", 0, b"")
    body = b"".join(struct.pack(">i8xi4xq", 28, 2, offset) for offset in offsets)
    answer = Said(0, {"nextBeginOffset": str(goes_on)}, body, 1, b"")
    PullOrder(findings).on_answer(TAP, request, answer)
    return None if findings.first is None else findings.first.oracle


def test_an_answer_to_a_pull_has_its_messages_in_order():
    assert pulled(3, 4, 8, asked=3) is None
    assert pulled(4, 3, asked=3) == pulled(2, 3, asked=3) == BACK
    assert pulled(3, 4, asked=3, goes_on=4) == BACK


def disk_with(*units, places=()):
    """A disk whose queue has some units, each a place and a size, and whose log has records."""
    disk = SimDisk(SplitRng(1))
    disk.make_directories("/store/consumequeue/orders/0")
    disk.make_directories("/store/commitlog")
    queue = disk.open(QUEUE_FILE, size=400)
    queue.pwrite(0, [b"".join(struct.pack(">qiq", place, size, 0) for place, size in units)])
    log = disk.open(LOG_FILE, size=FILE_BYTES)
    for offset, place in places:
        log.pwrite(place, [struct.pack(">i8xi4xqq", 100, 0, offset, place)])
    return disk


def test_a_queue_that_names_each_message_once_is_sound():
    gap = (0, 0x7FFFFFFF)
    assert check_units(disk_with(gap, (0, 100), (200, 100), places=((1, 0), (2, 200))), LOG) == 2


@pytest.mark.parametrize(
    ("units", "places", "found"),
    [
        (((0, 100), (0, 0), (200, 100)), ((0, 0), (2, 200)), HOLE),
        (((0, 100), (0, 100)), ((0, 0),), TWICE),
        (((200, 100), (0, 100)), ((0, 200), (1, 0)), TWICE),
        (((0, 100), (200, 100)), ((0, 0),), MISPLACED),
        (((0, 99),), ((0, 0),), MISPLACED),
        (((0, 100), (5 * FILE_BYTES, 100)), ((0, 0),), MISPLACED),
    ],
)
def test_holes_and_places_of_others_are_found(units, places, found):
    with pytest.raises(Violation) as caught:
        check_units(disk_with(*units, places=places), LOG)
    assert caught.value.oracle == found


class Known:
    def __init__(self, *, has_lost=False):
        self.has_lost = has_lost

    def end_of(self, _address, queue):
        return 5 if queue == ("orders", 0) else None

    def has_lost_ends(self, _address):
        return self.has_lost


def said(code, offset, **fields):
    asked = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "commitOffset": str(offset)}
    return Said(code, asked | fields, b"", 0, b"")


def ahead(known, *steps):
    """Return what is found where a group commits (15, 11) offsets, or is told (14) them."""
    findings = Findings()
    oracle = Beyond(findings, known)
    for code, offset in steps:
        request = said(code, offset, sysFlag="1")
        oracle.on_request(TAP, request)
        oracle.on_answer(TAP, request, Said(0, {"offset": str(offset)}, b"", 1, b""))
    return None if findings.first is None else findings.first.oracle


def test_a_group_is_not_ahead_of_its_queue():
    assert ahead(Known(), (15, 5), (14, 5), (11, 5)) is None
    assert ahead(Known(), (15, 6)) == ahead(Known(), (14, 6)) == ahead(Known(), (11, 6)) == NAME


def test_who_consumed_what_was_lost_since_is_excused_and_a_broker_that_tells_it_is_not():
    assert ahead(Known(has_lost=True), (15, 6), (14, 6)) is None
    assert ahead(Known(has_lost=True), (14, 6)) == NAME


@pytest.mark.parametrize("excuses", [True, False])
def test_what_one_broker_has_lost_excuses_no_other(excuses):
    """A commit at a broker that lost its end says nothing of the log of the group."""
    known = Known(has_lost=True)
    oracle, truth = Beyond(Findings(), known), PlainTruth()
    truth.queues["orders", 0] = [None] * 5
    oracle.on_request(TAP, said(15, 6))
    ahead_of_it = Statement(4, 0, "offset", {"orders@g": {"0": 6}})
    if excuses:
        oracle.check(ahead_of_it, truth, excuses=True)
    else:
        with pytest.raises(Violation, match=NAME):
            oracle.check(ahead_of_it, truth)
    known.has_lost = False
    oracle.on_request(TAP, said(15, 6))
    assert oracle.findings.first is not None


def test_offsets_in_the_log_are_compared_with_the_log_before():
    oracle, truth = Beyond(Findings(), Known()), PlainTruth()
    truth.queues["orders", 0] = [None] * 5
    oracle.check(Statement(3, 0, "offset", {"orders@g": {"0": 5}, "orders@odd-1": {"0": 9}}), truth)
    with pytest.raises(Violation, match=NAME):
        oracle.check(Statement(4, 0, "offset", {"orders@g": {"0": 6}}), truth)


class Plain:
    """The log of a broker, and who follows it: records by place."""

    def __init__(self):
        self.records = {}
        self.log = SimpleNamespace(_opened=True, first_position=0, end_position=0)
        self.follower = PlainFollower(self, PlainTruth)

    def read(self, begin, end):
        return [(at, data) for at, data in self.records.items() if begin <= at < end]

    def life(self, *records):
        """Begin a life with what there is, and write more."""
        look = self.follower.follow(self.log)
        look()
        for data in records:
            self.records[self.log.end_position] = data
            self.log.end_position += len(data)
            look()
        return len(self.follower.truth.committed)

    def cut(self, end):
        self.records = {at: data for at, data in self.records.items() if at < end}
        self.log.end_position = end


def test_a_plain_log_is_followed_over_its_lives():
    plain = Plain()
    assert plain.life(b"a" * 10, b"b" * 10) == 2
    assert plain.life(b"c" * 10) == 3


def test_a_plain_log_that_a_kill_shortens_has_lost_something():
    plain = Plain()
    plain.life(b"a" * 10, b"b" * 10)
    plain.cut(10)
    with pytest.raises(Violation, match=LOST):
        plain.life()


def test_a_loss_of_power_may_take_the_end_and_nothing_else():
    plain = Plain()
    plain.life(b"a" * 10, b"b" * 10)
    plain.cut(10)
    plain.follower.on_power_loss()
    assert plain.life(b"c" * 10) == 2
    assert plain.follower.ends_lost == 1
    plain.records[0] = b"x" * 10
    plain.follower.on_power_loss()
    with pytest.raises(Violation, match=OTHER):
        plain.life()

"""Sends: stored, acknowledged, parked, refused."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from broker.processor.send import SendProcessor
from broker.sends.door import Door
from broker.sends.properties import PropertyRewriter
from broker.state.topic_config import TopicTable
from ledgermq.remoting.protocol.bodies import TopicConfig
from ledgermq.remoting.protocol.message import BatchElement, encode_batch
from ledgermq.remoting.protocol.properties import parse_properties
from store.results import PutStatus
from tests.unit.broker.fakes import (
    FakeConnection,
    FakeRng,
    FakeStore,
    RefusingMaker,
    frame,
    free_room,
)

if TYPE_CHECKING:
    from broker.sends.room import LogRoom
    from ledgermq.remoting.protocol.frame import Frame

BODY_MAX = 3 * 1024**2
STORE_HOST = bytes((127, 0, 0, 1)) + (10_911).to_bytes(4, "big")


def door() -> Door:
    return Door(PropertyRewriter("C", lambda: b"ID"), BODY_MAX, 18)


class Bench:
    """A processor with fakes around it."""

    def __init__(self, room: LogRoom | None = None, permission: int = 6, **settings: Any) -> None:
        self.topics = TopicTable(
            [TopicConfig(topic_name="SCHEDULE_TOPIC_XXXX")], 0, permission=permission
        )
        for config in (
            TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4),
            TopicConfig(topic_name="M", topic_filter_type="MULTI_TAG"),
        ):
            self.topics._put(config)
        self.store, self.maker, self.connection = FakeStore(), RefusingMaker(), FakeConnection()
        self.puts: defaultdict[str, int] = defaultdict(int)
        self.processor = SendProcessor(
            topics=self.topics.entries,
            store=self.store,
            maker=self.maker,
            door=door(),
            rng=FakeRng(),
            store_host=STORE_HOST,
            on_half=lambda *_: None,
            room=room or free_room(),
            puts=self.puts,
            **settings,
        )

    def send(self, body: bytes = b"x", code: int = 310, flag: int = 0, **fields: Any) -> None:
        header = {"a": "p", "b": "T", "c": "TBW102", "d": 4, "e": 1, "f": 0, "g": 5, "h": 0}
        header |= {"i": "UNIQ_KEY\x01u", "j": 0, "k": "false", "m": "false"} | fields
        handle = self.processor.handle_batch if code == 320 else self.processor.handle
        handle(self.connection, frame(code, body, flag, **header))

    @property
    def answer(self) -> tuple[int, str]:
        last = self.connection.answers[-1]
        return last.code, last.remark or ""


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_send_is_answered_when_the_store_says_so(bench: Bench) -> None:
    bench.send(b"body", h=3, j=2)
    assert bench.connection.answers == []
    message, done = bench.store.puts[0]
    assert (message.topic, message.queue_id, message.flag, message.body) == (b"T", 1, 3, b"body")
    assert (message.born_timestamp, message.reconsume_times) == (5, 2)
    assert message.born_host == bytes((127, 0, 0, 1)) + (4_000).to_bytes(4, "big")
    done(PutStatus.OK, 12, 0xAB)
    answer = bench.connection.answers[0]
    assert (answer.code, answer.opaque) == (0, 7)
    assert answer.ext_fields == {
        "msgId": "7F00000100002A9F00000000000000AB",
        "queueId": "1",
        "queueOffset": "12",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


@pytest.mark.parametrize(
    ("status", "code", "unknown"),
    [
        (PutStatus.NOT_LEADER, 14, False),
        (PutStatus.DISK_FULL, 14, False),
        (PutStatus.FULL, 2, False),
        (PutStatus.QUORUM_TIMEOUT, 2, True),
        (PutStatus.UNKNOWN, 1, True),
        (PutStatus.MESSAGE_ILLEGAL, 13, False),
        (PutStatus.PROPERTIES_SIZE_EXCEEDED, 13, False),
    ],
)
def test_a_failed_put_says_whether_the_message_may_still_appear(
    bench: Bench, status: PutStatus, code: int, unknown: bool
) -> None:
    assert status.outcome_unknown is unknown
    bench.send()
    bench.store.finish(status)
    assert bench.answer[0] == code
    assert ("outcome unknown" in bench.answer[1]) is unknown
    fields = bench.connection.answers[0].ext_fields
    assert fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def test_a_message_that_was_not_flushed_in_time_is_told_with_its_place(bench: Bench) -> None:
    """Clients take it for sent: it is stored."""
    bench.send(b"body", e=1)
    bench.store.puts[0][1](PutStatus.FLUSH_TIMEOUT, 12, 0xAB)
    answer = bench.connection.answers[0]
    assert (answer.code, answer.remark) == (10, "flush disk timeout")
    assert answer.ext_fields == {
        "msgId": "7F00000100002A9F00000000000000AB",
        "queueId": "1",
        "queueOffset": "12",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_a_delayed_message_counts_where_it_waits(bench: Bench) -> None:
    """As in RocketMQ: in its own topic it counts when it is delivered."""
    for flag in (0, 2):
        bench.send(flag=flag, i="DELAY\x013\x02UNIQ_KEY\x01u")
    bench.store.finish()
    assert bench.puts == {"SCHEDULE_TOPIC_XXXX": 2}


def test_every_put_status_has_an_answer() -> None:
    from broker.answers import PUT_ANSWERS

    assert set(PUT_ANSWERS) == set(PutStatus) - {PutStatus.OK}


def test_a_oneway_send_is_stored_and_never_answered(bench: Bench) -> None:
    bench.send(flag=2)
    bench.store.finish()
    bench.send(flag=2, b="SCHEDULE_TOPIC_XXXX")
    assert bench.connection.answers == []


def test_an_open_queue_is_picked_by_the_broker(bench: Bench) -> None:
    bench.send(e=-1)
    assert bench.store.puts[0][0].queue_id == 3


@pytest.mark.parametrize(
    ("fields", "code", "word"),
    [
        (
            {"e": 4},
            1,
            "request queueId[4] is illegal, TopicConfig [topicName=T, readQueueNums=4, "
            "writeQueueNums=4, perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false] "
            "Producer: 127.0.0.1:4000",
        ),
        (
            {"i": "long\x01" + "x" * 33_000},
            13,
            "the message is illegal, maybe msg body or properties length not matched. "
            f"msg body length limit {BODY_MAX}B, msg properties length limit 32KB.",
        ),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, 16, "forbidden"),
        ({"b": "rmq_sys_LEDGER_STATE"}, 16, "forbidden"),
        ({"b": "bad topic!"}, 1, "illegal characters"),
        ({"b": "t" * 128}, 1, "longer than topic max length."),
        ({"b": "missing"}, 17, "no such topic"),
        ({"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16, "forbidden"),
        ({"b": "RMQ_SYS_TRANS_OP_HALF_TOPIC"}, 16, "forbidden"),
        ({"f": 4}, 16, "transaction"),
    ],
)
def test_a_send_that_must_not_be_stored_is_refused(
    bench: Bench, fields: dict[str, Any], code: int, word: str
) -> None:
    bench.send(**fields)
    assert bench.store.puts == []
    assert bench.answer[0] == code
    assert word in bench.answer[1]


def test_a_follower_refuses_before_it_looks_at_the_topic(bench: Bench) -> None:
    bench.store.writable = False
    bench.send(b="missing")
    assert bench.answer[0] == 14
    assert bench.maker.resumes == []


def test_a_parked_send_goes_on_when_its_topic_exists(bench: Bench) -> None:
    bench.maker.answer = None
    bench.send(b="missing")
    assert bench.connection.answers == []
    bench.topics._put(TopicConfig(topic_name="missing"))
    bench.maker.resumes[0](None)
    assert bench.store.puts[0][0].topic == b"missing"
    bench.send(b="other")
    bench.maker.resumes[1]((14, "no"))
    assert bench.answer == (14, "no")


def test_a_broker_that_may_not_be_written_takes_what_has_no_order() -> None:
    """Its routes say that it may not; who does not know it yet goes on elsewhere, unless bound."""
    bench = Bench(permission=4)
    bench.topics._put(TopicConfig(topic_name="O", order=True))
    bench.send(b="O")
    assert bench.answer == (16, "Sending message to topic[O] is forbidden.")
    bench.send()
    assert len(bench.store.puts) == 1
    bench = Bench()
    bench.topics._put(TopicConfig(topic_name="O", order=True))
    bench.send(b="O")
    assert len(bench.store.puts) == 1


def test_a_topic_of_many_tags_marks_its_messages(bench: Bench) -> None:
    bench.send(b="M", f=1)
    assert bench.store.puts[0][0].sys_flag == 3


def test_a_batch_is_exploded_as_4_9_does(bench: Bench) -> None:
    elements = [BatchElement(b"a", b"UNIQ_KEY\x01u1\x02TAGS\x01A"), BatchElement(b"b", b"", 5)]
    bench.send(encode_batch(elements), 320, m="true", i="WAIT\x01true")
    batch, done = bench.store.batches[0]
    assert (list(batch.bodies), list(batch.flags), batch.queue_id) == ([b"a", b"b"], [0, 5], 1)
    assert batch.properties[0] == (b"UNIQ_KEY\x01u1\x02TAGS\x01A\x02CLUSTER\x01C\x02WAIT\x01true")
    assert parse_properties(batch.properties[1]) == {"CLUSTER": "C", "WAIT": "true"}
    assert batch.tags_codes == [65, 0]
    done(PutStatus.OK, 4, [1, 2])
    fields = bench.connection.answers[0].ext_fields
    assert fields["msgId"] == "7F00000100002A9F0000000000000001,7F00000100002A9F0000000000000002"
    assert fields["queueOffset"] == "4"


@pytest.mark.parametrize("body", [b"", b"\x00" * 21, b"\x00\x00\x00\x17" + b"\x00" * 19])
def test_a_batch_that_is_none_is_refused(bench: Bench, body: bytes) -> None:
    bench.send(body, 320, m="true")
    assert bench.answer[0] == 13
    assert bench.store.batches == []


def test_a_batch_may_not_be_delayed_or_a_retry(bench: Bench) -> None:
    body = encode_batch([BatchElement(b"a", b"")])
    bench.send(body, 320, m="true", i="DELAY\x011")
    bench.topics._put(TopicConfig(topic_name="%RETRY%g"))
    bench.send(body, 320, m="true", b="%RETRY%g")
    assert [answer.code for answer in bench.connection.answers] == [13, 13]


def test_long_names_of_code_10_are_understood(bench: Bench) -> None:
    fields = {
        "producerGroup": "p", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
        "queueId": 2, "sysFlag": 0, "bornTimestamp": 5, "flag": 0, "properties": "",
    }  # fmt: skip
    made: Frame = frame(10, b"x", **fields)
    bench.processor.handle(bench.connection, made)
    assert bench.store.puts[0][0].queue_id == 2


@pytest.mark.parametrize("status", [PutStatus.OK, PutStatus.DISK_FULL, PutStatus.FLUSH_TIMEOUT])
def test_each_answer_names_the_region(status: PutStatus) -> None:
    bench = Bench(region="cn-north", trace_on=False)
    bench.send()
    bench.store.finish(status)
    bench.send(b="no such topic")
    for answer in bench.connection.answers:
        assert answer.ext_fields["MSG_REGION"] == "cn-north"
        assert answer.ext_fields["TRACE_ON"] == "false"
    assert len(bench.connection.answers) == 2

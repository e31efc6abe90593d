"""Whatever a message says of itself: it is refused, or everyone reads its record back equal."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.remoting.protocol.message import decode_record
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.layout import (
    FLAG_NOT_INDEXED,
    FLAGS_HOSTS_V6,
    KIND_NOOP,
    STATE_TOPIC_BYTES,
    record_body,
    whole_record,
)
from store.offline.records import read_fields
from store.plain.record import inspect, is_torn, misread, stored_ms
from store.results import PutBatch, PutMessage, PutStatus
from tests.unit.store.fakes import World
from tests.unit.store.test_dispatch import log_of, units_of

V4, V6 = pack_host("10.0.0.7", 54321), pack_host("2001:db8::7", 54321)
REFUSED = {PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED}
INT32 = st.integers(-(1 << 33), 1 << 33) | st.sampled_from([0, 1, 2, 4, 8, 0x10, 0x20, 0x30, 0x34])
INT64 = st.integers(-(1 << 65), 1 << 65) | st.integers(0, 1 << 42)
TEXTS = st.binary(max_size=60) | st.sampled_from(
    [b"", b"TAGS\x01a\x02", b"KEYS\x01k j\x02", b"p" * 32_767, b"p" * 32_768,
     b"DELAY\x01" + b"9" * 5000, b"DELAY\x01--3", b"DELAY\x013\x02TAGS\x01a\x02"]
)  # fmt: skip
TOPICS = st.binary(max_size=12) | st.sampled_from(
    [b"t", b"t" * 127, b"t" * 128, b"\xce\xa9mega", STATE_TOPIC_BYTES, b"SCHEDULE_TOPIC_XXXX", b"."]
)
HOSTS = st.sampled_from([V4, V4, V6, b"", b"123", V6 + b"x"])
BODIES = st.binary(max_size=40) | st.sampled_from([b"", b"b" * 1025])

messages = st.builds(
    PutMessage,
    topic=TOPICS,
    queue_id=st.integers(-1, 3) | INT32,
    flag=INT32,
    sys_flag=INT32,
    born_timestamp=INT64,
    born_host=HOSTS,
    reconsume_times=INT32,
    prepared_offset=INT64,
    properties=TEXTS,
    body=BODIES,
    tags_code=INT64,
)


@st.composite
def batches(draw):
    count = draw(st.integers(0, 5))
    kinds = (INT32, BODIES, TEXTS, INT64)
    lists = [draw(st.lists(values, min_size=count, max_size=count)) for values in kinds]
    if draw(st.integers(0, 9)) == 0:
        longer = draw(st.integers(0, 3))
        lists[longer].append(draw(kinds[longer]))
    return PutBatch(
        draw(TOPICS), draw(st.integers(-1, 3) | INT32), draw(INT32), draw(INT64), draw(HOSTS),
        draw(INT32), *lists,
    )  # fmt: skip


def writing(store_host):
    world = World(store_host=store_host, max_body_bytes=1024).begin()
    world.node.lead()
    return world


def check(world, index):
    """Hold one entry to what its readers ask of it; return it decoded."""
    position, _, body = world.node.entries[index]
    physical = position + world.log.header_bytes
    message = decode_record(body, check_crc=True)
    assert message.size == len(body)
    assert message.physical_offset == physical
    whole_record(body, 0, len(body), physical)
    read_fields(memoryview(body), physical, check=True)
    segment = bytearray(physical + len(body) + 8)
    segment[physical : physical + len(body)] = body
    view = memoryview(segment)
    assert inspect(view, physical, physical) == len(body)
    assert not is_torn(view, physical, len(body)), "a start would cut the log here"
    assert not misread(view, physical)
    assert stored_ms(view, physical) == message.store_timestamp
    assert bytes(record_body(memoryview(body))) == message.body
    widths = (len(message.born_host) == 20) * 0x10 | (len(message.store_host) == 20) * 0x20
    assert message.sys_flag & FLAGS_HOSTS_V6 == widths
    return message


def check_followers(world):
    """A replica that reads all of it back has the queues of the one that wrote it."""
    world.node.commit()
    follower = World(node=log_of(world), store_host=world.config.store_host).begin()
    follower.node.commit()
    follower.turns()
    assert follower.store.status()["quarantined"] == 0
    assert not follower.fatal
    assert not world.fatal
    assert {key: queue.max_offset for key, queue in follower.store._queues.by_name.items()} == {
        key: queue.max_offset
        for key, queue in world.store._queues.by_name.items()
        if queue.max_offset
    }
    assert follower.listener.states == world.listener.states
    for (topic, queue_id), queue in follower.store._queues.by_name.items():
        pairs = zip(
            units_of(follower, topic, queue_id), units_of(world, topic, queue_id), strict=True
        )
        assert all(one[:2] == other[:2] for one, other in pairs), (topic, queue_id, queue)


@given(messages, st.sampled_from([V4, V6]))
@example(PutMessage(b"t", 0, 0, 0x10, 1, V4, 0, 0, b"", b"x", 0), V4)
@example(PutMessage(b"t", 0, 0, 0x20, 1, V6, 0, 0, b"", b"x", 0), V4)
@example(PutMessage(STATE_TOPIC_BYTES, 0, 0, 4, 1, V4, 0, 0, b"KIND\x01topic\x02", b"x", 0), V4)
@example(PutMessage(b"t", 0, 0, 0, 1, V4, 0, 0, b"KEYS\x01" + bytes(2_000), b"x", 0), V4)
@example(PutMessage(b"t", 0, 0, 0, 1, V4, 0, 0, b"a\x01" + bytes(2_000) + b"b", b"x", 0), V4)
@example(PutMessage(b"t", 0, 0, 0, 1, V4, 0, 0, b"a\x01\0", b"x", 0), V4)
@settings(max_examples=300)
def test_any_message_is_refused_or_read_back_equal(put, store_host):
    world = writing(store_host)
    count, answers = len(world.node.entries), []
    world.store.writer.put(put, lambda *answer: answers.append(answer))
    if answers:
        assert answers[0][0] in REFUSED
        assert answers[0][1:] == (-1, -1)
        assert len(world.node.entries) == count
        return
    found = check(world, count)
    assert (found.topic.encode(), found.queue_id, found.flag) == (put.topic, put.queue_id, put.flag)
    assert found.sys_flag & ~FLAGS_HOSTS_V6 == put.sys_flag & ~FLAGS_HOSTS_V6
    assert (found.born_timestamp, found.born_host) == (put.born_timestamp, put.born_host)
    assert (found.reconsume_times, found.prepared_offset) == (
        put.reconsume_times, put.prepared_offset,
    )  # fmt: skip
    assert (found.body, found.properties) == (put.body, put.properties)
    assert found.store_host == store_host
    check_followers(world)
    assert answers[0][0] is PutStatus.OK


@given(batches(), st.sampled_from([V4, V6]))
@example(PutBatch(b"t", 0, 0, 1, V4, 0, [0, 0], [b"x", b"y"], [b"", b"a\x01\0"], [0, 0]), V4)
@example(PutBatch(b"t", 0, 0x10, 1, V4, 0, [0, 0], [b"x", b"y"], [b"", b""], [0, 0]), V4)
@settings(max_examples=200)
def test_any_batch_is_refused_whole_or_read_back_equal(put, store_host):
    world = writing(store_host)
    count, answers = len(world.node.entries), []
    world.store.writer.put_batch(put, lambda *answer: answers.append(answer))
    if answers:
        assert answers[0][0] in REFUSED
        assert answers[0][1:] == (-1, [])
        assert len(world.node.entries) == count
        return
    assert len(world.node.entries) == count + len(put.bodies)
    for number, body in enumerate(put.bodies):
        found = check(world, count + number)
        assert (found.body, found.properties) == (body, put.properties[number])
        assert (found.flag, found.queue_offset) == (put.flags[number], number)
        assert found.sys_flag & ~FLAGS_HOSTS_V6 == put.sys_flag & ~FLAGS_HOSTS_V6
        assert not found.sys_flag & FLAG_NOT_INDEXED
    check_followers(world)
    assert answers[0][0] is PutStatus.OK


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.just("k" * 40_000),
    BODIES,
    st.sampled_from([V4, V6]),
)
@settings(max_examples=100)
def test_any_state_is_refused_or_applied_alike_everywhere(kind, payload, store_host):
    world = writing(store_host)
    count, answers = len(world.node.entries), []
    world.store.writer.propose_state(kind, payload, answers.append)
    if answers:
        assert answers == [PutStatus.MESSAGE_ILLEGAL]
        assert len(world.node.entries) == count
        return
    assert check(world, count).body == payload
    check_followers(world)
    assert answers == [PutStatus.OK]
    assert world.listener.states[-1:] == [(count, kind, payload)] or kind in {
        KIND_NOOP, "raft_config",
    }  # fmt: skip


def test_planted_host_bits_of_the_message_are_found_here():
    bad = PutMessage(b"t", 0, 0, 0x10, 1, V4, 0, 0, b"", b"x", 0)
    many = PutBatch(b"t", 0, 0x20, 1, V4, 0, [0, 0], [b"x", b"y"], [b"", b""], [0, 0])
    for put, test in (
        (bad, test_any_message_is_refused_or_read_back_equal),
        (many, test_any_batch_is_refused_whole_or_read_back_equal),
    ):
        check_one = test.hypothesis.inner_test
        check_one(put, V4)
        with planted(BY_TESTS["host-bits-of-the-message"]), pytest.raises(Exception):  # noqa: B017, PT011
            check_one(put, V4)


def test_planted_text_that_looks_unwritten_is_found_here():
    put = PutMessage(b"t", 0, 0, 0, 1, V4, 0, 0, b"KEYS\x01" + bytes(2_000), b"x", 0)
    check_one = test_any_message_is_refused_or_read_back_equal.hypothesis.inner_test
    check_one(put, V4)
    with planted(BY_TESTS["text-that-looks-unwritten"]), pytest.raises(AssertionError, match="cut"):
        check_one(put, V4)

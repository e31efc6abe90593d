"""Byte layouts against the record codec and against RocketMQ's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.sends.properties import PropertyRewriter, items_of
from ledgermq.remoting.protocol.message import MessageExt, encode_record
from ledgermq.remoting.protocol.properties import java_string_hash, parse_properties
from store import layout
from store.config import DEFAULT_DELAY_LEVELS_MS as LEVELS

HOSTS = {4: bytes(8), 16: bytes(20)}
FLAGS = {(4, 4): 0, (16, 4): 0x10, (4, 16): 0x20, (16, 16): 0x30}


def record_of(topic="t", body=b"b", properties=b"", widths=(4, 4), transaction=0, physical=4096):
    return encode_record(
        MessageExt(
            topic, 3, 0, FLAGS[widths] | transaction, 77, physical, 1, HOSTS[widths[0]], 99,
            HOSTS[widths[1]], 0, 0, body, properties,
        )
    )  # fmt: skip


@given(
    st.text(st.characters(codec="ascii", min_codepoint=48), min_size=1, max_size=300),
    st.binary(max_size=200),
    st.binary(max_size=300),
    st.sampled_from(list(FLAGS)),
    st.sampled_from([0, 4, 8, 12]),
    st.integers(0, 30),
)
def test_fields_of_a_record_are_those_that_were_encoded(
    topic, body, properties, widths, transaction, before
):
    record = record_of(topic, body, properties, widths, transaction)
    view = memoryview(bytes(before) + record)
    flags = FLAGS[widths] | transaction
    expected = (len(record), 3, 77, flags, 99, topic.encode(), properties)
    assert layout.read_record(view, before) == expected
    assert layout.store_timestamp(memoryview(record)) == 99
    assert bytes(layout.record_body(memoryview(record))) == body
    assert layout.record_size(memoryview(record), 4096) == len(record)
    assert layout.record_size(memoryview(record), 4097) is None


@given(flip=st.integers(0, 10_000), body=st.binary(min_size=1, max_size=60))
def test_a_record_is_sound_with_its_own_crc_only(flip, body):
    record = bytearray(record_of(body=body))
    assert layout.record_is_sound(memoryview(record))
    at = 88 + flip % len(body)
    record[at] ^= 1
    assert not layout.record_is_sound(memoryview(record))
    assert not layout.record_is_sound(memoryview(record)[:-1])


@given(st.binary(max_size=250))
def test_any_bytes_are_a_record_or_refused(data):
    with pytest.raises(layout.CorruptRecord):
        layout.read_record(memoryview(data))


def test_another_magic_is_no_record():
    record = bytearray(record_of())
    record[4] ^= 1
    with pytest.raises(layout.CorruptRecord, match="not a message magic"):
        layout.read_record(memoryview(record))


@given(st.integers(0, 120), st.binary(min_size=1, max_size=12))
def test_a_damaged_record_is_read_or_refused(at, noise):
    record = bytearray(record_of(properties=b"TAGS\x01a\x02"))
    record[at : at + len(noise)] = noise
    try:
        fields = layout.read_record(memoryview(record))
    except layout.CorruptRecord:
        return
    assert len(fields) == 7


@pytest.mark.parametrize("size", [0, 10, 87])
def test_a_piece_of_a_record_has_no_size(size):
    assert layout.record_size(memoryview(record_of()[:size]), 4096) is None


NAMES = st.sampled_from(["TAGS", "KEYS", "XTAGS", "TAGSX", "A"])
VALUES = st.text(st.sampled_from("ab中🐇 "), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        (b"TAGS\x01a\x02TAGS\x01", "a"),
        (b"k\x01v\x02TAGS\x01a\x02TAGS\x01\x02TAGS\x01\x02k\x01v", "a"),
        (b"k\x01v\x02TAGS\x01\x02TAGS\x01", ""),
        (b"TAGS\x01", ""),
    ],
)
def test_tags_without_a_value_are_none(text, tags):
    assert layout.tags_code(text) == java_string_hash(tags)
    rewriter = PropertyRewriter("c", lambda: b"id")
    stored = b"\x02".join(items_of(text)) or b"k\x01v"
    assert rewriter.tags_codes_of([stored]) == [layout.tags_code(text)], "leader and follower"


@given(st.lists(st.tuples(NAMES, VALUES), max_size=5), st.booleans())
def test_tags_code_is_the_java_hash_of_the_last_tags(pairs, closed):
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs) + "\x02" * closed
    tags = parse_properties(text.encode()).get("TAGS")
    assert layout.tags_code(text.encode()) == (java_string_hash(tags) if tags else 0)


def test_tags_are_remembered_within_a_bound():
    for number in range(10_005):
        layout.tags_code(b"TAGS\x01%d" % number)
    assert len(layout._tags_cache) <= 10_000
    assert layout.tags_code(b"TAGS\x01TagA") == java_string_hash("TagA") == 2598919


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        (b"DELAY\x011", 1000 + 1000),
        (b"A\x01b\x02DELAY\x0118\x02", 1000 + 7_200_000),
        (b"DELAY\x0199", 1000 + 7_200_000),
        (b"DELAY\x010\x02TAGS\x01a", 97),
        (b"DELAY\x01-1\x02TAGS\x01a", 97),
        (b"DELAY\x01x\x02TAGS\x01a", 97),
        (b"TAGS\x01a", 97),
        (b"", 0),
    ],
)
def test_units_of_the_schedule_topic_say_when_to_deliver(properties, code):
    assert layout.delivery_code(properties, 1000, LEVELS) == code


def test_state_kind_is_what_the_properties_were_made_with():
    assert layout.state_kind(layout.state_properties("offsets")) == "offsets"
    assert layout.state_kind(b"") == ""


@pytest.mark.parametrize("widths", list(FLAGS))
def test_long_topics_are_in_records_of_version_two(widths):
    record = record_of("x" * 200, b"body", b"TAGS\x01a\x02", widths)
    fields = layout.read_record(memoryview(record))
    assert fields[-2:] == (b"x" * 200, b"TAGS\x01a\x02")

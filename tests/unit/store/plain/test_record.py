import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.plain.record import (
    BAD_CRC,
    BAD_LENGTHS,
    BAD_MAGIC,
    BAD_OFFSET,
    IS_BLANK,
    IS_EMPTY,
    SECTOR_BYTES,
    blank,
    inspect,
    is_torn,
)
from tests.unit.store.plain.records import record

AT = 24
POSITION = 4096 + AT


def look(data, position=POSITION):
    return inspect(memoryview(bytes(AT) + data), AT, position)


@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
@pytest.mark.parametrize("topic", ["t", "t" * 127, "t" * 128, "t" * 255])
def test_sound_record_has_its_size(sys_flag, topic):
    """IPv6 hosts are wider, a topic over 127 bytes makes a V2 record."""
    data = record(POSITION, sys_flag=sys_flag, topic=topic, properties=b"A\x01b\x02")
    assert look(data) == look(data + b"what follows") == len(data)


def test_crc_of_zero_says_nothing():
    data = record(POSITION)
    assert look(data[:8] + bytes(4) + data[12:]) == len(data)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", IS_BLANK),
        (bytes(7), IS_BLANK),
        (bytes(8), IS_EMPTY),
        (bytes(200), IS_EMPTY),
        (blank(8), IS_BLANK),
        (blank(300) + b"any value" * 40, IS_BLANK),
        (b"\0\0\0\1" + bytes(200), BAD_MAGIC),
        (b"\0\0\0\1" + bytes(4), BAD_MAGIC),
        (b"x" * 200, BAD_MAGIC),
        (record(POSITION + 1), BAD_OFFSET),
        (record(POSITION)[:90], BAD_LENGTHS),
        (record(POSITION, sys_flag=0x30)[:95], BAD_LENGTHS),
        (record(POSITION).replace(b"body", b"bode"), BAD_CRC),
    ],
)
def test_everything_else_is_told_by_its_kind(data, what):
    assert look(data) == what


RECORD = record(POSITION, topic="topic", properties=b"K\x01v\x02")
GUARDED = [
    *range(8),
    *range(28, 36),
    *range(84, 88 + len(b"body") + 1),
    len(RECORD) - 6,
    len(RECORD) - 5,
]
"""Size, magic, physical offset, body and its length, lengths of topic and properties."""


@given(st.sampled_from(GUARDED), st.integers(0, 7))
def test_flipped_bit_is_noticed_where_a_length_or_the_crc_guards_it(byte, bit):
    data = bytearray(RECORD)
    data[byte] ^= 1 << bit
    assert look(bytes(data)) <= 0


@given(st.binary(max_size=300), st.integers(0, 300))
def test_garbage_never_raises_and_never_reaches_beyond_the_segment(data, at):
    assert inspect(memoryview(data), min(at, len(data)), at) <= max(0, len(data) - at)


@given(st.integers(0, 200), st.binary(min_size=1, max_size=8))
def test_garbled_record_never_raises(at, garbage):
    data = bytearray(record(POSITION, properties=b"K\x01v\x02", sys_flag=0x10))
    data[at : at + len(garbage)] = garbage
    assert look(bytes(data)) <= len(data)


@pytest.mark.parametrize("properties", [b"", b"k\x01value\x02"])
@pytest.mark.parametrize("topic", ["topic", "t" * 200])
def test_a_record_whose_writing_was_broken_off_is_damaged_or_torn(properties, topic):
    data = record(0, topic=topic, properties=properties)
    assert not is_torn(memoryview(data), 0, len(data))
    for end in range(len(data)):
        view = memoryview(data[:end] + bytes(len(data) - end))
        same = view == memoryview(data)
        assert same or inspect(view, 0, 0) <= 0 or is_torn(view, 0, len(data)), end


def test_a_record_of_which_a_sector_behind_the_body_was_never_written_is_torn():
    data = record(0, body=b"x" * 300, properties=b"k\x01" + b"v" * 1500 + b"\x02")
    assert not is_torn(memoryview(data), 0, len(data))
    for sector in range(0, len(data), SECTOR_BYTES):
        size = min(SECTOR_BYTES, len(data) - sector)
        torn = data[:sector] + bytes(size) + data[sector + size :]
        view = memoryview(torn)
        assert inspect(view, 0, 0) <= 0 or is_torn(view, 0, len(data)), sector


@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
@pytest.mark.parametrize("topic", ["topic", "t" * 200])
@pytest.mark.parametrize("properties", [b"", b"k\x01" + b"v" * 1500 + b"\x02"])
def test_torn_is_what_the_rule_says(sys_flag, topic, properties):
    """Whatever went to zero behind the body: a rest, or sectors."""
    data = record(0, topic=topic, properties=properties, sys_flag=sys_flag, body=b"x" * 700)
    checked = set()
    for end in range(0, len(data), 3):
        for begin in (0, end // SECTOR_BYTES * SECTOR_BYTES, len(data) - end):
            until = len(data) if begin == len(data) - end else end
            torn = data[:begin] + bytes(until - begin) + data[until:]
            if inspect(memoryview(torn), 0, 0) > 0:
                checked.add(expected := _is_torn_by_the_rule(torn))
                assert is_torn(memoryview(torn), 0, len(data)) == expected, (begin, until)
    assert checked == {True, False}


def _is_torn_by_the_rule(data):
    """A part behind the body ends with a zero, or has a sector of zeros."""
    topic_at = data.rindex(b"x" * 700) + 700
    wide = 2 if data[7] != 0xA7 else 1
    topic_end = topic_at + wide + int.from_bytes(data[topic_at : topic_at + wide], "big")
    has_properties = len(data) > topic_end + 2
    if topic_end > topic_at + wide and not data[topic_end - 1]:
        return True
    if has_properties and not data[-1]:
        return True
    end = len(data) if has_properties else topic_end
    first = topic_at + -topic_at % SECTOR_BYTES
    return any(not any(data[at : at + SECTOR_BYTES]) for at in range(first, end, SECTOR_BYTES))

"""Message records, batches and offset ids."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.remoting.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.remoting.protocol.message import (
    FLAG_BORN_HOST_V6,
    FLAG_COMPRESSED,
    FLAG_STORE_HOST_V6,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_HEADS,
    BatchElement,
    MessageExt,
    body_crc,
    decode_batch,
    decode_record,
    decode_records,
    encode_batch,
    encode_record,
    offset_message_id,
    parse_offset_message_id,
    record_bytes,
)

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
topics = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@st.composite
def messages(draw):
    sys_flag = draw(int32)
    born = draw(st.binary(min_size=20, max_size=20))
    stored = draw(st.binary(min_size=20, max_size=20))
    message = MessageExt(
        draw(topics),
        draw(int32),
        draw(int32),
        sys_flag,
        draw(int64),
        draw(int64),
        draw(int64),
        born if sys_flag & FLAG_BORN_HOST_V6 else born[:8],
        draw(int64),
        stored if sys_flag & FLAG_STORE_HOST_V6 else stored[:8],
        draw(int32),
        draw(int64),
        draw(st.binary(max_size=50)),
        draw(st.binary(max_size=50)),
    )
    message.body_crc = body_crc(message.body)
    topic_bytes = len(message.topic.encode())
    message.size = record_bytes(sys_flag, topic_bytes, len(message.body), len(message.properties))
    return message


def plain(**changes: object) -> MessageExt:
    host = pack_host("127.0.0.1", 10911)
    message = MessageExt("T", 1, 2, 0, 3, 4, 5, host, 6, host, 0, 0, b"body", b"")
    for name, value in changes.items():
        setattr(message, name, value)
    return message


@given(st.lists(messages(), max_size=4))
def test_decode_of_encode_is_the_same(sent):
    data = b"".join(map(encode_record, sent))
    assert decode_records(data, check_crc=True) == sent
    assert decode_records(memoryview(data)) == sent
    assert sum(message.size for message in sent) == len(data)


@given(st.binary(max_size=200))
def test_any_bytes_give_records_or_a_remote_protocol_error(data):
    with contextlib.suppress(RemoteProtocolError):
        decode_records(data)


@given(st.integers(0, 99), st.integers(0, 255))
def test_a_changed_byte_of_a_record_gives_a_record_or_an_error(position, value):
    data = bytearray(encode_record(plain(properties=b"KEYS\x01k")))
    data[position % len(data)] = value
    with contextlib.suppress(RemoteProtocolError):
        decode_records(bytes(data))


def test_the_layout_is_rocketmqs():
    data = encode_record(plain(sys_flag=0x100))
    assert RECORD_HEADS[0].size == 88
    assert len(data) == 91 + 4 + 1
    assert data[:12] == struct.pack(">iII", 96, MAGIC_V1, body_crc(b"body"))
    assert data[36:40] == b"\0\0\1\0"
    assert data[64:72] == b"\x7f\0\0\1" + struct.pack(">i", 10911)
    assert data[84:] == b"\0\0\0\4body\1T\0\0"


def test_a_long_topic_makes_a_v2_record():
    data = encode_record(plain(topic="t" * 200))
    assert struct.unpack_from(">I", data, 4) == (MAGIC_V2,)
    assert decode_record(data).topic == "t" * 200


@pytest.mark.parametrize(
    "message",
    [
        plain(properties=bytes(32768)),
        plain(store_host=bytes(20)),
        plain(sys_flag=FLAG_BORN_HOST_V6),
        plain(queue_id=2**31),
        plain(topic="t" * 70_000),
    ],
)
def test_what_a_record_cannot_hold_is_a_local_error(message):
    with pytest.raises(LocalProtocolError):
        encode_record(message)


@pytest.mark.parametrize(
    ("position", "value"),
    [
        pytest.param(0, struct.pack(">i", 5), id="size"),
        pytest.param(0, struct.pack(">i", 97), id="size of one byte more"),
        pytest.param(4, b"\0\0\0\0", id="magic"),
        pytest.param(84, struct.pack(">i", -1), id="negative body"),
        pytest.param(84, struct.pack(">i", 5000), id="long body"),
        pytest.param(93, b"\xff", id="topic is no UTF-8"),
        pytest.param(84, struct.pack(">i", 8), id="topic beyond the end"),
    ],
)
def test_a_broken_record_is_refused(position, value):
    data = bytearray(encode_record(plain()) + b"\0")
    data[position : position + len(value)] = value
    with pytest.raises(RemoteProtocolError):
        decode_record(bytes(data))


def test_a_body_that_fails_its_crc_is_refused_when_asked():
    data = bytearray(encode_record(plain()))
    data[88] ^= 1
    assert decode_record(bytes(data)).body != b"body"
    with pytest.raises(RemoteProtocolError):
        decode_record(bytes(data), check_crc=True)


def test_derived_values_of_a_message():
    message = plain(properties=b"UNIQ_KEY\x01ABC\x02TAGS\x01T")
    assert message.property_map() == {"UNIQ_KEY": "ABC", "TAGS": "T"}
    assert message.maybe_property("TAGS") == "T"
    assert message.maybe_property("KEYS") is None
    assert message.message_id() == "ABC"
    assert plain().message_id() == "7F00000100002A9F0000000000000004"
    assert message.content() == b"body"
    with pytest.raises(RemoteProtocolError):
        plain(sys_flag=FLAG_COMPRESSED).content()


@given(st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20), int64)
def test_an_offset_id_reads_back(host, offset):
    message_id = offset_message_id(host, offset)
    address, port, parsed = parse_offset_message_id(message_id)
    assert parsed == offset
    assert port == int.from_bytes(host[-4:], "big")
    assert ("." in address) == (len(host) == 8) or "." in address


@pytest.mark.parametrize("text", ["", "7F00", "not hex at all", "00" * 17])
def test_other_texts_are_no_offset_id(text):
    with pytest.raises(RemoteProtocolError):
        parse_offset_message_id(text)


@given(
    st.lists(
        st.builds(BatchElement, st.binary(max_size=30), st.binary(max_size=30), int32), max_size=5
    )
)
def test_a_batch_reads_back(elements):
    assert decode_batch(encode_batch(elements)) == elements


@given(st.integers(0, 9), st.integers(0, 9), st.lists(int32, min_size=2, max_size=5), st.data())
def test_a_batch_of_messages_of_one_size_reads_back(body_bytes, text_bytes, flags, data):
    body, text = (
        st.binary(min_size=body_bytes, max_size=body_bytes),
        st.binary(min_size=text_bytes, max_size=text_bytes),
    )
    elements = [BatchElement(data.draw(body), data.draw(text), flag) for flag in flags]
    encoded = encode_batch(elements)
    assert decode_batch(encoded) == elements
    size = len(encoded) // len(flags)
    at = data.draw(st.integers(0, len(flags) - 1)) * size
    for broken in (at + 3, at + 19, at + 21 + body_bytes):  # total size, body length, properties
        with pytest.raises(RemoteProtocolError):
            decode_batch(encoded[:broken] + bytes((encoded[broken] ^ 1,)) + encoded[broken + 1 :])


@pytest.mark.parametrize("lengths", [[(1, 1), (3, 3), (1, 1)], [(2, 2), (1, 3)], [(1, 1), (2, 23)]])
def test_a_batch_is_not_taken_for_one_of_equal_messages(lengths):
    elements = [BatchElement(b"b" * body, b"p" * text, 1) for body, text in lengths]
    assert decode_batch(encode_batch(elements)) == elements


@given(st.binary(max_size=100))
def test_any_bytes_give_a_batch_or_a_remote_protocol_error(data):
    with contextlib.suppress(RemoteProtocolError):
        decode_batch(data)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: b"\0\0\0\7" + data[4:],
        lambda data: data[:16] + b"\xff\xff\xff\xff" + data[20:],
        lambda data: data[:16] + b"\0\0\xff\xff" + data[20:],
    ],
)
def test_a_broken_batch_is_refused(change):
    data = encode_batch([BatchElement(b"body", b"p")])
    with pytest.raises(RemoteProtocolError):
        decode_batch(change(data))


def test_oversize_properties_of_a_batch_element_are_a_local_error():
    with pytest.raises(LocalProtocolError):
        encode_batch([BatchElement(b"", bytes(32768))])

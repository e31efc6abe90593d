"""Typed headers and response templates."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.remoting.protocol.command import RemotingCommand, decode_command, encode_command
from ledgermq.remoting.protocol.errors import InvalidHeader, RemoteProtocolError
from ledgermq.remoting.protocol.frame import Frame, FrameDecoder
from ledgermq.remoting.protocol.headers import (
    QueueHeader,
    SendHeader,
    SendResponseEncoder,
    UpdateOffsetHeader,
    decode_header,
    decode_pull_header,
    decode_send_header,
    decode_update_offset_header,
    encode_pull_response_head,
    encode_send_response,
    header_fields,
)

text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
headers = st.builds(
    SendHeader,
    text, text, text, int32, int32, int32, int64, int32,
    st.none() | text, st.none() | int32, st.none() | st.booleans(), st.none() | int32,
    st.none() | st.booleans(), st.none() | text,
)  # fmt: skip
LONG = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums",
    "e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties",
    "j": "reconsumeTimes", "k": "unitMode", "l": "maxReconsumeTimes", "m": "batch", "n": "bname",
}  # fmt: skip
SEND = {"a": "g", "b": "t", "c": "d", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}


def frame_of(command: RemotingCommand) -> Frame:
    (frame,) = FrameDecoder().feed(b"".join(encode_command(command)))
    return frame


def answer_of(data: bytes) -> RemotingCommand:
    (frame,) = FrameDecoder().feed(data)
    return decode_command(frame)


@given(headers, st.sampled_from([310, 320, 10]), st.integers(0, 1), int32)
def test_a_send_header_reads_the_same_from_all_its_forms(header, code, serialize_type, opaque):
    fields = header_fields(header)
    if code == 10:
        fields = {LONG[name]: value for name, value in fields.items()}
    command = RemotingCommand(
        code, 2, opaque, ext_fields=fields, serialize_type=serialize_type, version=407
    )
    assert decode_send_header(frame_of(command)) == (opaque, 2, 407, header)


@pytest.mark.parametrize("serialize_type", [0, 1])
@pytest.mark.parametrize(
    "change", [{"e": "x"}, {"e": "2147483648"}, {"k": "maybe"}, {"a": None}, {"g": "1.5"}]
)
def test_a_wrong_or_missing_field_is_an_invalid_header(change, serialize_type):
    fields = {k: v for k, v in (SEND | change).items() if v is not None}
    command = RemotingCommand(310, ext_fields=fields, serialize_type=serialize_type)
    with pytest.raises(InvalidHeader):
        decode_send_header(frame_of(command))


@given(st.integers(0, 1), st.binary(max_size=80))
def test_any_header_bytes_give_a_header_or_a_protocol_error(serialize_type, data):
    for decode in (decode_send_header, decode_pull_header, decode_update_offset_header):
        with contextlib.suppress(InvalidHeader, RemoteProtocolError):
            decode(Frame(serialize_type, data, b""))


def test_numbers_may_be_bare_and_null_is_a_missing_field():
    header = (
        b'{"code":310,"extFields":{"a":"g","b":"t","c":"d","d":4,"e":-1,"f":0,"g":5,"h":0,'
        b'"i":null,"j":null,"z":"unknown"},"opaque":1}'
    )
    _, _, _, found = decode_send_header(Frame(0, header, b""))
    assert (found.queue_id, found.properties, found.reconsume_times) == (-1, None, None)


def test_a_hot_header_without_ext_fields_is_invalid():
    with pytest.raises(InvalidHeader):
        decode_pull_header(frame_of(RemotingCommand(11)))


def test_headers_of_other_requests_come_from_ext_fields():
    command = RemotingCommand(30, ext_fields={"topic": "T", "queueId": "3", "bname": "b"})
    header = decode_header(command, QueueHeader)
    assert header == QueueHeader("T", 3)
    assert header_fields(header) == {"topic": "T", "queueId": "3"}
    assert header_fields(UpdateOffsetHeader("g", "T", 0, 7))["commitOffset"] == "7"
    with pytest.raises(InvalidHeader, match="request 30"):
        decode_header(RemotingCommand(30), QueueHeader)


@given(int32, st.integers(0, 1), int32, int64, st.none() | text)
def test_send_response_templates_say_what_the_general_encoder_says(
    opaque, serialize_type, queue_id, queue_offset, transaction_id
):
    data = encode_send_response(
        opaque, serialize_type, "7F00,7F01", queue_id, queue_offset, transaction_id
    )
    answer = answer_of(data)
    expected = {
        "msgId": "7F00,7F01",
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "TRACE_ON": "true",
        "MSG_REGION": "DefaultRegion",
    }
    if transaction_id is not None:
        expected["transactionId"] = transaction_id
    assert answer.ext_fields == expected
    assert (answer.code, answer.flag, answer.opaque) == (0, 1, opaque)
    assert b"".join(encode_command(answer)) == data


def test_region_and_trace_setting_are_escaped_into_the_template():
    encoder = SendResponseEncoder('a"%d', trace_on=False)
    for serialize_type in (0, 1):
        fields = answer_of(encoder.encode(1, serialize_type, "7F", 0, 0)).ext_fields
        assert (fields["MSG_REGION"], fields["TRACE_ON"]) == ('a"%d', "false")


@given(
    st.integers(0, 1), st.sampled_from([0, 19, 20, 21]), st.none() | text,
    st.tuples(int64, int64, int64), st.integers(0, 1000),
)  # fmt: skip
def test_pull_response_heads_say_what_the_general_encoder_says(
    serialize_type, code, remark, offsets, size
):
    next_offset, low, high = offsets
    data = encode_pull_response_head(7, serialize_type, code, remark, next_offset, low, high, size)
    answer = answer_of(data + bytes(size))
    assert (answer.code, answer.remark, answer.opaque, len(answer.body)) == (code, remark, 7, size)
    assert answer.ext_fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(next_offset),
        "minOffset": str(low),
        "maxOffset": str(high),
    }
    assert b"".join(encode_command(answer)) == data + bytes(size)

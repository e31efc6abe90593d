"""Commands through both header forms."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.remoting.protocol.codes import LanguageCode, SerializeType
from ledgermq.remoting.protocol.command import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    RemotingCommand,
    decode_command,
    decode_head,
    encode_command,
    make_response,
    maybe_head_of_large,
    peek_code,
)
from ledgermq.remoting.protocol.errors import InvalidHeader, LocalProtocolError, RemoteProtocolError
from ledgermq.remoting.protocol.frame import Frame, FrameDecoder
from ledgermq.remoting.protocol.headers import (
    decode_pull_header,
    decode_send_header,
    decode_update_offset_header,
)

int32 = st.integers(-(2**31), 2**31 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
filled = text.filter(bool)


def commands(serialize_type: SerializeType) -> st.SearchStrategy[RemotingCommand]:
    binary = serialize_type is SerializeType.ROCKETMQ
    small = st.integers(-(2**15), 2**15 - 1)
    fields = st.dictionaries(text, filled if binary else text, max_size=4)
    return st.builds(
        RemotingCommand,
        small if binary else int32,
        int32,
        int32,
        small if binary else int32,
        st.sampled_from(list(map(int, LanguageCode))),
        st.none() | filled,
        fields,
        st.binary(max_size=20),
        st.just(serialize_type),
    )


def through_the_wire(command: RemotingCommand) -> Frame:
    (frame,) = FrameDecoder().feed(b"".join(encode_command(command)))
    return frame


def json_frame(value: object, body: bytes = b"") -> Frame:
    return Frame(0, value if isinstance(value, bytes) else json.dumps(value).encode(), body)


@given(st.one_of(commands(SerializeType.JSON), commands(SerializeType.ROCKETMQ)))
def test_decode_of_encode_is_the_same(command):
    frame = through_the_wire(command)
    assert decode_command(frame) == command
    head = decode_head(frame)
    assert (head.code, head.flag, head.opaque) == (command.code, command.flag, command.opaque)
    assert peek_code(frame) == command.code


@given(st.integers(0, 1), st.one_of(st.binary(), text.map(str.encode)))
def test_any_header_gives_a_command_or_a_remote_protocol_error(serialize_type, header):
    frame = Frame(serialize_type, header, b"")
    for read in (decode_command, decode_head, peek_code):
        with contextlib.suppress(RemoteProtocolError):
            read(frame)


@given(
    st.dictionaries(
        st.sampled_from(
            ["code", "flag", "opaque", "version", "language", "remark", "extFields", "other"]
        ),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | text,
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
            max_leaves=4,
        ),
    )
)
def test_any_json_object_gives_a_command_or_a_remote_protocol_error(value):
    try:
        command = decode_command(json_frame(value))
    except RemoteProtocolError:
        return
    assert decode_command(through_the_wire(command)).ext_fields == command.ext_fields


def test_the_json_reader_is_as_tolerant_as_java():
    command = decode_command(
        json_frame(
            b' { "opaque" : "7", "language":"ELVISH", "unknown":[1], "code":105.0,'
            b'"extFields":{"n":1,"b":true,"s":"x","none":null,"o":{"a":1},"f":1.5},'
            b'"remark":5 } '
        )
    )
    assert command == RemotingCommand(
        105,
        opaque=7,
        version=0,
        language=LanguageCode.OTHER,
        remark="5",
        ext_fields={"n": "1", "b": "true", "s": "x", "o": '{"a":1}', "f": "1.5"},
    )


@pytest.mark.parametrize("member", ["remark", "language", "other"])
def test_text_that_is_no_utf8_is_replaced_as_java_does(member):
    frame = json_frame(b'{"code":105,"opaque":7,"%b":"a\xff"}' % member.encode())
    command = decode_command(frame)
    assert (command.code, command.opaque) == (105, 7)
    assert command.remark == ("a\N{REPLACEMENT CHARACTER}" if member == "remark" else None)
    assert decode_head(frame).opaque == 7


def test_missing_members_have_javas_defaults():
    assert decode_command(json_frame(b"{}")) == RemotingCommand(0, version=0)
    assert decode_command(json_frame(b'{"code":null}')).code == 0
    assert decode_head(json_frame(b'{"code":null,"opaque":3}')).opaque == 3


@pytest.mark.parametrize("language", [3, "PYTHON"])
def test_language_is_a_name_or_a_number(language):
    command = decode_command(json_frame({"code": 1, "language": language}))
    assert command.language == LanguageCode.PYTHON


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b'{"code":',
        b'{"code":"x"}',
        b'{"code":[1]}',
        b'{"opaque":2147483648}',
        b'{"extFields":[1]}',
    ],
)
def test_a_broken_json_header_is_refused(header):
    with pytest.raises(RemoteProtocolError):
        decode_command(json_frame(header))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda header: header[:10], id="cut in the fixed part"),
        pytest.param(lambda header: header[:-1], id="cut in the fields"),
        pytest.param(lambda header: header[:13] + b"\x7f\xff\xff\xff" + header[17:], id="remark"),
        pytest.param(lambda header: header[:-3] + b"\xff\xff\xff", id="no UTF-8"),
        pytest.param(lambda header: header[:21] + b"\0\x7f" + header[23:], id="long key"),
        pytest.param(lambda header: header[:17] + b"\0\0\0\1\0", id="half a key length"),
    ],
)
def test_a_broken_binary_header_is_refused(change):
    command = RemotingCommand(105, ext_fields={"topic": "abc"}, serialize_type=1)
    header = through_the_wire(command).header
    with pytest.raises(RemoteProtocolError):
        decode_command(Frame(1, change(header), b""))


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"extFields":'])
def test_a_header_nested_too_deeply_is_refused(opening):
    frame = Frame(SerializeType.JSON, opening * 20_000, b"")
    for decode in (decode_command, decode_head):
        with pytest.raises(RemoteProtocolError):
            decode(frame)


def test_a_short_binary_header_has_no_head():
    with pytest.raises(RemoteProtocolError):
        decode_head(Frame(1, b"\0", b""))


def test_binary_fields_without_a_value_are_dropped_and_unknown_languages_are_other():
    header = through_the_wire(RemotingCommand(1, ext_fields={"k": ""}, serialize_type=1)).header
    command = decode_command(Frame(1, header[:2] + b"\x63" + header[3:], b""))
    assert command.ext_fields == {}
    assert command.language == LanguageCode.OTHER


@pytest.mark.parametrize(
    "command",
    [
        RemotingCommand(200_050, serialize_type=1),
        RemotingCommand(1, remark="\ud800", serialize_type=1),
        RemotingCommand(1, remark="\ud800"),
        RemotingCommand(1, ext_fields={"k" * 40_000: "v"}, serialize_type=1),
    ],
)
def test_what_a_header_cannot_carry_is_a_local_error(command):
    with pytest.raises(LocalProtocolError):
        encode_command(command)


def test_a_response_echoes_opaque_and_header_type_and_keeps_empty_fields():
    request = RemotingCommand(103, FLAG_ONEWAY, 9, serialize_type=1)
    response = make_response(request, 17, "no", {}, b"b")
    assert request.is_oneway
    assert not request.is_response
    assert response.is_response
    assert (response.opaque, response.flag, response.serialize_type) == (9, FLAG_RESPONSE, 1)
    assert response.empty_ext_fields
    assert not make_response(request, 0).empty_ext_fields
    request.serialize_type = 0
    written = b"".join(encode_command(make_response(request, 0, None, {})))
    assert written[8:] == (
        b'{"code":0,"extFields":{},"flag":1,"language":"JAVA","opaque":9,'
        b'"serializeTypeCurrentRPC":"JSON","version":407}'
    )


def test_peek_reads_what_java_writes_and_falls_back_for_the_rest():
    assert peek_code(json_frame(b'{"code":310,"flag":0}')) == 310
    assert peek_code(json_frame(b'{"flag":0,"code":310}')) == 310
    assert peek_code(json_frame(b'{"code":-1,"flag":0}')) == -1
    assert peek_code(json_frame(b'{"code":11}')) == 11


def frame_of(header: bytes, serialize_type: int = 0) -> Frame:
    return Frame(serialize_type, header, b"")


@pytest.mark.parametrize(
    ("value", "text"),
    [(b"5", "5"), (b"1.5", "1.5"), (b"true", "true"), (b"9223372036854775808", str(2**63))],
)
def test_numbers_in_ext_fields_are_text_however_long_the_header(value, text):
    long = b'"' + b"\\u0001" * 32_767 + b'"'
    header = b'{"code":"310","language":1,"extFields":{"e":%b,"i":%b,"x":null},"opaque":7}'
    command = decode_command(frame_of(header % (value, long)))
    assert command.code == 310
    assert command.ext_fields == {"e": text, "i": "\x01" * 32_767}


@given(
    st.binary(max_size=60)
    | st.dictionaries(
        st.sampled_from(["code", "flag", "opaque", "version", "language", "remark", "extFields"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=3), inner, max_size=3)
            ),
            max_leaves=6,
        ),
    ).map(lambda value: json.dumps(value).encode()),
    st.sampled_from([0, 1]),
)
def test_any_header_gives_a_command_or_the_declared_error(header, serialize_type):
    frame = frame_of(header, serialize_type)
    for decode in (decode_command, decode_head, maybe_head_of_large):
        with contextlib.suppress(RemoteProtocolError):
            decode(frame)
    for decode_hot in (decode_send_header, decode_pull_header, decode_update_offset_header):
        with contextlib.suppress(RemoteProtocolError, InvalidHeader):
            decode_hot(frame)


PULL = {"consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("queueOffset", str(2**63)),
        ("queueOffset", "-" + "9" * 5000),
        ("suspendTimeoutMillis", str(2**64)),
        ("commitOffset", "1e999"),
        ("maxMsgNums", str(2**31)),
        ("sysFlag", "NaN"),
        ("queueId", ""),
    ],
)
def test_numbers_that_java_cannot_hold_are_no_header(name, value):
    header = json.dumps({"code": 11, "extFields": {**PULL, name: value}, "opaque": 1}).encode()
    with pytest.raises(InvalidHeader, match=name):
        decode_pull_header(frame_of(header))


def test_the_number_of_a_large_request_is_found_at_either_end_of_its_header():
    filler = '"extFields":{"i":"' + "x" * 300_000 + '"}'
    heads = [
        '{"code":310,%s,"flag":0,"language":"JAVA","opaque":77,"version":401}',
        '{"opaque":77,"code":310,"flag":0,%s}',
    ]
    for text in heads:
        head = maybe_head_of_large(frame_of((text % filler).encode()))
        assert head is not None
        assert (head.opaque, head.flag, head.code) == (77, 0, 310)
    assert maybe_head_of_large(frame_of(b"{" + b"x" * 300_000)) is None

"""Send frames: what the templates render is what the general decoder reads."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.client.errors import InvalidMessage
from ledgermq.client.message import Message, MessageQueue
from ledgermq.client.send_codec import (
    SendTarget,
    decode_send_response,
    encode_properties,
    encode_send,
    prepare_batch,
    prepare_single,
    split_batch,
)
from ledgermq.remoting.protocol.codes import LanguageCode
from ledgermq.remoting.protocol.command import RemotingCommand, decode_command, encode_command
from ledgermq.remoting.protocol.frame import Frame, FrameDecoder
from ledgermq.remoting.protocol.message import decode_batch
from ledgermq.remoting.protocol.properties import parse_properties

QUEUE = MessageQueue("topic", "broker-a", 3)
LIMITS = {"max_bytes": 4_194_304, "compress_over": 4096}
KEY = "7F00000100010002000300040005ABCD"


def sent(message: Message, *, group: str = "pg", queue: MessageQueue = QUEUE) -> RemotingCommand:
    outgoing = prepare_single(message, KEY, 1_700_000_000_000, **LIMITS)
    target = SendTarget(group, queue, "TBW102", 4)
    data = encode_send(target, outgoing, 77, 0) + outgoing.body
    (frame,) = FrameDecoder().feed(data)
    return decode_command(frame)


def test_a_send_has_the_fields_of_a_4_9_client():
    command = sent(Message("topic", b"body", flag=9))
    assert (command.code, command.opaque, command.flag, command.version) == (310, 77, 0, 407)
    assert command.language == LanguageCode.PYTHON
    assert command.body == b"body"
    properties = command.ext_fields.pop("i")
    assert parse_properties(properties.encode()) == {"UNIQ_KEY": KEY, "WAIT": "true"}
    assert command.ext_fields == {
        "a": "pg", "b": "topic", "c": "TBW102", "d": "4", "e": "3", "f": "0",
        "g": "1700000000000", "h": "9", "j": "0", "k": "false", "m": "false", "n": "broker-a",
    }  # fmt: skip


def test_header_keys_are_in_fastjsons_order():
    outgoing = prepare_single(Message("topic", b"b"), KEY, 1, **LIMITS)
    header = encode_send(SendTarget("g", QUEUE, "TBW102", 4), outgoing, 1, 0)[8:]
    assert header.startswith(b'{"code":310,"extFields":{"a":')
    assert list(msgspec.json.decode(header)) == [
        "code", "extFields", "flag", "language", "opaque", "serializeTypeCurrentRPC", "version",
    ]  # fmt: skip


text = st.text(
    st.characters(blacklist_characters="\x01\x02", blacklist_categories=("Cs",)), min_size=1
)


@given(text, text, st.dictionaries(text.map("p{}".format), text, max_size=4), st.integers(0, 18))
def test_any_text_in_properties_arrives_as_it_was(tags, keys, properties, level):
    message = Message("topic", b"b", tags, keys, properties, delay_level=level)
    arrived = parse_properties(sent(message).ext_fields["i"].encode())
    expected = {"UNIQ_KEY": KEY, "WAIT": "true", "TAGS": tags, "KEYS": keys, **properties}
    assert arrived == expected | ({"DELAY": str(level)} if level else {})


def test_percent_signs_in_names_do_not_disturb_the_template():
    queue = MessageQueue("%RETRY%g%d", "b%s", 0)
    command = sent(Message("%RETRY%g%d", b"x"), group="g%b", queue=queue)
    assert [command.ext_fields[key] for key in "abn"] == ["g%b", "%RETRY%g%d", "b%s"]


def test_a_long_body_is_compressed_and_says_so():
    command = sent(Message("topic", b"a" * 5000))
    assert command.ext_fields["f"] == str(0x301)
    assert len(command.body) < 100
    assert sent(Message("topic", b"a" * 4096)).ext_fields["f"] == "0"


def test_batch_elements_keep_their_own_properties():
    messages = [Message("topic", b"one", tags="A"), Message("topic", b"two", flag=5)]
    outgoing = prepare_batch(messages, ["K1", "K2"], 1, max_bytes=10_000)
    first, second = decode_batch(outgoing.body)
    assert (first.body, second.body, second.flag) == (b"one", b"two", 5)
    assert parse_properties(first.properties) == {"UNIQ_KEY": "K1", "WAIT": "true", "TAGS": "A"}
    assert outgoing.msg_id == "K1,K2"
    header = encode_send(SendTarget("g", QUEUE, "TBW102", 4), outgoing, 1, 0)[8:]
    fields = msgspec.json.decode(header)["extFields"]
    assert (fields["m"], fields["i"]) == ("true", "WAIT\x01true")


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "at least one"),
        ([Message("a", b"x"), Message("b", b"x")], "holds topics"),
        ([Message("a", b"x", delay_level=1)], "delayed"),
        ([Message("%RETRY%g", b"x")], "retry topic"),
        ([Message("a", b"x" * 300), Message("a", b"x" * 300)], "use split_batch"),
        ([Message("a", b"")], "body is empty"),
    ],
)
def test_a_bad_batch_is_refused(messages, why):
    with pytest.raises(InvalidMessage, match=why):
        prepare_batch(messages, ["k"] * len(messages), 1, max_bytes=500)


@given(st.lists(st.integers(1, 400), max_size=30))
def test_split_batches_keep_order_and_limit(sizes):
    messages = [Message("t", bytes([i % 256]) * size) for i, size in enumerate(sizes)]
    batches = list(split_batch(messages, 1000))
    assert [one for batch in batches for one in batch] == messages
    for batch in batches:
        keys = [KEY] * len(batch)
        assert len(prepare_batch(batch, keys, 1, max_bytes=1000).body) <= 1000


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Message("t", b""), "empty"),
        (Message("t", "text"), "must be bytes"),
        (Message("t", b"x" * 101), "limit is 100"),
        (Message("t", b"x", properties={"KEYS": "x"}), "reserved"),
        (Message("t", b"x", properties={"a": ""}), "empty"),
        (Message("t", b"x", properties={"a": 1}), "must be text"),
        (Message("t", b"x", properties={"a": "b\x01"}), "characters 1 and 2"),
        (Message("t", b"x", tags="a\x02"), "tags"),
        (Message("t", b"x", delay_level=19), "delay_level"),
        (Message("t", b"x", flag=2**31), "32 bits"),
        (Message("t", b"x", flag=1.5), "whole number, not float"),
        (Message("t", b"x", keys="ä" * 20_000), "32767"),
    ],
)
def test_a_bad_message_is_refused_before_it_is_sent(message, why):
    with pytest.raises(InvalidMessage, match=why):
        prepare_single(message, KEY, 1, max_bytes=100, compress_over=0)


def test_properties_of_a_plain_message():
    assert encode_properties(Message("t", b"x"), "K") == "UNIQ_KEY\x01K\x02WAIT\x01true"


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_responses_are_read_in_both_header_forms(serialize_type):
    fields = {"msgId": "AA", "queueId": "3", "queueOffset": "12345678901", "MSG_REGION": "r"}
    command = RemotingCommand(
        code=0, flag=1, opaque=5, ext_fields=fields, serialize_type=serialize_type
    )
    (frame,) = FrameDecoder().feed(b"".join(encode_command(command)))
    response = decode_send_response(frame)
    assert (response.code, response.stored.msg_id) == (0, "AA")
    assert (response.stored.queue_id, response.stored.queue_offset) == (3, 12345678901)


def test_a_remark_that_is_no_text_hides_no_answer():
    header = b'{"code":1,"flag":1,"opaque":3,"remark":"\xe8"}'
    response = decode_send_response(Frame(0, header, b""))
    assert (response.code, response.remark) == (1, "\N{REPLACEMENT CHARACTER}")


def test_a_refusal_has_no_stored_message():
    command = RemotingCommand(
        code=14, flag=1, remark="no", ext_fields={"MSG_REGION": "r", "TRACE_ON": "true"}
    )
    (frame,) = FrameDecoder().feed(b"".join(encode_command(command)))
    response = decode_send_response(frame)
    assert (response.code, response.remark, response.stored.queue_offset) == (14, "no", -1)

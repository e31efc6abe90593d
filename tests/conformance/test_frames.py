"""Every recorded frame decodes to what was recorded and encodes to the same bytes."""

import tarfile
from base64 import b64encode
from pathlib import Path
from typing import IO, cast

import pytest

from ledgermq.remoting.protocol.bodies import (
    ConsumerIdList,
    HeartbeatData,
    LockBody,
    LockResult,
    RegisterBrokerBody,
    TopicRouteData,
    decode_body,
    decode_register_body,
    encode_body,
    encode_register_body,
)
from ledgermq.remoting.protocol.command import (
    decode_command,
    decode_head,
    encode_command,
    peek_code,
)
from ledgermq.remoting.protocol.frame import Frame, FrameDecoder
from ledgermq.remoting.protocol.headers import (
    decode_pull_header,
    decode_send_header,
    decode_update_offset_header,
    encode_pull_response_head,
    encode_send_response,
    header_fields,
)
from ledgermq.remoting.protocol.message import (
    FLAG_COMPRESSED,
    decode_batch,
    decode_record,
    decode_records,
    encode_batch,
    encode_record,
    parse_offset_message_id,
)
from ledgermq.remoting.protocol.properties import find_property
from ledgermq.remoting.protocol.tolerant_json import loads
from tests.fixtures import Recorded, route_of_5, store, stored_messages, wire, wire_names

NAMES = wire_names()
HOT = {
    310: decode_send_header,
    320: decode_send_header,
    11: decode_pull_header,
    15: decode_update_offset_header,
}
ROCKETMQ_4 = [name for name in NAMES if "broker533" not in name]


def frame_of(recorded: Recorded) -> Frame:
    (frame,) = FrameDecoder().feed(recorded.raw)
    return frame


@pytest.mark.parametrize("name", NAMES)
def test_recorded_header_decodes_and_encodes_to_the_same_bytes(name):
    for recorded in wire(name):
        frame = frame_of(recorded)
        command = decode_command(frame)
        header = recorded.header
        assert command.code == header["code"] == peek_code(frame)
        assert (command.flag, command.opaque) == (header["flag"], header["opaque"])
        assert command.version == header["version"]
        assert command.ext_fields == recorded.ext_fields
        assert (command.remark or "") == (header.get("remark") or "")
        head = decode_head(frame)
        assert (head.code, head.flag, head.opaque) == (command.code, command.flag, command.opaque)
        assert b"".join(encode_command(command)) == recorded.raw


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_stream_gives_the_same_frames_however_it_is_cut(name):
    stream = b"".join(recorded.raw for recorded in wire(name))
    whole = FrameDecoder().feed(stream)
    assert len(whole) == len(wire(name))
    for step in (7, 1000, 70_000):
        decoder = FrameDecoder()
        cut = [
            frame
            for start in range(0, len(stream), step)
            for frame in decoder.feed(stream[start : start + step])
        ]
        assert cut == whole
        assert decoder.partial_bytes == 0


@pytest.mark.parametrize("name", NAMES)
def test_hot_headers_decode_as_the_general_reader_does(name):
    for recorded in wire(name):
        decode = HOT.get(recorded.code)
        if recorded.kind == "response" or decode is None:
            continue
        opaque, flag, version, header = decode(frame_of(recorded))
        assert (opaque, flag, version) == tuple(
            recorded.header[name] for name in ("opaque", "flag", "version")
        )
        typed = header_fields(header)
        assert typed == {key: recorded.ext_fields[key] for key in typed}


@pytest.mark.parametrize("name", ROCKETMQ_4)
def test_response_templates_write_what_the_real_broker_wrote(name):
    for recorded in wire(name):
        if recorded.kind != "response":
            continue
        frame, fields = frame_of(recorded), recorded.ext_fields
        if recorded.answers in {310, 320} and recorded.code == 0 and "transactionId" not in fields:
            written = encode_send_response(
                recorded.header["opaque"],
                frame.serialize_type,
                fields["msgId"],
                int(fields["queueId"]),
                int(fields["queueOffset"]),
            )
        elif recorded.answers == 11 and "nextBeginOffset" in fields:
            written = encode_pull_response_head(
                recorded.header["opaque"],
                frame.serialize_type,
                recorded.code,
                recorded.header.get("remark"),
                int(fields["nextBeginOffset"]),
                int(fields["minOffset"]),
                int(fields["maxOffset"]),
                len(frame.body),
                int(fields["suggestWhichBrokerId"]),
            )
            written += frame.body
        else:
            continue
        assert written == recorded.raw


@pytest.mark.parametrize("name", NAMES)
def test_recorded_records_decode_and_encode_to_the_same_bytes(name):
    for recorded in wire(name):
        if recorded.kind != "response" or recorded.answers not in {11, 12, 33} or recorded.code:
            continue
        body = frame_of(recorded).body
        messages = decode_records(body, check_crc=True)
        assert b"".join(map(encode_record, messages)) == body
        for message in messages:
            parsed = parse_offset_message_id(message.offset_message_id())
            assert parsed[2] == message.physical_offset
            for key, value in message.property_map().items():
                assert find_property(message.properties, key.encode()) == value.encode()


def test_a_compressed_recorded_body_is_flagged_and_inflates():
    messages = [
        message
        for recorded in wire("java497_big")
        if recorded.kind == "response" and recorded.answers == 11 and recorded.code == 0
        for message in decode_records(frame_of(recorded).body)
    ]
    compressed = [message for message in messages if message.sys_flag & FLAG_COMPRESSED]
    assert compressed
    for message in compressed:
        assert len(message.content()) > 4096 > len(message.body)


@pytest.mark.parametrize("name", ["java497_batch"])
def test_recorded_batches_decode_and_encode_to_the_same_bytes(name):
    bodies = [frame_of(one).body for one in wire(name) if one.code == 320 and one.kind == "request"]
    assert bodies
    for body in bodies:
        elements = decode_batch(body)
        assert len(elements) > 1
        assert encode_batch(elements) == body
        assert all(b"UNIQ_KEY" in element.properties for element in elements)


@pytest.mark.parametrize("name", ROCKETMQ_4)
def test_recorded_json_bodies_read_and_write_the_same(name):
    requests = {34: HeartbeatData, 103: RegisterBrokerBody, 41: LockBody, 42: LockBody}
    responses = {105: TopicRouteData, 38: ConsumerIdList, 41: LockResult}
    for recorded in wire(name):
        body = frame_of(recorded).body
        answer = recorded.kind == "response"
        kinds, code = (responses, recorded.answers) if answer else (requests, recorded.code)
        kind = kinds.get(code or 0)
        if (
            kind is None
            or not body
            or name.startswith("java533")
            or (b'{"0"' not in body and b"{0:" in body)
        ):
            continue
        decoded = decode_body(body, kind)
        assert loads(encode_body(decoded)) == loads(route_of_5(body))
        if kind is RegisterBrokerBody:
            packed = encode_register_body(decoded, compressed=True)
            again = decode_register_body(packed, compressed=True)
            assert topics_of(again) == topics_of(decoded)


def test_a_route_is_written_as_the_name_server_5_3_3_writes_it():
    routes = [
        frame_of(recorded).body
        for recorded in wire("java533_broker533_produce")
        if recorded.kind == "response" and recorded.answers == 105 and recorded.code == 0
    ]
    assert any(b'"enableActingMaster":false' in body for body in routes)
    for body in routes:
        assert encode_body(decode_body(body, TopicRouteData)) == body


def test_records_on_disk_decode_to_what_the_client_saw_and_encode_to_the_same_bytes():
    segments = data_segments("dledger-4.9.7", "store-n0")
    rows = [row for row in stored_messages("dledger-4.9.7") if "msgId" in row]
    assert len(rows) > 100
    for row in rows:
        offset = row["commitLogOffset"]
        start = max(one for one in segments if one <= offset)
        position = offset - start
        message = decode_record(segments[start], position, check_crc=True)
        raw = segments[start][position : position + message.size]
        assert encode_record(message) == raw
        assert {
            "topic": message.topic,
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
            "commitLogOffset": message.physical_offset,
            "storeSize": message.size,
            "sysFlag": message.sys_flag,
            "flag": message.flag,
            "bodyCRC": message.body_crc,
            "bornTimestamp": message.born_timestamp,
            "storeTimestamp": message.store_timestamp,
            "reconsumeTimes": message.reconsume_times,
            "msgId": message.message_id(),
            "offsetMsgId": message.offset_message_id(),
            "bodyBase64": b64encode(message.content()).decode(),
        }.items() <= row.items()
        added_by_client = {"MIN_OFFSET", "MAX_OFFSET"}
        properties = message.property_map()
        seen = {key: text for key, text in row["properties"].items() if key not in added_by_client}
        assert properties == seen


def data_segments(name: str, replica: str) -> dict[int, bytes]:
    """Return the data segments of a replica by the offset at which each begins."""
    with tarfile.open(store(name)) as archive:
        return {
            int(Path(member.name).name): cast("IO[bytes]", archive.extractfile(member)).read()
            for member in archive
            if member.isfile() and replica in member.name and "/data/" in member.name
        }


def topics_of(body: RegisterBrokerBody) -> dict[str, tuple[int, int, int]]:
    """Return what the compressed form keeps of each topic."""
    return {
        name: (topic.read_queue_nums, topic.write_queue_nums, topic.perm)
        for name, topic in body.topic_config_serialize_wrapper.topic_config_table.items()
    }

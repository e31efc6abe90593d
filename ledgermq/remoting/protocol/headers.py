"""Typed custom headers: decoders for the hot requests, templates for their responses.

A hot request's whole JSON header is decoded in one pass, extFields included; whatever that pass
refuses (other key order is fine, odd types are not) takes the tolerant way of `command`. All other
headers are read from a command's ext_fields by `decode_header` and written by `header_fields`.

Source: SendMessageRequestHeaderV2, PullMessageRequestHeader, UpdateConsumerOffsetRequestHeader and
the other CommandCustomHeader classes (spec/wire.md 1.4, 1.6, 3).
"""

import struct
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from ledgermq.remoting.protocol.codes import VERSION, LanguageCode, SerializeType
from ledgermq.remoting.protocol.command import (
    FLAG_RESPONSE,
    RemotingCommand,
    decode_command,
    encode_command,
)
from ledgermq.remoting.protocol.errors import InvalidHeader
from ledgermq.remoting.protocol.frame import Frame, encode_frame
from ledgermq.remoting.protocol.limits import Int32, Int64
from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED

Header = TypeVar("Header", bound=msgspec.Struct)
Decoded = tuple[int, int, int, Header]
"""opaque, flag, version, header"""

DEFAULT_REGION: Final = "DefaultRegion"


class SendHeader(msgspec.Struct, gc=False):
    """Header of 310, 320, 325 (wire names of one letter); that of 10 and 324 has long names."""

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(name="c")
    default_topic_queue_nums: Int32 = msgspec.field(name="d")
    queue_id: Int32 = msgspec.field(name="e")
    sys_flag: Int32 = msgspec.field(name="f")
    born_timestamp: Int64 = msgspec.field(name="g")
    flag: Int32 = msgspec.field(name="h")
    properties: str | None = msgspec.field(name="i", default=None)
    reconsume_times: Int32 | None = msgspec.field(name="j", default=None)
    unit_mode: bool | None = msgspec.field(name="k", default=None)
    max_reconsume_times: Int32 | None = msgspec.field(name="l", default=None)
    batch: bool | None = msgspec.field(name="m", default=None)
    broker_name: str | None = msgspec.field(name="n", default=None)


class PullHeader(msgspec.Struct, gc=False, rename="camel"):
    """Header of 11 and 361."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32 = 0
    commit_offset: Int64 = 0
    suspend_timeout_millis: Int64 = 0
    subscription: str | None = None
    sub_version: Int64 = 0
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None


class Claim(StrEnum):
    """What a member says of a queue, in 14 and 15; an extension of ours."""

    IF_FREE = "ifFree"
    """It takes or keeps the queue, unless another member holds it."""
    ANYWAY = "anyway"
    """It takes the queue, whoever holds it."""
    NONE = "none"
    """It lets go of the queue."""


class UpdateOffsetHeader(msgspec.Struct, gc=False, rename="camel"):
    """Header of 15."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64
    claim: Claim | None = None


HELD_BY_FIELD = "heldBy"
"""Of the answer to 14: the client id of the member that still holds a queue that was claimed."""
STORED_FIELD = "stored"
"""Of the answer to 14, where the asker wants to know whether there is an offset: a 0 was committed.
A broker of RocketMQ 4.9 knows no such question, and its 0 may mean that there is none."""


class QueryOffsetHeader(msgspec.Struct, gc=False, rename="camel"):
    """Header of 14."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None
    claim: Claim | None = None


class QueueHeader(msgspec.Struct, gc=False, rename="camel"):
    """Header of 30, 31 and 32."""

    topic: str
    queue_id: Int32


class SearchOffsetHeader(msgspec.Struct, gc=False, rename="camel"):
    """Header of 29; ``timestamp`` is wall time in milliseconds."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None


class CreateTopicHeader(msgspec.Struct, gc=False, rename="camel"):
    """Header of 17."""

    topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    default_topic: str = "TBW102"
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None


class ConsumerGroupHeader(msgspec.Struct, gc=False, rename="camel"):
    """Header of 38 and 40."""

    consumer_group: str


class SendBackHeader(msgspec.Struct, gc=False, rename="camel"):
    """Header of 36; ``offset`` is the physical offset of the message."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None


class EndTransactionHeader(msgspec.Struct, gc=False, rename="camel"):
    """Header of 37; ``commit_or_rollback`` is 0 (unknown), 8 or 12."""

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str | None = None
    transaction_id: str | None = None


class CheckTransactionHeader(msgspec.Struct, gc=False, rename="camel"):
    """Header of 39."""

    commit_log_offset: Int64
    msg_id: str | None
    tran_state_table_offset: Int64
    offset_msg_id: str | None
    transaction_id: str | None


class RegisterBrokerHeader(msgspec.Struct, gc=False, rename="camel"):
    """Header of 103; ``body_crc32`` 0 means unchecked.

    ``raft_term`` is ours: the term in which a member of a Raft group leads, -1 outside of one.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64
    ha_server_addr: str = ""
    compressed: bool = False
    body_crc32: Int64 = msgspec.field(name="bodyCrc32", default=0)
    raft_term: Int64 = -1


class BrokerHeader(msgspec.Struct, gc=False, rename="camel"):
    """Header of 104 and 322."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class RouteHeader(msgspec.Struct, gc=False, rename="camel"):
    """Header of 105."""

    topic: str
    accept_standard_json_only: bool | None = None


class DeleteTopicHeader(msgspec.Struct, gc=False, rename="camel"):
    """Header of 215 and 216; only RocketMQ 5 names the cluster."""

    topic: str
    cluster_name: str | None = None


class ClusterHeader(msgspec.Struct, gc=False):
    """Header of 224."""

    cluster: str


class BrokerNameHeader(msgspec.Struct, gc=False, rename="camel"):
    """Header of 205 and 327."""

    broker_name: str


class KvHeader(msgspec.Struct, gc=False, rename="camel"):
    """Header of 100, 101, 102 and 219; only 100 has a value, 219 has no key."""

    namespace: str
    key: str = ""
    value: str = ""


def decode_header(command: RemotingCommand, kind: type[Header]) -> Header:
    """Return a command's ext_fields as a typed header.

    Errors: `InvalidHeader` naming the field that is missing or wrong.
    """
    try:
        return msgspec.convert(command.ext_fields, kind, strict=False)
    except NOT_DECODED as error:
        raise InvalidHeader(f"request {command.code}: {error}") from error


def header_fields(header: msgspec.Struct) -> dict[str, str]:
    """Return a typed header as ext_fields; None is left out."""
    fields = msgspec.to_builtins(header)
    return {name: _text(value) for name, value in fields.items() if value is not None}


def hot_decoder(
    kind: type[Header], long_form: type[msgspec.Struct] | None = None
) -> Callable[[Frame], tuple[int, int, int, Header]]:
    """Return a decoder of frames whose extFields are ``kind``: opaque, flag, version, header.

    ``long_form`` has the same members under the wire names of code 10. The decoder raises
    `InvalidHeader` for a missing or wrong field and `RemoteProtocolError` for a broken header.
    """
    envelope: Any = msgspec.defstruct(
        f"{kind.__name__}Envelope",
        [("extFields", kind), ("opaque", Int32), ("flag", Int32, 0), ("version", Int32, 0)],
        gc=False,
    )
    decode = msgspec.json.Decoder(envelope, strict=False).decode

    def decode_frame(frame: Frame) -> tuple[int, int, int, Header]:
        try:
            if not frame.serialize_type:
                found = decode(frame.header)
                return found.opaque, found.flag, found.version, found.extFields
        except NOT_DECODED:
            pass
        command = decode_command(frame)
        header = _decode_either(command, kind, long_form)
        return command.opaque, command.flag, command.version, header

    return decode_frame


def _decode_either(
    command: RemotingCommand, kind: type[Header], long_form: type[msgspec.Struct] | None
) -> Header:
    if long_form is not None and command.code in _LONG_CODES:
        return kind(*msgspec.structs.astuple(decode_header(command, long_form)))
    return decode_header(command, kind)


_LONG_CODES: Final = frozenset({10, 324})

_LongSendHeader: Final = msgspec.defstruct(
    "_LongSendHeader",
    [
        ("producerGroup", str),
        ("topic", str),
        ("defaultTopic", str),
        ("defaultTopicQueueNums", Int32),
        ("queueId", Int32),
        ("sysFlag", Int32),
        ("bornTimestamp", Int64),
        ("flag", Int32),
        ("properties", str | None, None),
        ("reconsumeTimes", Int32 | None, None),
        ("unitMode", bool | None, None),
        ("maxReconsumeTimes", Int32 | None, None),
        ("batch", bool | None, None),
        ("bname", str | None, None),
    ],
)

decode_send_header: Final = hot_decoder(SendHeader, _LongSendHeader)


def decode_send_command(command: RemotingCommand) -> SendHeader:
    """Return the header of a send or a reply that is decoded as a command; `InvalidHeader`."""
    return _decode_either(command, SendHeader, _LongSendHeader)


decode_pull_header: Final = hot_decoder(PullHeader)
decode_update_offset_header: Final = hot_decoder(UpdateOffsetHeader)


# Response templates. The order of fields is that of the recorded 4.9.7 responses.

_HEAD_TAIL: Final = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION
_BINARY_HEAD: Final = struct.Struct(">hbhii")
_UINT32: Final = struct.Struct(">I")
_PREFIX: Final = struct.Struct(">II")
_JSON: Final = int(SerializeType.JSON)


def region_fields(region: str, *, trace_on: bool = True) -> dict[str, str]:
    """Return what each answer to a send says beside the rest, a refusal as well."""
    return {"TRACE_ON": "true" if trace_on else "false", "MSG_REGION": region}


class SendResponseEncoder:
    """Writes send responses for one region and trace setting; they hold no other fixed values."""

    __slots__ = ("_binary_tail", "_fields", "_template")

    def __init__(self, region: str = DEFAULT_REGION, *, trace_on: bool = True) -> None:
        self._fields = region_fields(region, trace_on=trace_on)
        trace = self._fields["TRACE_ON"]
        quoted = msgspec.json.encode(region).replace(b"%", b"%%")
        self._template = (
            b'{"code":0,"extFields":{"queueId":"%%d","TRACE_ON":"%b","MSG_REGION":%b,'
            b'"msgId":"%%b","queueOffset":"%%d"},"flag":1,"language":"JAVA","opaque":%%d%b'
            % (trace.encode(), quoted, _HEAD_TAIL)
        )
        self._binary_tail = _binary_entry("TRACE_ON", trace) + _binary_entry("MSG_REGION", region)

    def encode(
        self,
        opaque: int,
        serialize_type: int,
        msg_id: str,
        queue_id: int,
        queue_offset: int,
        transaction_id: str | None = None,
    ) -> bytes:
        """Return the whole frame of a successful response; ``msg_id`` is hex and commas."""
        if transaction_id is not None or serialize_type:
            return self._encode_slow(
                opaque, serialize_type, msg_id, (queue_id, queue_offset), transaction_id
            )
        header = self._template % (queue_id, msg_id.encode(), queue_offset, opaque)
        size = len(header)
        return _PREFIX.pack(4 + size, size) + header

    def _encode_slow(
        self,
        opaque: int,
        serialize_type: int,
        msg_id: str,
        place: tuple[int, int],
        transaction_id: str | None,
    ) -> bytes:
        queue_id, queue_offset = place
        if transaction_id is None:
            fields = b"".join(
                (
                    _binary_entry("msgId", msg_id),
                    _binary_entry("queueId", str(queue_id)),
                    _binary_entry("queueOffset", str(queue_offset)),
                    self._binary_tail,
                )
            )
            return encode_frame(serialize_type, _binary_header(0, opaque, b"", fields))
        ext_fields = {
            "msgId": msg_id,
            "queueId": str(queue_id),
            "queueOffset": str(queue_offset),
            "transactionId": transaction_id,
        }
        command = RemotingCommand(
            0, FLAG_RESPONSE, opaque, ext_fields=ext_fields | self._fields,
            serialize_type=serialize_type,
        )  # fmt: skip
        return b"".join(encode_command(command))


def encode_send_response(
    opaque: int,
    serialize_type: int,
    msg_id: str,
    queue_id: int,
    queue_offset: int,
    transaction_id: str | None = None,
) -> bytes:
    """Return the whole frame of a successful send response of the default region, tracing on."""
    return _default_send_response(
        opaque, serialize_type, msg_id, queue_id, queue_offset, transaction_id
    )


_PULL_TEMPLATE: Final = (
    b'{"code":%%d,"extFields":{"suggestWhichBrokerId":"%%d","nextBeginOffset":"%%d",'
    b'"maxOffset":"%%d","minOffset":"%%d"},"flag":1,"language":"JAVA","opaque":%%d%%b%b'
    % _HEAD_TAIL
)


def encode_pull_response_head(  # noqa: PLR0913, PLR0917 - one call, not an object per response
    opaque: int,
    serialize_type: int,
    code: int,
    remark: str | None,
    next_offset: int,
    min_offset: int,
    max_offset: int,
    body_bytes: int,
    suggest_broker_id: int = 0,
) -> bytes:
    """Return prefix and header of a pull response whose body buffers follow by themselves."""
    if serialize_type == _JSON:
        text = b"" if remark is None else b',"remark":' + msgspec.json.encode(remark)
        header = _PULL_TEMPLATE % (
            code, suggest_broker_id, next_offset, max_offset, min_offset, opaque, text,
        )  # fmt: skip
    else:
        fields = b"".join(
            (
                _binary_entry("suggestWhichBrokerId", str(suggest_broker_id)),
                _binary_entry("nextBeginOffset", str(next_offset)),
                _binary_entry("minOffset", str(min_offset)),
                _binary_entry("maxOffset", str(max_offset)),
            )
        )
        header = _binary_header(code, opaque, (remark or "").encode(), fields)
    return encode_frame(serialize_type, header, body_bytes)


def _binary_header(code: int, opaque: int, remark: bytes, fields: bytes) -> bytes:
    head = _BINARY_HEAD.pack(code, LanguageCode.JAVA, VERSION, opaque, FLAG_RESPONSE)
    return b"".join((head, _UINT32.pack(len(remark)), remark, _UINT32.pack(len(fields)), fields))


def _binary_entry(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return len(key).to_bytes(2, "big") + key + _UINT32.pack(len(text)) + text


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_default_send_response: Final = SendResponseEncoder().encode

"""Bytes of send requests and answers, made for the hot path.

Pure. A request is the 8-byte frame prefix, a JSON header and the body (spec/wire.md 1.1, 1.6). All
that does not change between two sends to the same queue is rendered once into a ``%`` template,
so a header costs one formatting. Source: MQClientAPIImpl.sendMessage, MessageBatch.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from ledgermq.client.errors import InvalidMessage
from ledgermq.client.message import Message, MessageQueue, SendStatus
from ledgermq.client.validation import (
    check_attributes,
    check_body,
    check_properties_size,
    check_topic,
)
from ledgermq.remoting.protocol.access import AccountKey
from ledgermq.remoting.protocol.codes import VERSION, RequestCode, SerializeType
from ledgermq.remoting.protocol.command import decode_command, encode_command
from ledgermq.remoting.protocol.compression import COMPRESSED_ZLIB, compress
from ledgermq.remoting.protocol.errors import RemoteProtocolError, for_code
from ledgermq.remoting.protocol.frame import Frame
from ledgermq.remoting.protocol.headers import DEFAULT_REGION
from ledgermq.remoting.protocol.limits import BATCH_MESSAGES_MAX
from ledgermq.remoting.protocol.message import BatchElement, encode_batch
from ledgermq.remoting.protocol.properties import MSG_REGION, SHARDING_KEY
from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED

BATCH_COUNT_MAX = int(BATCH_MESSAGES_MAX)
"""What a broker of ours takes; others take more, and nothing is gained by it."""

ELEMENT_BYTES_MAX = 97
"""What a message of a group takes beyond its body and attributes: lengths and the unique key."""

_PREFIX = struct.Struct(">II")
_STORED = {int(status): status for status in SendStatus}
_SEND = b'"code":%d,' % RequestCode.SEND_MESSAGE_V2
_REPLY = b'"code":%d,' % RequestCode.SEND_REPLY_MESSAGE_V2
_BATCH_PROPERTIES = "WAIT\x01true"
_BATCH_PROPERTIES_JSON = msgspec.json.encode(_BATCH_PROPERTIES)[1:-1]


class Outgoing(msgspec.Struct, gc=False):
    """A message or batch that passed validation, rendered except for its queue."""

    topic: str
    msg_id: str
    properties_json: bytes
    """Property text as the inside of a JSON string."""
    body: bytes
    sys_flag: int
    flag: int
    born_ms: int
    batch: bool
    reply: bool = False
    """Whether the broker is to pass it on to who asked, instead of to consumers."""


class SendTarget:
    """A queue with the header templates for it.

    The template takes sys flag, born time, user flag, properties, command flag and opaque.
    """

    __slots__ = ("account", "broker_name", "queue", "single", "whole")

    def __init__(
        self,
        group: str,
        queue: MessageQueue,
        default_topic: str,
        queues: int,
        account: AccountKey | None = None,
    ) -> None:
        self.queue = queue
        self.account = account
        """What signs each send, if anything does."""
        self.broker_name = queue.broker_name
        fixed = [group, queue.topic, default_topic, str(queues), str(queue.queue_id)]
        self.single = _template(RequestCode.SEND_MESSAGE_V2, fixed, queue.broker_name, "false")
        self.whole = _template(RequestCode.SEND_BATCH_MESSAGE, fixed, queue.broker_name, "true")


class SendExtFields(msgspec.Struct, gc=False, rename="camel"):
    """What a send response says about the stored message; absent in refusals."""

    msg_id: str = ""
    queue_id: int = -1
    queue_offset: int = -1
    region: str = msgspec.field(name=MSG_REGION, default=DEFAULT_REGION)


class SendResponse(msgspec.Struct, gc=False, rename={"stored": "extFields"}):
    """The part of a send response that the producer reads."""

    code: int
    remark: str | None = None
    stored: SendExtFields | None = None


_decode_json = msgspec.json.Decoder(SendResponse, strict=False).decode


def decode_send_response(frame: Frame) -> SendResponse:
    """Return what a response to a send says; raises ``RemoteProtocolError``.

    A header that is not plain JSON (binary, or numbers in odd forms) takes the slow path.
    """
    if frame.serialize_type == SerializeType.JSON:
        try:
            return _decode_json(frame.header)
        except NOT_DECODED:
            pass
    command = decode_command(frame)
    fields = command.ext_fields
    try:
        stored = SendExtFields(
            fields.get("msgId", ""),
            int(fields.get("queueId", "-1")),
            int(fields.get("queueOffset", "-1")),
            fields.get(MSG_REGION, DEFAULT_REGION),
        )
    except ValueError as error:
        raise RemoteProtocolError(f"send response with fields {str(fields)[:300]}") from error
    return SendResponse(command.code, command.remark, stored)


def decode_acknowledgement(frame: Frame) -> tuple[SendStatus, SendExtFields]:
    """Return how and where a message (or the first one of a batch) was stored.

    Errors: `ResponseError` for any other answer, `RemoteProtocolError`.
    """
    response = decode_send_response(frame)
    stored = response.stored
    status = _STORED.get(response.code)
    if status is None or stored is None or stored.queue_offset < 0:
        raise for_code(response.code, response.remark)
    return status, stored


def encode_send(target: SendTarget, outgoing: Outgoing, opaque: int, command_flag: int) -> bytes:
    """Return frame prefix and header; the body follows as its own buffer."""
    template = target.whole if outgoing.batch else target.single
    if outgoing.reply:
        template = template.replace(_SEND, _REPLY, 1)
    header = template % (
        outgoing.sys_flag,
        outgoing.born_ms,
        outgoing.flag,
        outgoing.properties_json,
        command_flag,
        opaque,
    )
    if target.account is not None:
        return _signed(target.account, header, outgoing.body)
    size = len(header)
    return _PREFIX.pack(4 + size + len(outgoing.body), size) + header


def _signed(account: AccountKey, header: bytes, body: bytes) -> bytes:
    """Return frame prefix and header of a send, signed."""
    return encode_command(account.sign(decode_command(Frame(SerializeType.JSON, header, body))))[0]


def prepare_single(
    message: Message,
    msg_id: str,
    born_ms: int,
    *,
    max_bytes: int,
    compress_over: int,
    own: Mapping[str, str] | None = None,
) -> Outgoing:
    """Validate and render one message; raises ``InvalidMessage``.

    ``own`` are properties of the client's own, which users must not set.
    """
    body = message.body
    check_body(body, max_bytes)
    sys_flag = 0
    if compress_over and len(body) > compress_over:
        body, sys_flag = compress(body), COMPRESSED_ZLIB
    properties = encode_properties(message, msg_id)
    if own:
        properties += "".join(f"\x02{name}\x01{value}" for name, value in own.items())
        check_properties_size(properties)
    return Outgoing(
        message.topic,
        msg_id,
        msgspec.json.encode(properties)[1:-1],
        body,
        sys_flag,
        message.flag,
        born_ms,
        False,  # noqa: FBT003 - positional, because this is the hot path
    )


def prepare_batch(
    messages: Sequence[Message], msg_ids: Sequence[str], born_ms: int, *, max_bytes: int
) -> Outgoing:
    """Validate and render a batch; raises ``InvalidMessage``.

    A batch has one topic, no delayed messages, is not for a retry topic, and all its elements
    together keep the limit of a single body.
    """
    if not messages:
        raise InvalidMessage("a batch needs at least one message")
    if len(messages) > BATCH_COUNT_MAX:
        raise InvalidMessage(f"batch of {len(messages)} messages, the limit is {BATCH_COUNT_MAX}")
    topic = messages[0].topic
    check_topic(topic)
    if topic.startswith("%RETRY%"):
        raise InvalidMessage(f"topic {topic!r}: a batch must not go to a retry topic")
    elements: list[BatchElement] = []
    for message, msg_id in zip(messages, msg_ids, strict=True):
        if message.topic != topic:
            raise InvalidMessage(f"batch holds topics {topic!r} and {message.topic!r}")
        if message.delay_level:
            raise InvalidMessage("a batch must not hold delayed messages")
        check_body(message.body, max_bytes)
        properties = encode_properties(message, msg_id).encode()
        elements.append(BatchElement(message.body, properties, message.flag))
    body = encode_batch(elements)
    if len(body) > max_bytes:
        raise InvalidMessage(
            f"batch of {len(body)} bytes, the limit is {max_bytes}: use split_batch"
        )
    return Outgoing(
        topic=topic,
        msg_id=",".join(msg_ids),
        properties_json=_BATCH_PROPERTIES_JSON,
        body=body,
        sys_flag=0,
        flag=0,
        born_ms=born_ms,
        batch=True,
    )


def render_group(
    topic: str, messages: Iterable[tuple[Message, bytes]], msg_ids: Iterable[str], born_ms: int
) -> Outgoing:
    """Return messages that were validated one by one, each with its attributes, as a batch."""
    elements = [
        BatchElement(
            message.body,
            f"UNIQ_KEY\x01{msg_id}\x02WAIT\x01true".encode() + attributes,
            message.flag,
        )
        for (message, attributes), msg_id in zip(messages, msg_ids, strict=True)
    ]
    return Outgoing(
        topic=topic,
        msg_id="",
        properties_json=_BATCH_PROPERTIES_JSON,
        body=encode_batch(elements),
        sys_flag=0,
        flag=0,
        born_ms=born_ms,
        batch=True,
    )


def split_batch(messages: Sequence[Message], max_bytes: int = 1_048_576) -> Iterator[list[Message]]:
    """Cut a list into batches of at most ``max_bytes`` each, in order.

    The size of an element is estimated from above. A single message over the limit gets a batch
    of its own, which the producer then judges.
    """
    batch: list[Message] = []
    used = 0
    for message in messages:
        size = _element_size_max(message)
        if batch and (used + size > max_bytes or len(batch) == BATCH_COUNT_MAX):
            yield batch
            batch, used = [], 0
        batch.append(message)
        used += size
    if batch:
        yield batch


def encode_properties(message: Message, msg_id: str) -> str:
    """Return the property text of ``message``; raises ``InvalidMessage``.

    Plain messages, the common case, pay only for the unique key.
    """
    text = f"UNIQ_KEY\x01{msg_id}\x02WAIT\x01true"
    if not (
        message.tags
        or message.keys
        or message.properties
        or message.delay_level
        or message.flag
        or message.sharding_key
    ):
        return text
    text += encode_attributes(message)
    check_properties_size(text)
    return text


def encode_attributes(message: Message) -> str:
    """Return the properties that the user gave, as they follow our own; checks the flag too.

    Errors: `InvalidMessage`. The size of it all is checked by whoever puts it together.
    """
    check_attributes(message)
    parts = [""]
    if message.keys:
        parts.append(f"KEYS\x01{message.keys}")
    if message.tags:
        parts.append(f"TAGS\x01{message.tags}")
    if message.delay_level:
        parts.append(f"DELAY\x01{message.delay_level}")
    if message.sharding_key:
        parts.append(f"{SHARDING_KEY}\x01{message.sharding_key}")
    parts += [f"{name}\x01{value}" for name, value in message.properties.items()]
    return "\x02".join(parts)


def _element_size_max(message: Message) -> int:
    text = len(message.tags) + len(message.keys) + len(message.sharding_key)
    text += sum(len(name) + len(value) + 2 for name, value in message.properties.items())
    return 22 + len(message.body) + 100 + 4 * text


def _template(code: int, fixed: Sequence[str], broker_name: str, batch: str) -> bytes:
    fields = [f'"{key}":{_json(value)}' for key, value in zip("abcde", fixed, strict=True)]
    return (
        f'{{"code":{int(code)},"extFields":{{{",".join(fields)},"f":"%d","g":"%d","h":"%d",'
        f'"i":"%b","j":"0","k":"false","m":"{batch}","n":{_json(broker_name)}}},'
        f'"flag":%d,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON",'
        f'"version":{VERSION}}}'
    ).encode()


def _json(text: str) -> str:
    """Return ``text`` as a JSON string, safe inside a ``%`` template."""
    return msgspec.json.encode(text).decode().replace("%", "%%")

"""What the client refuses before anything is sent.

Pure. The limits are those of spec/wire.md 4.7; the errors name the value and the limit.
"""

import re
from collections.abc import Iterable

from ledgermq.client.errors import InvalidMessage
from ledgermq.client.message import Message

TOPIC_CHARS_MAX = 127
GROUP_CHARS_MAX = 255
PROPERTIES_BYTES_MAX = 32_767
DELAY_LEVEL_MAX = 18
INT32_MAX = 2**31 - 1

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")

_RESERVED = """
    KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET
    BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION
    TRACE_ON UNIQ_KEY EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME INNER_NUM INNER_BASE
    DUP_INFO CHECK_IMMUNITY_TIME_IN_SECONDS TRAN_PREPARED_QUEUE_OFFSET __transactionId__
    TRANSACTION_CHECK_TIMES INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME
    PUSH_REPLY_TIME CLUSTER MSG_TYPE POP_CK POP_CK_OFFSET 1ST_POP_TIME __SHARDINGKEY
    PROPERTY_FORWARD_QUEUE_ID REDIRECT INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET TRACE_CONTEXT
    TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS
    TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP
    DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID __CRC32#
"""
RESERVED_PROPERTIES = frozenset(_RESERVED.split())
"""Property names that the protocol uses itself (spec/wire.md 4.4); users may not set them."""


def check_topic(topic: str) -> None:
    """Raise ``InvalidMessage`` unless ``topic`` is a legal topic name."""
    _check_name("topic", topic, TOPIC_CHARS_MAX)


def check_group(group: str) -> None:
    """Raise ``InvalidMessage`` unless ``group`` is a legal group name."""
    _check_name("group", group, GROUP_CHARS_MAX)


def check_body(body: bytes, max_bytes: int) -> None:
    """Raise ``InvalidMessage`` unless ``body`` is bytes of a legal size."""
    if not isinstance(body, bytes):
        raise InvalidMessage(f"body must be bytes, not {type(body).__name__}")
    if not body:
        raise InvalidMessage("body is empty; a message needs at least one byte")
    if len(body) > max_bytes:
        raise InvalidMessage(f"body has {len(body)} bytes, the limit is {max_bytes}")


def check_attributes(message: Message) -> None:
    """Raise ``InvalidMessage`` unless properties, tags, keys, flag and delay level are legal."""
    for name, value in message.properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidMessage(f"property {name!r}={value!r}: both must be text")
        if name in RESERVED_PROPERTIES:
            raise InvalidMessage(f"property {name!r} is reserved by the protocol")
        if not name or not value:
            raise InvalidMessage(f"property {name!r}={value!r}: neither may be empty")
        check_separators(f"property {name!r}", name + value)
    check_separators("tags", message.tags)
    check_separators("keys", message.keys)
    check_separators("sharding_key", message.sharding_key)
    _check_numbers(message)


def _check_numbers(message: Message) -> None:
    if not isinstance(message.delay_level, int) or isinstance(message.delay_level, bool):
        raise InvalidMessage(f"delay_level must be a whole number, not {message.delay_level!r}")
    if not 0 <= message.delay_level <= DELAY_LEVEL_MAX:
        raise InvalidMessage(f"delay_level {message.delay_level} is not in 0..{DELAY_LEVEL_MAX}")
    if not isinstance(message.flag, int):
        raise InvalidMessage(f"flag must be a whole number, not {type(message.flag).__name__}")
    if not -INT32_MAX - 1 <= message.flag <= INT32_MAX:
        raise InvalidMessage(f"flag {message.flag} does not fit 32 bits")


def check_same_key(messages: Iterable[Message]) -> None:
    """Raise ``InvalidMessage`` if messages of one batch belong into different queues."""
    keys = {message.sharding_key for message in messages}
    if len(keys) > 1:
        raise InvalidMessage(
            f"a batch holds messages of {len(keys)} sharding keys, and has one queue"
        )


def check_properties_size(properties: str) -> None:
    """Raise ``InvalidMessage`` if the encoded properties are too long for the record."""
    if len(properties) * 4 <= PROPERTIES_BYTES_MAX:
        return
    size_bytes = len(properties.encode())
    if size_bytes > PROPERTIES_BYTES_MAX:
        raise InvalidMessage(
            f"properties take {size_bytes} bytes, the limit is {PROPERTIES_BYTES_MAX}"
        )


def check_separators(what: str, text: str) -> None:
    """Raise ``InvalidMessage`` for what is no text, or holds a byte that separates properties.

    Half a surrogate pair is no text either: no UTF-8 has it.
    """
    if not isinstance(text, str):
        raise InvalidMessage(f"{what} must be text, not {text!r}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidMessage(f"{what} {text!r} is no Unicode text") from error
    if "\x01" in text or "\x02" in text:
        raise InvalidMessage(f"{what} must not contain the characters 1 and 2")


def _check_name(kind: str, name: str, max_chars: int) -> None:
    if not isinstance(name, str):
        raise InvalidMessage(f"{kind} must be text, not {type(name).__name__}")
    if not name.strip():
        raise InvalidMessage(f"{kind} is blank")
    if len(name) > max_chars:
        raise InvalidMessage(f"{kind} has {len(name)} characters, the limit is {max_chars}")
    if not _NAME.fullmatch(name):
        raise InvalidMessage(f"{kind} {name!r}: only letters, digits and %|_- are allowed")

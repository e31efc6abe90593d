"""Pulled records made ready for users: body decompressed, original topic restored.

Pure but for one log line. Source: PullAPIWrapper.processPullResult, ConsumeMessageConcurrently-
Service.resetRetryAndNamespace.
"""

import logging

from ledgermq.client.limits import PULLED_CONTENT_BYTES_MAX
from ledgermq.remoting.protocol.compression import (
    CONTENT_BYTES_MAX,
    TYPE_MASK,
    ContentTooLarge,
)
from ledgermq.remoting.protocol.errors import ProtocolError, RemoteProtocolError
from ledgermq.remoting.protocol.message import FLAG_COMPRESSED, MessageExt, decode_records
from ledgermq.remoting.protocol.properties import RETRY_TOPIC

_log = logging.getLogger(__name__)


def decode_pulled(body: bytes) -> tuple[list[MessageExt], bool]:
    """Return the messages of an answer, and whether these are all of them.

    They are not where decompressing all would take too much memory. Errors:
    ``RemoteProtocolError`` if they are no records. A body that cannot be decompressed is handed on
    as it is, with its flag: refusing it would stop the queue for ever.
    """
    messages = decode_records(body)
    inflated_bytes = 0
    for number, message in enumerate(messages):
        if message.sys_flag & FLAG_COMPRESSED:
            if inflated_bytes >= PULLED_CONTENT_BYTES_MAX:
                return messages[:number], False
            inflated_bytes += inflate(message)
    return messages, True


def decode_found(body: bytes) -> list[MessageExt]:
    """Return the messages of an answer to a query: all of them, whatever they inflate to.

    Anybody may put bombs under a key. So those that come when enough has been decompressed are
    handed on as they are, with their flag; `MessageExt.content` reads each. Errors:
    ``RemoteProtocolError`` if they are no records.
    """
    messages = decode_records(body)
    inflated_bytes = 0
    for message in messages:
        if message.sys_flag & FLAG_COMPRESSED and inflated_bytes < PULLED_CONTENT_BYTES_MAX:
            inflated_bytes += inflate(message)
    return messages


def inflate(message: MessageExt) -> int:
    """Decompress a body in place; return how many bytes came out, used or not.

    One that cannot be decompressed stays as it is, with its flag.
    """
    try:
        message.body = message.content()
    except ProtocolError as error:
        offset = message.queue_offset
        _log.warning("topic=%s offset=%d body=unreadable %s", message.topic, offset, error)
        return CONTENT_BYTES_MAX if isinstance(error, ContentTooLarge) else 0
    message.sys_flag &= ~(FLAG_COMPRESSED | TYPE_MASK)
    return len(message.body)


def check_places(messages: list[MessageExt], begin: int, end: int, count_max: int) -> None:
    """Refuse what no pull from ``begin`` on can have found. Errors: `RemoteProtocolError`.

    The bookkeeping of a queue relies on offsets that rise: a message that comes again and again
    would never count against what may be cached.
    """
    if len(messages) > count_max:
        raise RemoteProtocolError(f"{len(messages)} messages where {count_max} were asked for")
    offset = begin - 1
    for message in messages:
        if not offset < message.queue_offset < end:
            raise RemoteProtocolError(
                f"queue offset {message.queue_offset} where one of {offset + 1} to {end} was due"
            )
        offset = message.queue_offset


def restore_topic(message: MessageExt) -> MessageExt:
    """Give a message from the retry topic its own topic back (in place) and return it."""
    topic = message.maybe_property(RETRY_TOPIC)
    if topic:
        message.topic = topic
    return message

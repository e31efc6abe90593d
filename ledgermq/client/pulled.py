"""Pulled records made ready for users: body decompressed, original topic restored.

Pure but for one log line. Source: PullAPIWrapper.processPullResult, ConsumeMessageConcurrently-
Service.resetRetryAndNamespace.
"""

import logging

from ledgermq.remoting.protocol.compression import TYPE_MASK
from ledgermq.remoting.protocol.errors import ProtocolError
from ledgermq.remoting.protocol.message import FLAG_COMPRESSED, MessageExt, decode_records
from ledgermq.remoting.protocol.properties import RETRY_TOPIC

_log = logging.getLogger(__name__)


def decode_pulled(body: bytes) -> list[MessageExt]:
    """Return the messages of a pull; raises ``RemoteProtocolError`` if they are no records.

    A body that cannot be decompressed is handed on as it is, with its flag: refusing it would
    stop the queue for ever.
    """
    messages = decode_records(body)
    for message in messages:
        if message.sys_flag & FLAG_COMPRESSED:
            try:
                message.body = message.content()
            except ProtocolError as error:
                offset = message.queue_offset
                _log.warning("topic=%s offset=%d body=unreadable %s", message.topic, offset, error)
                continue
            message.sys_flag &= ~(FLAG_COMPRESSED | TYPE_MASK)
    return messages


def restore_topic(message: MessageExt) -> MessageExt:
    """Give a message from the retry topic its own topic back (in place) and return it."""
    topic = message.maybe_property(RETRY_TOPIC)
    if topic:
        message.topic = topic
    return message

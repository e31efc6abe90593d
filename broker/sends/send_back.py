"""What becomes of a message that a consumer could not consume: another delivery, or a dead letter.

A copy of it goes to the retry topic of the consumer's group, with the delay of its level; a message
that was delivered too often, or whose consumer gives it up, goes to the dead-letter topic, where
nobody delivers it again. The copy says which message it was (ORIGIN_MESSAGE_ID) and of which topic
(RETRY_TOPIC). Clients that cannot have the broker copy send the copy themselves, as an ordinary
message to the retry topic: `dead_letter` tells which of these are dead.
Pure. Source: spec/wire.md 3.4, 7.4, 7.5; RocketMQ SendMessageProcessor.asyncConsumerSendMsgBack and
handleRetryAndDLQ (4.9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from broker.sends.properties import pairs_of
from broker.sends.rules import KEPT_FLAGS
from broker.sends.schedule import with_properties
from broker.state.topic_config import DLQ_PREFIX, RETRY_PREFIX, send_back_topic
from ledgermq.remoting.protocol.properties import find_property
from store.layout import tags_code
from store.results import PutMessage

if TYPE_CHECKING:
    from broker.state.subscription import SubscriptionGroupConfig
    from ledgermq.remoting.protocol.bodies import TopicConfig
    from ledgermq.remoting.protocol.headers import SendBackHeader, SendHeader
    from ledgermq.remoting.protocol.message import MessageExt

FIRST_LEVEL: Final = 3
"""The delay level of the first retry where the consumer asks for none; each further one is one
higher."""
DEAD_LETTER_QUEUES: Final = 1
_TIMES_MAX: Final = 0x7FFF_FFFF
_NOT_OF_THE_DEAD: Final = ("DELAY\x01", "TRAN_MSG\x01")
"""Clients before 4.6.1 leave in a retry that it was half a transaction."""


class Destination(NamedTuple):
    """Where the copy of a message goes."""

    topic: TopicConfig
    """As it is created if it is missing."""
    delay_level: int
    """0 for a dead letter."""


def destination_of(
    message: MessageExt, group: SubscriptionGroupConfig, header: SendBackHeader
) -> Destination:
    """Return where a message goes that a consumer of ``group`` gives back."""
    times, level = message.reconsume_times, header.delay_level
    if level < 0 or times >= _times_max(group, header.max_reconsume_times):
        topic = DLQ_PREFIX + group.group_name
        return Destination(send_back_topic(topic, DEAD_LETTER_QUEUES), 0)
    topic = RETRY_PREFIX + group.group_name
    level = level or max(FIRST_LEVEL + times, 1)
    return Destination(send_back_topic(topic, group.retry_queue_nums), level)


def copy_of(message: MessageExt, destination: Destination, queue_id: int) -> PutMessage:
    """Return the copy of a message, for that queue; its properties say its delay level."""
    properties = _properties(message, destination.delay_level)
    return PutMessage(
        destination.topic.topic_name.encode(),
        queue_id,
        message.flag,
        message.sys_flag & KEPT_FLAGS,
        message.born_timestamp,
        message.born_host,
        min(message.reconsume_times + 1, _TIMES_MAX),
        0,
        properties,
        message.body,
        tags_code(properties),
    )


def dead_letter(header: SendHeader, group: SubscriptionGroupConfig, *, is_orderly: bool) -> bool:
    """Tell whether a send to the retry topic of ``group`` was delivered too often.

    It is the client's copy, so that its delivery counts already. An orderly consumer of Java 4.9
    counts no further one: it sends only what has no more to come, with the limit itself. In the
    retry topic that would come again without end. RocketMQ 4.9 takes the limit as too often of
    all, and 5 whatever comes of a group that has locked queues.
    """
    times_max = _times_max(group, header.max_reconsume_times)
    return (header.reconsume_times or 0) > (times_max - 1 if is_orderly else times_max)


def direct_to_dead_letters(header: SendHeader, group: SubscriptionGroupConfig) -> None:
    """Change a send so that it goes to the dead letters of ``group``, at once."""
    header.topic = DLQ_PREFIX + group.group_name
    header.queue_id = 0
    header.default_topic = ""
    if header.properties is not None:
        items = header.properties.split("\x02")
        kept = [one for one in items if not one.startswith(_NOT_OF_THE_DEAD)]
        header.properties = "\x02".join(kept)


def _times_max(group: SubscriptionGroupConfig, asked: int | None) -> int:
    """Return how often a message is delivered again: what the client says, else the group.

    RocketMQ takes a negative number literally, and all is dead at once; clients mean "whatever is
    usual" by it.
    """
    return group.retry_max_times if asked is None or asked < 0 else asked


def _properties(message: MessageExt, delay_level: int) -> bytes:
    """Return the properties of the copy, in the order in which RocketMQ stores them."""
    kept: list[bytes] = []
    for item in pairs_of(message.properties):
        # A store of RocketMQ's may hold a value with a separator in it, of which readers differ.
        name, value = item.split(b"\x01", 2)[:2]
        if value:
            kept.append(name + b"\x01" + value)
    text = b"\x02".join(kept)
    topic = find_property(text, b"RETRY_TOPIC") or message.topic.encode()
    origin = find_property(text, b"ORIGIN_MESSAGE_ID") or message.offset_message_id().encode()
    return with_properties(
        text,
        (
            (b"RETRY_TOPIC", topic),
            (b"WAIT", b"false"),
            (b"DELAY", b"%d" % delay_level),
            (b"ORIGIN_MESSAGE_ID", origin),
        ),
    )

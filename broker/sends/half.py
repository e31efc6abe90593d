"""Half a transaction as it waits for its end: as it lies in RocketMQ's half topic. Pure.

Its properties say where it belongs. The bits of sysFlag that say "prepared" are not in it, so that
it has a place in the queue of that topic, by which its end is told.
Source: spec/wire.md 7.8; RocketMQ 4.9.7 TransactionalMessageBridge.parseHalfMessageInner.
"""

from __future__ import annotations

from broker.sends.schedule import with_properties
from store.layout import HALF_TOPIC_BYTES
from store.results import PutMessage


def half_of(message: PutMessage) -> PutMessage:
    """Return a message as it waits for the end of its transaction."""
    text = with_properties(
        message.properties,
        ((b"REAL_TOPIC", message.topic), (b"REAL_QID", b"%d" % message.queue_id)),
    )
    return PutMessage(
        HALF_TOPIC_BYTES,
        0,
        message.flag,
        message.sys_flag,
        message.born_timestamp,
        message.born_host,
        message.reconsume_times,
        0,
        text,
        message.body,
        message.tags_code,
    )

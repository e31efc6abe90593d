"""A message with a delay level in its scheduled form: as it waits in RocketMQ's schedule topic.

It lies in ``SCHEDULE_TOPIC_XXXX``, in the queue of its level, and its properties say where it
belongs. Whoever stores a message with a delay passes it through here: a send, or a message that a
consumer gave back. When it is due is the store's to say, which stamps it. Pure.
Source: spec/wire.md 7.4; RocketMQ 4.9.7 CommitLog.asyncPutMessage, where the properties are written
anew from their map.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from broker.limits import PLAN_NAMES_MAX, PLANS_MAX, REMEMBERED_BYTES_MAX
from broker.sends.properties import items_of, java_map_order
from broker.sends.rules import level_of
from ledgermq.remoting.protocol.properties import find_property
from store.layout import SCHEDULE_TOPIC_BYTES
from store.results import PutMessage

if TYPE_CHECKING:
    from collections.abc import Sequence


def scheduled(message: PutMessage, level: int, level_max: int) -> PutMessage:
    """Return ``message`` as it waits for ``level``, which is above 0.

    A level above the highest counts as the highest. The properties may have grown beyond what a
    record can hold: the store refuses it then.
    """
    level = min(level, level_max)
    text = with_properties(
        message.properties,
        (
            (b"DELAY", b"%d" % level),
            (b"REAL_TOPIC", message.topic),
            (b"REAL_QID", b"%d" % message.queue_id),
        ),
    )
    return PutMessage(
        SCHEDULE_TOPIC_BYTES,
        level - 1,
        message.flag,
        message.sys_flag,
        message.born_timestamp,
        message.born_host,
        message.reconsume_times,
        message.prepared_offset,
        text,
        message.body,
        0,
    )


def scheduled_if_delayed(message: PutMessage, level_max: int) -> PutMessage:
    """Return a stored message that is put once more as it waits for its level, if it has one."""
    digits = find_property(message.properties, b"DELAY")
    level = level_of(digits) if digits else 0
    return scheduled(message, level, level_max) if level else message


def with_properties(text: bytes, values: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return a stored property text with values set, in the order in which Java writes its map."""
    items = {item.partition(b"\x01")[0]: item for item in items_of(text)}
    for name, value in values:
        items[name] = name + b"\x01" + value
    pairs = list(items.values())
    names = tuple(items)
    is_short = len(names) <= PLAN_NAMES_MAX and sum(map(len, names)) <= REMEMBERED_BYTES_MAX
    order = _known_order(names) if is_short else _order(names)
    return b"\x02".join([pairs[i] for i in order])


def _order(names: tuple[bytes, ...]) -> list[int]:
    return java_map_order([name.decode("utf-8", "replace") for name in names])


_known_order = lru_cache(maxsize=int(PLANS_MAX))(_order)

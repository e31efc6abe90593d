"""What a master tells a slave of its tables, read and checked like any input. Pure.

A body that is no such table, or more than a broker may hold, is refused. A row whose name or number
no client could have made is left out, and counted: RocketMQ keeps offsets under any name.
Source: RocketMQ TopicConfigSerializeWrapper, ConsumerOffsetSerializeWrapper,
DelayOffsetSerializeWrapper, SubscriptionGroupWrapper; fixtures of a slave that joins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from broker.limits import GROUPS_MAX, OFFSETS_BYTES_MAX, TOPIC_QUEUES_MAX, TOPICS_BYTES_MAX
from broker.state.consumer_offset import OffsetMap, room_of
from broker.state.subscription import SubscriptionGroupConfig, group_name_is_valid
from broker.state.topic_config import FILTER_TYPES, PERM_MAX, topic_name_error
from ledgermq.remoting.protocol.bodies import KvTable, TopicConfig, decode_answer
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.limits import Int32, Int64  # noqa: TC001 - msgspec reads them

if TYPE_CHECKING:
    from collections.abc import Mapping

RETRIES_MIN: Final = -1
LEVELS_MAX: Final = 64
"""Levels of delay that a master may tell of; RocketMQ has 18."""
_LOG_END: Final = "commitLogMaxOffset"
_DIGITS_MAX: Final = 19
"""Of an int64."""


class _Topics(msgspec.Struct, rename="camel"):
    topic_config_table: dict[str, TopicConfig]


class _Groups(msgspec.Struct, rename="camel"):
    subscription_group_table: dict[str, SubscriptionGroupConfig]


class _Offsets(msgspec.Struct, rename="camel"):
    offset_table: dict[str, dict[Int32, Int64]]


class _Delays(msgspec.Struct, rename="camel"):
    offset_table: dict[Int32, Int64]


class Told(msgspec.Struct, frozen=True):
    """The tables of a master, as it told them in one round."""

    topics: dict[str, TopicConfig]
    groups: dict[str, SubscriptionGroupConfig]
    offsets: OffsetMap
    delays: dict[int, int]
    """By queue of the schedule topic, the first offset that is not delivered."""
    log_end: int
    """Where its log ended after it had told the rest: what that speaks of lies before."""
    left_out: int
    """Rows with a name or a number that cannot be."""


def read_tables(bodies: Mapping[str, bytes]) -> Told:
    """Return what the bodies of 21, 201, 43, 45 and 28 say, by these numbers.

    Errors: `RemoteProtocolError`.
    """
    topics = decode_answer(bodies["21"], _Topics).topic_config_table
    groups = decode_answer(bodies["201"], _Groups).subscription_group_table
    offsets = decode_answer(bodies["43"], _Offsets).offset_table
    delays = decode_answer(bodies["45"], _Delays).offset_table if bodies["45"].strip() else {}
    good_topics = {name: one for name, one in topics.items() if _is_topic(name, one)}
    good_groups = {name: one for name, one in groups.items() if _is_group(name, one)}
    good_offsets = {key: rows for key, rows in offsets.items() if _are_offsets(key, rows)}
    good_delays = {level - 1: at for level, at in delays.items() if _is_delay(level, at)}
    _check_sizes(good_topics, good_groups, good_offsets)
    count = len(topics) + len(groups) + len(offsets) + len(delays)
    kept = len(good_topics) + len(good_groups) + len(good_offsets) + len(good_delays)
    return Told(
        good_topics, good_groups, good_offsets, good_delays, _log_end(bodies["28"]), count - kept
    )


def _check_sizes(
    topics: Mapping[str, TopicConfig],
    groups: Mapping[str, SubscriptionGroupConfig],
    offsets: OffsetMap,
) -> None:
    size = sum(len(name) + len(msgspec.json.encode(one)) + 4 for name, one in topics.items())
    room = sum(room_of(key) * len(rows) for key, rows in offsets.items())
    for what, used, limit in (
        ("topics", size, TOPICS_BYTES_MAX),
        ("consumer groups", len(groups), GROUPS_MAX),
        ("consumer offsets", room, OFFSETS_BYTES_MAX),
    ):
        if used > limit:
            raise RemoteProtocolError(f"{what}: {used}, more than {limit}")


def _is_topic(name: str, config: TopicConfig) -> bool:
    return (
        name == config.topic_name
        and topic_name_error(name) is None
        and 0 <= config.read_queue_nums <= TOPIC_QUEUES_MAX
        and 0 <= config.write_queue_nums <= TOPIC_QUEUES_MAX
        and 0 <= config.perm <= PERM_MAX
        and config.topic_filter_type in FILTER_TYPES
    )


def _is_group(name: str, config: SubscriptionGroupConfig) -> bool:
    return (
        name == config.group_name
        and group_name_is_valid(name)
        and 0 <= config.retry_queue_nums <= TOPIC_QUEUES_MAX
        and config.retry_max_times >= RETRIES_MIN
    )


def _are_offsets(key: str, rows: dict[int, int]) -> bool:
    topic, at, group = key.rpartition("@")
    return (
        bool(at)
        and topic_name_error(topic) is None
        and group_name_is_valid(group)
        and all(0 <= queue_id < TOPIC_QUEUES_MAX for queue_id in rows)
    )


def _is_delay(level: int, offset: int) -> bool:
    return 1 <= level <= LEVELS_MAX and offset >= 0


def _log_end(body: bytes) -> int:
    """Return where a log ends. Errors: `RemoteProtocolError`."""
    text = decode_answer(body, KvTable).table.get(_LOG_END, "")
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    if not is_number or int(text) >= 2**63:
        raise RemoteProtocolError(f"{_LOG_END}={text[:20]!r}: a place in a log is expected")
    return int(text)

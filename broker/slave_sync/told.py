"""What a master tells a slave of its tables, read and checked like any input. Pure.

A body that is no such table, or more than a broker may hold, is refused. A row whose name or number
no client could have made is left out, and counted: RocketMQ keeps offsets under any name.
Source: RocketMQ TopicConfigSerializeWrapper, ConsumerOffsetSerializeWrapper,
DelayOffsetSerializeWrapper, SubscriptionGroupWrapper; fixtures of a slave that joins.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from broker.limits import (
    GROUPS_MAX,
    OFFSETS_BYTES_MAX,
    TOLD_BYTES_MAX,
    TOLD_ROW_BYTES_MAX,
    TOPIC_QUEUES_MAX,
    TOPICS_BYTES_MAX,
)
from broker.state.consumer_offset import OffsetMap, room_of
from broker.state.subscription import SubscriptionGroupConfig, group_name_is_valid
from broker.state.topic_config import FILTER_TYPES, PERM_MAX, topic_name_error
from ledgermq.remoting.protocol.bodies import KvTable, TopicConfig, decode_answer
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.limits import Int32, Int64
from ledgermq.remoting.protocol.tolerant_json import ANSWER, NOT_DECODED, check_reach

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

Row = TypeVar("Row")
ROWS_PER_STEP: Final = 250
"""Read in one turn of the loop: a millisecond."""

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


def read_steps(bodies: Mapping[str, Sequence[bytes]]) -> Generator[None, None, Told]:
    """Return what the bodies of 21, 201, 43, 45 and 28 say, by these numbers, read slice by slice.

    Errors: `RemoteProtocolError`.
    """
    topics = yield from _TOPICS.read(bodies["21"])
    groups = yield from _GROUPS.read(bodies["201"])
    offsets = yield from _OFFSETS.read(bodies["43"])
    delays = _read_delays(_small(b"".join(bodies["45"])))
    good_delays = {level - 1: at for level, at in delays.items() if _is_delay(level, at)}
    left_out = topics[1] + groups[1] + offsets[1] + len(delays) - len(good_delays)
    log_end = _log_end(_small(b"".join(bodies["28"])))
    return Told(topics[0], groups[0], offsets[0], good_delays, log_end, left_out)


class _Table(Generic[Row]):
    """One table: a member of a body, the kind of its rows, which of them can be, and its limit."""

    def __init__(
        self,
        what: str,
        body: type[msgspec.Struct],
        kind: Any,  # noqa: ANN401 - what msgspec takes for a type
        is_good: Callable[[str, Row], bool],
        weigh: Callable[[str, Row], int],
        limit: int,
    ) -> None:
        self._what, self._body, self._is_good = what, body, is_good
        self._weigh, self._limit = weigh, limit
        (self._member,) = body.__struct_fields__
        self._raw = msgspec.defstruct(
            "Raw", [(self._member, dict[str, msgspec.Raw])], rename="camel"
        )
        self._decode = msgspec.json.Decoder(kind, strict=False).decode

    def read(self, pages: Sequence[bytes]) -> Generator[None, None, tuple[dict[str, Row], int]]:
        """Return the rows that can be, and how many cannot. Errors: `RemoteProtocolError`."""
        good: dict[str, Row] = {}
        used = left_out = 0
        for page in pages:
            for number, (name, row) in enumerate(self._rows(page), 1):
                if self._is_good(name, row):
                    used += self._weigh(name, row)
                    good[name] = row
                else:
                    left_out += 1
                if used > self._limit:
                    raise RemoteProtocolError(f"{self._what}: {used}, more than {self._limit}")
                if number % ROWS_PER_STEP == 0:
                    yield
            yield
        return good, left_out

    def _rows(self, page: bytes) -> Iterator[tuple[str, Row]]:
        """Return names and rows, each read when it is asked for, where a body is strict JSON.

        Errors: `RemoteProtocolError`.
        """
        check_reach(page, ANSWER)
        if b'"$ref"' not in page:
            with suppress(*NOT_DECODED):
                raw = msgspec.json.decode(page, type=self._raw)
                return self._read_each(getattr(raw, self._member))
        return iter(getattr(decode_answer(page, self._body), self._member).items())

    def _read_each(self, raw: dict[str, msgspec.Raw]) -> Iterator[tuple[str, Row]]:
        for name, text in raw.items():
            if len(text) > TOLD_ROW_BYTES_MAX:  # it is read in one turn of the loop
                raise RemoteProtocolError(f"a row of {self._what} has {len(text)} bytes")
            try:
                yield name, self._decode(text)
            except NOT_DECODED as error:
                raise RemoteProtocolError(f"no row of {self._what}: {error}"[:300]) from error


def _weigh_topic(name: str, config: TopicConfig) -> int:
    return len(name) + len(msgspec.json.encode(config)) + 4


def _small(body: bytes) -> bytes:
    """Return a body that is read in one turn of the loop. Errors: `RemoteProtocolError`."""
    if len(body) > TOLD_BYTES_MAX:
        raise RemoteProtocolError(f"{len(body)} bytes, and {TOLD_BYTES_MAX:d} are plenty")
    return body


def _read_delays(body: bytes) -> dict[int, int]:
    return decode_answer(body, _Delays).offset_table if body.strip() else {}


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


_TOPICS: Final = _Table[TopicConfig](
    "topics", _Topics, TopicConfig, _is_topic, _weigh_topic, TOPICS_BYTES_MAX
)
_GROUPS: Final = _Table[SubscriptionGroupConfig](
    "consumer groups", _Groups, SubscriptionGroupConfig, _is_group, lambda *_: 1, GROUPS_MAX
)
_OFFSETS: Final = _Table[dict[int, int]](
    "consumer offsets",
    _Offsets,
    dict[Int32, Int64],
    _are_offsets,
    lambda key, rows: room_of(key) * len(rows),
    OFFSETS_BYTES_MAX,
)

"""OFFSET_MOVED_EVENT: a message for each consumer that was told to go on at another offset.

A pull answered 21 (PULL_OFFSET_MOVED) may mean that messages were dropped before their consumer had
them. RocketMQ's master stores that in a system topic, so that it can be monitored by consuming it;
so does a broker here, if it leads. The message has the group as tag and as key, and in its body who
asked for what and where to go on.

The pull never waits for it, and nobody hears whether it was stored. RocketMQ stores one for each
such answer. A client that heeds 21 does not ask again for 10 s, so of each group and queue one in
that time is stored here: the same for it, and a client that does not heed cannot fill the log.
Source: spec/wire.md 3.5; RocketMQ 4.9.7 PullMessageProcessor, OffsetMovedEvent.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

import msgspec

from broker.leader.service import LeaderService
from broker.sends.properties import java_map_order
from ledgermq.remoting.protocol.properties import (
    DELAY,
    KEYS,
    TAGS,
    format_properties,
    java_string_hash,
)
from store.results import PutMessage, PutStatus

if TYPE_CHECKING:
    from broker.pulls.long_polling import HeldPull
    from ledgermq.runtime.clock import Clock
    from store.results import PutCallback

TOPIC: Final = "OFFSET_MOVED_EVENT"
PERIOD_MS: Final = 10_000
"""The broker stores one event of a group and queue in this time (monotonic)."""
REMEMBERED_MAX: Final = 4_096
"""The broker remembers this many groups and queues for that; beyond them it stores no event."""

_log = logging.getLogger(__name__)
_NAMES: Final = (TAGS, DELAY, KEYS)
_STORED_NAMES: Final = tuple(_NAMES[i] for i in java_map_order(_NAMES))


class _MessageQueue(msgspec.Struct, rename="camel"):
    broker_name: str
    queue_id: int
    topic: str


class OffsetMovedEvent(msgspec.Struct, rename="camel"):
    """The body of a message of the topic, in JSON with the members in this order."""

    consumer_group: str
    message_queue: _MessageQueue
    offset_new: int
    offset_request: int


class EventStore(Protocol):
    """What is needed of the store."""

    def put(self, message: PutMessage, done: PutCallback) -> None:
        """Store a message, or say why not."""


class OffsetMovedEvents(LeaderService):
    """Stores the events of one broker.

    Args:
        broker_name: the name that clients know the broker, or its group, by.
        broker_host: its packed address.
    """

    name: ClassVar = "offset moved events"

    def __init__(
        self, store: EventStore, clock: Clock, *, broker_name: str, broker_host: bytes
    ) -> None:
        self._store = store
        self._clock = clock
        self._broker_name = broker_name
        self._broker_host = broker_host
        self._stored_ms: dict[tuple[str, str, int], int] = {}
        """When the last event was stored, the longest ago first."""

    def stop(self) -> None:
        """Forget what was stored: the next term stores anew."""
        self._stored_ms.clear()

    def on_moved(self, pull: HeldPull, next_offset: int) -> None:
        """Take that ``pull`` was told to go on at ``next_offset``."""
        now_ms = self._clock.monotonic_ms()
        if not self._is_due((pull.group, pull.topic, pull.queue_id), now_ms):
            return
        _log.warning(
            "event=offset_moved group=%s topic=%s queue=%d offset_request=%d offset_new=%d",
            pull.group, pull.topic, pull.queue_id, pull.offset, next_offset,
        )  # fmt: skip
        group, queue = pull.group, _MessageQueue(self._broker_name, pull.queue_id, pull.topic)
        values = {TAGS: group, DELAY: "0", KEYS: group}
        self._store.put(
            PutMessage(
                topic=TOPIC.encode(),
                queue_id=0,
                flag=0,
                sys_flag=0,
                born_timestamp=self._clock.wall_ms(),
                born_host=self._broker_host,
                reconsume_times=0,
                prepared_offset=0,
                properties=format_properties({name: values[name] for name in _STORED_NAMES}),
                body=msgspec.json.encode(OffsetMovedEvent(group, queue, next_offset, pull.offset)),
                tags_code=java_string_hash(group),
            ),
            _note_failure,
        )

    def _is_due(self, key: tuple[str, str, int], now_ms: int) -> bool:
        """Tell whether an event of this group and queue is due, and take it for stored if so."""
        stored_ms = self._stored_ms
        while stored_ms:
            oldest = next(iter(stored_ms))
            if now_ms - stored_ms[oldest] < PERIOD_MS:
                break
            del stored_ms[oldest]
        if key in stored_ms or len(stored_ms) >= REMEMBERED_MAX:
            return False
        stored_ms[key] = now_ms
        return True


def _note_failure(status: PutStatus, _queue_offset: int, _physical_offset: int) -> None:
    """Hear how a put ended; as in RocketMQ nothing comes of it."""
    if not status.is_stored:
        _log.warning("event=offset_moved_not_stored status=%s", status.name)

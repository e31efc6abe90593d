"""Messages by key: the index says where they may be, the log what they are.

A candidate of the index counts only if its record has the topic and the key asked for, so that
neither another key of the same hash nor damage in an index file brings up a wrong message. It
changes nothing. Source: spec/wire.md 3.8; spec/disk.md 5.4; RocketMQ
DefaultMessageStore.queryMessage.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.message import PROPERTIES_BYTES_MAX
from store.index import Span, search
from store.index.keys import has_key
from store.layout import read_record, store_timestamp

if TYPE_CHECKING:
    from store.config import IndexConfig
    from store.index.key_index import KeyIndex

ROUNDS_MAX: Final = 3
"""A round that found only messages of other keys is followed by one for the time before them."""
ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of records in one answer, if it is more than one record; the newest are kept."""

ReadMessage = Callable[[int], memoryview | None]
"""``(physical offset)``: the committed record there, see `Reader.message_at`."""


class KeyResult(msgspec.Struct, gc=False):
    """Messages of one key, oldest first, and how far the index reaches."""

    records: list[memoryview]
    last_timestamp: int = 0
    """Store timestamp (ms) of the newest message in the index, if it was looked at."""
    last_physical: int = 0


class KeyQuery:
    """Answers what has a key."""

    def __init__(self, config: "IndexConfig", index: "KeyIndex", read: ReadMessage) -> None:
        self._config = config
        self._index = index
        self._read = read

    def find(self, topic: str, key: str, limit: int, span: tuple[int, int]) -> KeyResult:
        """Return at most ``limit`` messages of a topic whose unique key or one of KEYS is ``key``.

        ``span``: first and last store time, ms; times are compared in whole seconds from the first
        message of an index file, as RocketMQ does. The newest are taken, and returned oldest first.
        Errors: `DamagedEntry` if there is none but one that is damaged on this disk; `OSError`.
        """
        begin, end = span
        limit = min(limit, self._config.offsets_max)
        wanted = topic.encode("utf-8", "replace"), key.encode("utf-8", "replace")
        result = KeyResult([])
        corrupt: DamagedEntry | None = None
        if limit <= 0 or not key or max(map(len, wanted)) > PROPERTIES_BYTES_MAX:
            return result  # no message has so long a key, and hashing it would take time
        # Candidates may be of other keys: so there are more of them than are wanted, and a later
        # round leaves out those that were looked at, for the index knows whole seconds only.
        steps, count = self._config.steps_max, self._config.offsets_max
        looked: set[int] = set()
        for _ in range(ROUNDS_MAX):
            found = search(self._index, wanted, count, Span(begin, end), steps, looked)
            if not found.physicals:
                break
            looked.update(found.physicals)
            result.last_timestamp, result.last_physical = found.last_timestamp, found.last_physical
            try:
                result.records, end = self._read_all(sorted(found.physicals), wanted, limit, end)
            except DamagedEntry as error:
                corrupt = error
            if result.records or end < begin:
                break
        if corrupt is not None and not result.records:
            raise corrupt
        return result

    def _read_all(
        self, physicals: list[int], wanted: tuple[bytes, bytes], limit: int, end: int
    ) -> tuple[list[memoryview], int]:
        """Return the newest ``limit`` wanted records, oldest first, and the oldest time looked at.

        Errors: `DamagedEntry` if no record is left and one is damaged.
        """
        topic, key = wanted
        records: list[memoryview] = []
        total = 0
        corrupt: DamagedEntry | None = None
        for physical in reversed(physicals):
            if len(records) == limit:
                break
            try:
                record = self._read(physical)
            except DamagedEntry as error:
                corrupt = error
                continue
            if record is None:
                continue
            end = store_timestamp(record)
            *_, its_topic, properties = read_record(record)
            if its_topic == topic and has_key(properties, key):
                total += len(record)
                if records and total > ANSWER_BYTES_MAX:
                    break
                records.append(record)
        if corrupt is not None and not records:
            raise corrupt
        return records[::-1], end

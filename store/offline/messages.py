"""The messages of a store as rows: what a consumer would get, read from the log.

In the order of the log, one at a time. The names of the fields are those that a Java client's
message has. Like a client, a row has the limits of its queue among its properties, and its body as
the producer gave it. Source: spec/wire.md 4.1, 4.3; MessageExt, MessageDecoder.
"""

from __future__ import annotations

import os
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dledger.codec.entry import HEADER_BYTES
from ledgermq.remoting.protocol.errors import ProtocolError, RemoteProtocolError
from ledgermq.remoting.protocol.message import decode_record
from ledgermq.remoting.protocol.message_row import message_row
from store.offline.files import ReadError
from store.offline.findings import Findings
from store.offline.log import LogWalk, Progress
from store.offline.queues import GAP_SIZE, QueueKey, Queues
from store.offline.records import Damage, Record
from store.offline.small_files import check_tables, configured_queues, read_promises

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.offline.folder import LogFolder, StoreFolder

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which messages; None selects all."""

    topic: str | None = None
    queue_id: int | None = None
    first: int | None = None
    """Lowest queue offset."""
    last: int | None = None
    """Highest queue offset."""
    since_ms: int | None = None
    until_ms: int | None = None
    """Stored at or after the one, before the other."""
    limit: int | None = None
    """So many at most."""

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Tell whether it selects messages of a queue."""
        return self.topic in (None, topic) and self.queue_id in (None, queue_id)

    def has(self, record: Record) -> bool:
        """Tell whether it selects a message."""
        return (
            self.queue_id in (None, record.queue_id)
            and (self.first is None or record.queue_offset >= self.first)
            and (self.last is None or record.queue_offset <= self.last)
            and (self.since_ms is None or record.stored >= self.since_ms)
            and (self.until_ms is None or record.stored < self.until_ms)
            and self.topic in (None, record.name)
        )

    def is_last(self, record: Record) -> bool:
        """Tell whether it is the last one that is selected, of one queue."""
        one_queue = self.topic == record.name and self.queue_id == record.queue_id
        return one_queue and self.last is not None and record.queue_offset == self.last


class Dump:
    """Messages of a store, and the limits of its queues."""

    def __init__(
        self, folder: StoreFolder, selection: Selection, progress: Progress | None = None
    ) -> None:
        """Look at the queues. Errors: none; queues that cannot be read have no limits yet."""
        self._folder = folder
        self._selection = selection
        self._progress = progress
        self._promises = read_promises(folder, Findings())
        self._limits: dict[QueueKey, tuple[int, int]] = {}
        self._start: int | None = None
        self._last_physical: int | None = None
        """Where the unit of the last selected message of one queue says that it lies."""
        self.damages: list[tuple[str, int, str]] = []
        """File, offset and reason of what could not be read."""
        self.tail: tuple[str, int, str] | None = None
        """The same of what lies behind the log's end, where that is not empty."""
        self._read_limits()

    def queue_rows(self) -> Iterator[Row]:
        """Yield a row for each selected queue: its first and its next offset."""
        for (topic, queue_id), (low, high) in sorted(self._limits.items()):
            name = topic.decode("utf-8", "replace")
            if self._selection.has_queue(name, queue_id):
                queue = {"topic": name, "queueId": queue_id, "min": low, "max": high}
                yield {"queue": queue}

    def message_rows(self) -> Iterator[Row]:
        """Yield a row for each selected message."""
        left = self._selection.limit
        for record in self._records():
            if left is not None and left <= 0:
                return
            if record.is_queued and self._selection.has(record):
                row = self._row(record)
                if row is not None:
                    left = None if left is None else left - 1
                    yield row
            # A queue that was made again counts anew: only its unit tells which one is the last.
            if record.physical == self._last_physical and self._selection.is_last(record):
                return

    def _records(self) -> Iterator[Record]:
        for log in self._folder.logs:
            walk = self._walk(log, self._start, check=True)
            for item in walk.run():
                if isinstance(item, Damage):
                    self.damages.append((item.path, item.offset, item.reason))
                    continue
                if item.problem:
                    self.damages.append((item.path, item.offset, item.problem))
                yield item
            end = walk.end
            if end.unread:
                self.damages.append((end.path, end.offset, f"cannot be read: {end.unread}"))
            elif end.reason:
                self.tail = (end.path, end.offset, end.reason)

    def _walk(self, log: LogFolder, start: int | None, *, check: bool) -> LogWalk:
        begin = self._promises.begin if log is self._folder.dledger else None
        if start is not None and start >= log.segments.start:
            begin = (max(start, begin[0] if begin else 0), -1)
        return LogWalk(log, begin=begin, check=check, progress=self._progress if check else None)

    def _row(self, record: Record) -> Row | None:
        """Return the row of a message; None if it is none, which is noted."""
        try:
            message = decode_record(record.view)
        except RemoteProtocolError as error:
            self.damages.append((record.path, record.offset, str(error)))
            return None
        try:
            body = message.content()
        except ProtocolError as error:
            self.damages.append((record.path, record.offset, f"{error}; given as it is stored"))
            body = message.body
        key = (record.topic, record.queue_id)
        low, high = self._limits.get(key, (record.queue_offset, 0))
        if record.queue_offset >= high:
            high = record.queue_offset + 1
            self._limits[key] = (low, high)
        row = message_row(message)
        limits = {"MIN_OFFSET": str(low), "MAX_OFFSET": str(high)}
        row["properties"] = dict(sorted((row["properties"] | limits).items()))
        row["bodyBase64"] = b64encode(body).decode()
        return row

    # The limits of the queues

    def _read_limits(self) -> None:
        """Take limits from the queues, and go on where dispatch has not come to."""
        begin = self._folder.logs[0].segments.start
        if self._promises.begin is not None and len(self._folder.logs) == 1:
            begin = self._promises.begin[0]
        queues = Queues(self._folder.path("consumequeue"))
        dispatched = begin
        try:
            for key, queue in queues.by_key.items():
                try:
                    low, high = queue.begin(begin), queue.end
                    unit = queue.unit(high - 1)
                except ReadError as error:
                    self.damages.append((error.path, error.offset, error.reason))
                    continue
                self._limits[key] = (min(low, high), high)
                if unit is not None and 0 < unit[1] < GAP_SIZE:
                    dispatched = max(dispatched, unit[0] + unit[1])
            with suppress(ReadError):  # told of already
                self._find_start(queues)
        finally:
            queues.close()
        self._read_tail(begin, dispatched)
        self._add_configured()

    def _read_tail(self, begin: int, dispatched: int) -> None:
        """Count messages behind the last one that a queue has."""
        last = self._folder.logs[-1].segments
        end = last.files[-1].base + last.files[-1].size if last.files else 0
        start = dispatched if begin < dispatched <= end else None
        for log in self._folder.logs:
            for item in self._walk(log, start, check=False).run():
                if isinstance(item, Record) and item.is_queued and item.topic:
                    key, offset = (item.topic, item.queue_id), item.queue_offset
                    low, high = self._limits.get(key, (offset, offset))
                    self._limits[key] = (low, max(high, offset + 1))

    def _add_configured(self) -> None:
        """Add queues that are configured for a topic with messages, and have none."""
        if self._folder.is_lone:
            return
        counts = configured_queues(check_tables(self._folder, Findings()))
        for topic in {topic for topic, _ in self._limits}:
            for queue_id in range(min(counts.get(os.fsdecode(topic), 0), 1 << 16)):
                self._limits.setdefault((topic, queue_id), (0, 0))

    def _find_start(self, queues: Queues) -> None:
        """Find where in the log the first selected message of one queue lies, and the last."""
        chosen = self._selection
        if chosen.topic is None or chosen.queue_id is None:
            return
        key = (os.fsencode(chosen.topic), chosen.queue_id)
        queue = queues.by_key.get(key)
        if queue is None:
            return
        if chosen.last is not None and (unit := queue.unit(chosen.last)) is not None:
            self._last_physical = unit[0]
        unit = queue.unit(chosen.first) if chosen.first else None
        if unit is None or not 0 < unit[1] < GAP_SIZE:
            return
        for log in self._folder.logs:
            start = unit[0] - (HEADER_BYTES if log is self._folder.dledger else 0)
            found = next(self._walk(log, start, check=False).run(), None)
            if isinstance(found, Record) and found.physical == unit[0]:
                is_it = (found.topic, found.queue_id) == key and found.queue_offset == chosen.first
                self._start = start if is_it else None  # else the unit is damaged: look at all
                return

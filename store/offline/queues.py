"""The consume queues of a store as they lie there: which there are, their units, their limits.

Nothing is believed: names, sizes and units may be anything. Source: spec/disk.md 5.3.
"""

import os
from collections import Counter
from collections.abc import Callable
from typing import Final

from store.layout import GAP_UNIT, LIGHT_QUEUE_PREFIX, UNIT, UNIT_BYTES
from store.offline.bytes_row import BlockCache, ByteRow
from store.offline.files import can_list, directories_in, is_directory, names_in, read_row
from store.queues.names import may_be_queue, may_be_topic

Unit = tuple[int, int, int]
"""Physical offset, size, tags code."""
QueueKey = tuple[bytes, int]

QUEUE_ID_MAX: Final = 0x7FFFFFFF
GAP_SIZE: Final = UNIT.unpack(GAP_UNIT)[1]
UNITS_PER_BLOCK: Final = 512
_LIGHT: Final = LIGHT_QUEUE_PREFIX.encode()


class Queue:
    """One queue: its files, and where they say that it ends."""

    __slots__ = ("_bytes", "_end", "queue_id", "topic")

    def __init__(self, topic: bytes, queue_id: int, row: ByteRow) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._bytes = row
        self._end: int | None = None

    @property
    def files(self) -> ByteRow:
        """Its files."""
        return self._bytes

    @property
    def name(self) -> str:
        """Topic and queue id."""
        return f"{self.topic.decode('utf-8', 'backslashreplace')}/{self.queue_id}"

    @property
    def is_light(self) -> bool:
        """Whether RocketMQ fills it with messages of other topics; a broker of ours does not."""
        return self.topic.startswith(_LIGHT)

    @property
    def first(self) -> int:
        """Offset of the first unit that the files have room for."""
        return -(-self._bytes.row.start // UNIT_BYTES)

    @property
    def end(self) -> int:
        """Offset behind the last unit that is not zero. Errors: `ReadError`."""
        if self._end is None:
            self._end = max(self.first, -(-self._bytes.nonzero_end() // UNIT_BYTES))
        return self._end

    def unit(self, offset: int) -> Unit | None:
        """Return a unit, None if there is none: never written, or no file. Errors: `ReadError`."""
        if offset < 0:
            return None
        data = self._bytes.read(offset * UNIT_BYTES, UNIT_BYTES)
        if len(data) < UNIT_BYTES or not any(data):
            return None
        physical, size, code = UNIT.unpack(data)
        return physical, size, code

    def place(self, offset: int) -> tuple[str, int]:
        """Return file and byte of a unit."""
        return self._bytes.place(offset * UNIT_BYTES)

    def begin(self, position: int) -> int:
        """Return the offset of the first unit of a message at or behind ``position`` of the log.

        By bisection, as a broker does it. Errors: `ReadError`.
        """
        low, high = self.first, self.end
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is None or unit[1] == GAP_SIZE or unit[0] < position:
                low = middle + 1
            else:
                high = middle
        return low


class Queues:
    """All queues below ``consumequeue/``."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._cache = BlockCache(UNITS_PER_BLOCK * UNIT_BYTES)
        self.by_key: dict[QueueKey, Queue] = {}
        self.strangers: list[str] = []
        """Paths below the directory that are no queue's."""
        self.in_the_way: list[str] = []
        """Paths where a queue would lie, were there not something else: a broker refuses them."""
        self.unlisted: list[str] = []
        """Directories of which nobody may know what lies in them."""
        sizes: Counter[int] = Counter()
        topics = self._directories_in(directory)
        self._sort_out(directory, topics, may_be_topic)
        for topic in topics:
            ids = self._directories_in(f"{directory}/{topic}")
            self._sort_out(f"{directory}/{topic}", ids, may_be_queue)
            for name in ids:
                self._add(topic, name, sizes)
        self.file_bytes = max(sizes, key=lambda size: (sizes[size], size)) if sizes else 0
        """Size of most queue files; 0 if there are none."""

    def _directories_in(self, directory: str) -> list[str]:
        if is_directory(directory) and not can_list(directory):
            self.unlisted.append(directory)
        return directories_in(directory)

    def _sort_out(self, directory: str, found: list[str], is_ours: Callable[[str], bool]) -> None:
        """Note what is no directory."""
        known = set(found)
        for name in names_in(directory):
            if name not in known:
                noted = self.in_the_way if is_ours(name) else self.strangers
                noted.append(f"{directory}/{name}")

    def _add(self, topic: str, name: str, sizes: Counter[int]) -> None:
        path = f"{self.directory}/{topic}/{name}"
        is_number = name.isascii() and name.isdigit() and str(int(name[:12])) == name
        if not is_number or int(name) > QUEUE_ID_MAX:
            self.strangers.append(path)
            return
        if not can_list(path):
            self.unlisted.append(path)
        row = read_row(path)
        self.strangers += [f"{path}/{stranger}" for stranger in row.strangers]
        sizes.update(info.size for info in row.files if info.size)
        key = (os.fsencode(topic), int(name))
        self.by_key[key] = Queue(*key, ByteRow(row, self._cache))

    def forget(self) -> None:
        """Keep nothing of what was read: it may have been written over since."""
        self._cache.forget()

    def close(self) -> None:
        """Close the files."""
        self._cache.close()

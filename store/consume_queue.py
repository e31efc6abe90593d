"""Consume queues: per topic and queue the 20-byte units that say where its messages lie.

A queue is derived from the committed log and can always be made again from it, so units are kept in
memory (`ConsumeQueue.tail`) and written together, many at a time; readers see both parts. Files are
RocketMQ's: ``consumequeue/<topic>/<queueId>/<20-digit start byte>``, of one size, filled from
the front, zeros behind. A running CRC per file tells at the next start whether they are still what
was written (`store.recovery`). It does not know what a message is, nor which are committed.
Source: protocol.md 5.1, 5.3; RocketMQ ConsumeQueue, MappedFileQueue.
"""

import zlib
from errno import EDQUOT, ENOSPC
from typing import TYPE_CHECKING, Final

from runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.layout import GAP_UNIT, SCHEDULE_TOPIC_BYTES, TOPIC_BYTES_MAX, UNIT_BYTES, file_name

if TYPE_CHECKING:
    from runtime.disk import Disk, File
    from store.config import StoreConfig

NO_SPACE: Final = frozenset({ENOSPC, EDQUOT})
_QUEUE_ID_MAX: Final = 0x7FFFFFFF


class QueueFiles:
    """The open consume queue files, a bounded number of them; the longest unused is closed."""

    def __init__(self, disk: "Disk", *, file_bytes: int, open_max: int) -> None:
        self.disk = disk
        self.file_bytes = file_bytes
        self._open_max = open_max
        self._open: dict[str, File] = {}
        self._unsynced: dict[str, None] = {}

    def open(self, path: str) -> "File":
        """Return an open file; it is made, with its directory, if missing."""
        file = self._open.pop(path, None)
        if file is None:
            file = self._open_anew(path)
            while len(self._open) >= self._open_max:
                self._open.pop(next(iter(self._open))).close()
        self._open[path] = file
        return file

    def _open_anew(self, path: str) -> "File":
        try:
            return self.disk.open(path, size=self.file_bytes)
        except FileNotFoundError:
            self.disk.make_directories(path.rpartition("/")[0])
            return self.disk.open(path, size=self.file_bytes)

    def write(self, path: str, offset: int, data: bytes) -> None:
        """Write into a file and remember that it must be synced."""
        self._unsynced[path] = None
        self.open(path).pwrite(offset, (data,))

    def remove(self, path: str) -> None:
        """Close and remove a file."""
        file = self._open.pop(path, None)
        if file is not None:
            file.close()
        self._unsynced.pop(path, None)
        self.disk.remove(path)

    def take_unsynced(self) -> list[str]:
        """Return the files written since the last call."""
        paths = list(self._unsynced)
        self._unsynced.clear()
        return paths

    def mark_unsynced(self, paths: list[str]) -> None:
        """Take back what `take_unsynced` gave, since it could not be synced."""
        self._unsynced.update(dict.fromkeys(paths))

    def close(self) -> None:
        """Close all files; they open again when asked for."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def __len__(self) -> int:
        return len(self._open)


class ConsumeQueue:
    """The units of one queue. Offsets count units, ``written`` and file starts count bytes.

    Invariant: ``written + len(tail) == max_offset * 20``. The hot loops of `store.dispatch` append
    to ``tail`` and count ``max_offset`` themselves.
    """

    __slots__ = (
        "_files", "crcs", "directory", "first_file", "is_schedule", "max_offset", "min_offset",
        "next_offset", "queue_id", "tail", "topic", "topic_field", "touched", "written",
    )  # fmt: skip

    def __init__(self, files: QueueFiles, directory: str, topic: str, queue_id: int) -> None:
        self._files = files
        self.directory = directory
        self.topic = topic
        self.queue_id = queue_id
        encoded = topic.encode()
        self.topic_field = bytes((len(encoded) & 0xFF,)) + encoded
        """The topic as a V1 record has it."""
        self.is_schedule = encoded == SCHEDULE_TOPIC_BYTES
        self.next_offset = 0
        """The leader's next queue offset, not yet committed."""
        self.touched = False
        """Has units whose listener was not called yet."""
        self.reset()

    def reset(self) -> None:
        """Make it an empty queue; its files are somebody else's business."""
        self.min_offset = 0
        self.max_offset = 0
        self.first_file = 0
        self.written = 0
        self.crcs: list[int] = []
        """CRC32 of what was written to each file, oldest first."""
        self.tail = bytearray()
        """Units not written yet."""

    def begin_at(self, offset: int) -> None:
        """Let an empty queue begin at ``offset``: its first file is filled with gap units."""
        assert self.max_offset == 0, (self.topic, self.queue_id, self.max_offset)
        file_bytes = self._files.file_bytes
        self.first_file = self.written = offset * UNIT_BYTES // file_bytes * file_bytes
        self.tail += GAP_UNIT * (offset - self.first_file // UNIT_BYTES)
        self.min_offset = self.max_offset = offset

    def path(self, start: int) -> str:
        """Return the path of the file that begins at byte ``start``."""
        return f"{self.directory}/{file_name(start)}"

    def flush(self) -> None:
        """Write the tail. Errors: `OSError`; what was not written stays in the tail."""
        file_bytes = self._files.file_bytes
        while self.tail:
            at = self.written % file_bytes
            chunk = bytes(self.tail[: file_bytes - at])
            self._files.write(self.path(self.written - at), at, chunk)
            if at == 0:
                self.crcs.append(zlib.crc32(chunk))
            else:
                self.crcs[-1] = zlib.crc32(chunk, self.crcs[-1])
            self.written += len(chunk)
            del self.tail[: len(chunk)]

    def read(self, offset: int, count: int) -> bytes:
        """Return up to ``count`` units from ``offset`` on, which must lie within the queue."""
        start = offset * UNIT_BYTES
        end = start + count * UNIT_BYTES
        assert start >= self.first_file, (self.topic, self.queue_id, offset)
        if start >= self.written:
            return bytes(self.tail[start - self.written : end - self.written])
        file_bytes = self._files.file_bytes
        parts = []
        while start < min(end, self.written):
            at = start % file_bytes
            size = min(end, self.written, start - at + file_bytes) - start
            parts.append(self._files.open(self.path(start - at)).pread(at, size))
            start += size
        if end > self.written:
            parts.append(bytes(self.tail[: end - self.written]))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def drop_files(self) -> None:
        """Remove the files that lie wholly before ``min_offset``."""
        file_bytes = self._files.file_bytes
        limit = min(self.min_offset * UNIT_BYTES, self.written)
        while self.crcs and self.first_file + file_bytes <= limit:
            self._files.remove(self.path(self.first_file))
            self.first_file += file_bytes
            del self.crcs[0]

    def remove_files(self) -> None:
        """Remove all files and make it an empty queue."""
        for number in range(len(self.crcs)):
            self._files.remove(self.path(self.first_file + number * self._files.file_bytes))
        self.reset()

    def cut(self, max_offset: int) -> None:
        """Drop all units from ``max_offset`` on, files included; nothing may be unwritten."""
        assert not self.tail, (self.topic, self.queue_id)
        assert max_offset <= self.max_offset, (max_offset, self.max_offset)
        file_bytes = self._files.file_bytes
        end = max_offset * UNIT_BYTES
        first = self.first_file
        used_files = max(0, -(-(end - first) // file_bytes))
        for number in range(used_files, len(self.crcs)):
            self._files.remove(self.path(first + number * file_bytes))
        if used_files == 0 or max_offset <= self.min_offset:
            if used_files:
                self._files.remove(self.path(first))
            self.reset()
            return
        last = first + (used_files - 1) * file_bytes
        file = self._files.open(self.path(last))
        file.zero_from(end - last)
        self.crcs[used_files - 1 :] = [zlib.crc32(file.pread(0, end - last))]
        self.max_offset = max_offset
        self.written = end
        self._files.mark_unsynced([self.path(last)])


class ConsumeQueues:
    """All queues of a store, by topic and queue id."""

    def __init__(self, config: "StoreConfig", disk: "Disk") -> None:
        self.directory = f"{config.directory}/consumequeue"
        self.files = QueueFiles(
            disk, file_bytes=config.queue_file_bytes, open_max=config.open_files_max
        )
        self._unwritten_max = config.unflushed_units_max
        self.by_key: dict[tuple[bytes, int], ConsumeQueue] = {}
        """By encoded topic, as records have it."""
        self.by_name: dict[tuple[str, int], ConsumeQueue] = {}
        self.unwritten: list[ConsumeQueue] = []
        """Queues with a tail, each once, longest waiting first."""
        self.unwritten_units = 0
        self.flushed_count = 0
        """Queues taken from the front of ``unwritten`` since the start."""
        self.has_space = True
        """Whether the last write found space."""

    def maybe_make(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        """Return a queue, made if new; None if topic or id cannot name a queue."""
        queue = self.by_key.get((topic, queue_id))
        if queue is not None:
            return queue
        if not 0 < len(topic) <= TOPIC_BYTES_MAX or not 0 <= queue_id <= _QUEUE_ID_MAX:
            return None
        if topic in {b".", b".."} or b"/" in topic or b"\0" in topic:
            return None
        try:
            name = topic.decode()
        except UnicodeDecodeError:
            return None
        queue = ConsumeQueue(self.files, f"{self.directory}/{name}/{queue_id}", name, queue_id)
        self.by_key[topic, queue_id] = self.by_name[name, queue_id] = queue
        return queue

    def begin(self, queue: ConsumeQueue, offset: int) -> None:
        """Let an empty queue begin at ``offset``; what fills its first file up is written soon."""
        if self.unwritten_units >= self._unwritten_max:
            self.flush()
        queue.begin_at(offset)
        if queue.tail:
            self.unwritten.append(queue)
            self.unwritten_units += len(queue.tail) // UNIT_BYTES

    def clear(self) -> None:
        """Forget all queues."""
        self.by_key.clear()
        self.by_name.clear()
        self.unwritten.clear()
        self.unwritten_units = 0

    def flush(self, limit: int | None = None) -> bool:
        """Write tails, at most ``limit`` of them, longest waiting first.

        Returns whether there was space for them. Errors: `FatalError` when a write fails for
        another reason. Units that found no space stay readable and are written by a later call.
        """
        count = 0
        for queue in self.unwritten[:limit]:
            units = len(queue.tail)
            self.has_space = _flush_queue(queue)
            self.unwritten_units -= (units - len(queue.tail)) // UNIT_BYTES
            if not self.has_space:
                break
            count += 1
        del self.unwritten[:count]
        self.flushed_count += count
        self.has_space = self.has_space or not self.unwritten
        return self.has_space


def _flush_queue(queue: ConsumeQueue) -> bool:
    try:
        queue.flush()
    except (OSError, FatalError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError) and cause.errno in NO_SPACE:
            return False
        if isinstance(error, FatalError):
            raise
        message = f"cannot write consume queue {queue.directory}: {error}"
        raise FatalError(message, EXIT_ENVIRONMENT) from error
    return True

"""Consume queues: per topic and queue the 20-byte units that say where its messages lie.

A queue is derived from the committed log and can always be made again from it, so units are kept in
memory (`ConsumeQueue.tail`) and written together, many at a time, and nothing is synced before a
checkpoint; readers see both parts. Files are RocketMQ's: ``consumequeue/<topic>/<queueId>/<20-digit
start byte>``, of one size, filled from the front, zeros behind. Each block of a file has a CRC in
memory and in the checkpoint. A block that an earlier process wrote is compared with it before the
first unit of it is given out, so that a start need not read them all.

There may be many thousands of queues: files are open a few at a time (`QueueFiles`), and a queue
without units in memory takes about half a kilobyte. It does not know what a message is, nor which
are committed. Source: spec/disk.md 5.1, 5.3; RocketMQ ConsumeQueue, MappedFileQueue.
"""

import logging
import sys
from typing import TYPE_CHECKING, Final
from zlib import crc32

from dledger.errors import DamagedEntry
from dledger.segments.places import pieces, segment_name
from ledgermq.runtime.disk import NO_SPACE
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.layout import GAP_UNIT, SCHEDULE_TOPIC_BYTES, TOPIC_BYTES_MAX, UNIT_BYTES
from store.origins import kind_in
from store.queues.files import QueueFiles
from store.queues.names import QUEUE_ID_MAX, maybe_names

if TYPE_CHECKING:
    from ledgermq.runtime.disk import Disk
    from store.config import StoreConfig

CRC_BYTES: Final = 4
NEW_FILE_WORK: Final = 8
"""Making a file takes as long as so many writes."""
TURN_TICKS: Final = 600
"""Ticks after which every queue has had its turn to be written."""

_log = logging.getLogger(__name__)


class DamagedUnits(DamagedEntry):
    """Units of a queue are not what was written; they can be made again from the log."""

    def __init__(self, queue: "ConsumeQueue", block: int) -> None:
        super().__init__(-1, f"units of {queue.topic} queue {queue.queue_id}, block {block}")
        self.queue = queue
        self.block = block


class GuardedFiles(QueueFiles):
    """The files of the queues, and which blocks in them are known to be damaged."""

    def __init__(self, disk: "Disk", directory: str, *, file_bytes: int, open_max: int) -> None:
        super().__init__(disk, directory, file_bytes=file_bytes, open_max=open_max)
        self.damaged: dict[tuple[ConsumeQueue, int], None] = {}
        """Blocks found to be damaged and not repaired yet."""

    def note_damage(self, queue: "ConsumeQueue", block: int) -> bool:
        """Remember that a block is damaged; returns whether that is news."""
        is_news = (queue, block) not in self.damaged
        self.damaged[queue, block] = None
        return is_news

    def forget_damage(self, queue: "ConsumeQueue", block: int | None = None) -> None:
        """Forget what is known of a block, or of all blocks of a queue."""
        for known in [one for one in self.damaged if one[0] is queue and block in {None, one[1]}]:
            del self.damaged[known]


class ConsumeQueue:
    """The units of one queue. Offsets count units, ``written`` and file starts count bytes.

    Invariant: ``written + len(tail) == max_offset * 20``. Units come by `ConsumeQueues.take`.
    """

    __slots__ = (
        "_files", "crc", "crcs", "first_file", "is_plain", "is_schedule", "max_offset",
        "min_offset", "next_offset", "queue_id", "says", "tail", "topic", "topic_field", "touched",
        "unchecked", "written",
    )  # fmt: skip

    def __init__(self, files: GuardedFiles, topic: str, topic_field: bytes, queue_id: int) -> None:
        self._files = files
        self.topic = topic
        self.queue_id = queue_id
        self.topic_field = topic_field
        """The topic as a V1 record has it."""
        self.is_schedule = topic_field[1:] == SCHEDULE_TOPIC_BYTES
        self.says = kind_in(topic_field[1:], queue_id)
        """The kind of state that each of its messages stands for, empty for none."""
        self.is_plain = not (self.is_schedule or self.says)
        self.next_offset = 0
        """The leader's next queue offset, not yet committed."""
        self.touched = False
        """Whether it is in `ConsumeQueues.touched`."""
        self.reset()

    def reset(self) -> None:
        """Make it an empty queue; its files are somebody else's business."""
        self.min_offset = 0
        self.max_offset = 0
        self.first_file = 0
        self.written = 0
        self.crcs = b""
        """CRC32 of each full block of the files, 4 bytes each, from the first file on."""
        self.crc = 0
        """CRC32 of what the last block holds so far."""
        self.unchecked = 0
        """Bit n: block n was written by an earlier process, and not compared with its CRC yet."""
        self.tail = bytearray()
        """Units not written yet."""

    @property
    def directory(self) -> str:
        """Where its files are."""
        return f"{self._files.directory}/{self.topic}/{self.queue_id}"

    @property
    def file_count(self) -> int:
        """How many files it has."""
        return -(-(self.written - self.first_file) // self._files.file_bytes)

    def names(self) -> list[str]:
        """Return the names of its files, oldest first."""
        file_bytes = self._files.file_bytes
        return [segment_name(start) for start in range(self.first_file, self.written, file_bytes)]

    def paths(self) -> list[str]:
        """Return the paths of its files, oldest first."""
        directory = self.directory
        return [f"{directory}/{name}" for name in self.names()]

    def begin_at(self, offset: int) -> None:
        """Let an empty queue begin at ``offset``: its first file is filled with gap units."""
        assert self.max_offset == 0, (self.topic, self.queue_id, self.max_offset)
        file_bytes = self._files.file_bytes
        self.first_file = self.written = offset * UNIT_BYTES // file_bytes * file_bytes
        self.tail += GAP_UNIT * (offset - self.first_file // UNIT_BYTES)
        self.min_offset = self.max_offset = offset

    def path(self, start: int) -> str:
        """Return the path of the file that begins at byte ``start``."""
        return f"{self._files.directory}/{self.topic}/{self.queue_id}/{segment_name(start)}"

    def flush(self) -> None:
        """Write the tail. Errors: `OSError`; what was not written stays in the tail."""
        file_bytes = self._files.file_bytes
        while self.tail:  # a hot path, and nearly always one piece
            at = self.written % file_bytes
            chunk = bytes(self.tail[: file_bytes - at])
            self._files.write(self.path(self.written - at), at, chunk)
            self._count(at, chunk)
            del self.tail[: len(chunk)]

    def _count(self, at: int, chunk: bytes) -> None:
        """Take that ``chunk`` was written at ``at`` of the last file, behind all there was."""
        self.written += len(chunk)
        block_bytes = self._files.block_bytes
        while True:
            room = min(block_bytes - at % block_bytes, self._files.file_bytes - at)
            if len(chunk) < room:
                self.crc = crc32(chunk, self.crc)
                return
            self.crcs += crc32(chunk[:room], self.crc).to_bytes(CRC_BYTES, "big")
            self.crc = 0
            at += room
            chunk = chunk[room:]
            if not chunk:
                return

    def read(self, offset: int, count: int) -> bytes:
        """Return up to ``count`` units from ``offset`` on, which must lie within the queue.

        Errors: `DamagedUnits`; `OSError` passes.
        """
        start = offset * UNIT_BYTES
        end = start + count * UNIT_BYTES
        assert start >= self.first_file, (self.topic, self.queue_id, offset)
        if start >= self.written:
            return bytes(self.tail[start - self.written : end - self.written])
        if self.unchecked:
            self.check(start, min(end, self.written))
        file_bytes = self._files.file_bytes
        at = start % file_bytes
        if end <= self.written and at + end - start <= file_bytes:
            return self._files.open(self.path(start - at)).pread(at, end - start)
        parts = [
            self._files.open(self.path(base)).pread(at, size)
            for base, at, size in pieces(start, min(end, self.written) - start, file_bytes)
        ]
        if end > self.written:
            parts.append(bytes(self.tail[: end - self.written]))
        return b"".join(parts)

    # Blocks

    @property
    def block_count(self) -> int:
        """Blocks that hold something."""
        files, at = divmod(self.written - self.first_file, self._files.file_bytes)
        return files * self._files.file_blocks + -(-at // self._files.block_bytes)

    def block_range(self, block: int) -> tuple[int, int]:
        """Return where a block begins and where what it holds ends, in bytes of the queue."""
        files, number = divmod(block, self._files.file_blocks)
        first = self.first_file + files * self._files.file_bytes
        start = first + number * self._files.block_bytes
        end = min(start + self._files.block_bytes, first + self._files.file_bytes)
        return start, min(end, self.written)

    def _block_at(self, position: int) -> int:
        files, at = divmod(position - self.first_file, self._files.file_bytes)
        return files * self._files.file_blocks + at // self._files.block_bytes

    def check(self, start: int, end: int) -> None:
        """Compare blocks that hold bytes [start, end) with their CRC, unless it was done already.

        Errors: `DamagedUnits`, noted in `QueueFiles.damaged`.
        """
        for block in range(self._block_at(start), self._block_at(end - 1) + 1):
            if self.unchecked >> block & 1:
                self._compare(block, self.read_block(block))

    def _compare(self, block: int, units: bytes) -> None:
        """Compare a block with its CRC. Errors: `DamagedUnits`, which is noted."""
        if crc32(units) != self._crc_of(block):
            self._note_damage(block)
            raise DamagedUnits(self, block)
        self.unchecked &= ~(1 << block)

    def last_physical(self) -> int:
        """Return where the message of the last unit in a file lies. Errors: `DamagedUnits`."""
        block = self._block_at(self.written - 1)
        units = self.read_block(block)
        self._compare(block, units)
        return int.from_bytes(units[-UNIT_BYTES : 8 - UNIT_BYTES], "big", signed=True)

    def read_block(self, block: int) -> bytes:
        """Return what the file has of a block, unchecked."""
        start, end = self.block_range(block)
        at = start % self._files.file_bytes
        return self._files.open(self.path(start - at)).pread(at, end - start)

    def replace_block(self, block: int, units: bytes) -> None:
        """Write a block anew. `OSError` passes."""
        start, end = self.block_range(block)
        assert len(units) == end - start, (self.topic, self.queue_id, block, len(units))
        at = start % self._files.file_bytes
        self._files.write(self.path(start - at), at, units)
        where = block * CRC_BYTES
        if where < len(self.crcs):
            crc = crc32(units).to_bytes(CRC_BYTES, "big")
            self.crcs = self.crcs[:where] + crc + self.crcs[where + CRC_BYTES :]
        else:
            self.crc = crc32(units)
        self.unchecked &= ~(1 << block)
        self._files.forget_damage(self, block)

    def distrust(self, offset: int) -> None:
        """Have the block of a unit compared with its CRC again before it is read again."""
        position = offset * UNIT_BYTES
        if self.first_file <= position < self.written:
            self.unchecked |= 1 << self._block_at(position)

    def _crc_of(self, block: int) -> int:
        where = block * CRC_BYTES
        if where < len(self.crcs):
            return int.from_bytes(self.crcs[where : where + CRC_BYTES], "big")
        return self.crc

    def _note_damage(self, block: int) -> None:
        if self._files.note_damage(self, block):
            start, _ = self.block_range(block)
            at = start % self._files.file_bytes
            _log.error(
                "event=queue_corruption file=%s offset=%d units_from=%d",
                self.path(start - at), at, start // UNIT_BYTES,
            )  # fmt: skip

    def adopt(self, min_offset: int, max_offset: int, first_file: int) -> None:
        """Take files over as they are, and count their CRCs. `OSError` passes.

        Who wrote them may have been killed before they were synced, or named for sure.
        """
        self.min_offset, self.max_offset = min_offset, max_offset
        self.first_file = self.written = first_file
        self.crcs, self.crc, self.unchecked = b"", 0, 0
        end = max_offset * UNIT_BYTES
        for start, at, size in pieces(first_file, end - first_file, self._files.file_bytes):
            chunk = self._files.open(self.path(start)).pread(at, size)
            self._count(at, chunk.ljust(size, b"\0"))
        self._files.mark_unsynced(self.paths(), has_new=True)

    # Removal

    def drop_files(self, most: int = sys.maxsize) -> int:
        """Remove the files that lie wholly before ``min_offset``, at most so many; return how many.

        The last one stays: it tells how far the queue has counted, to RocketMQ as well.
        """
        file_bytes, before = self._files.file_bytes, self.first_file
        limit = min(self.min_offset * UNIT_BYTES, self.written)
        limit = min(limit, self.first_file + most * file_bytes)
        while self.first_file + file_bytes < self.written and self.first_file + file_bytes <= limit:
            self._files.remove(self.path(self.first_file))
            self.first_file += file_bytes
            self.crcs = self.crcs[self._files.file_blocks * CRC_BYTES :]
            self.unchecked >>= self._files.file_blocks
            self._files.forget_damage(self)
        return (self.first_file - before) // file_bytes

    def remove_files(self) -> None:
        """Remove all files and make it an empty queue."""
        for path in self.paths():
            self._files.remove(path)
        self._files.forget_damage(self)
        self.reset()

    def cut(self, max_offset: int) -> None:
        """Drop all units from ``max_offset`` on, files included; nothing may be unwritten.

        Errors: `DamagedUnits` in the block that is cut.
        """
        assert not self.tail, (self.topic, self.queue_id)
        assert max_offset <= self.max_offset, (max_offset, self.max_offset)
        file_bytes = self._files.file_bytes
        end = max_offset * UNIT_BYTES
        if end <= self.first_file or max_offset <= self.min_offset:
            self.remove_files()
            return
        self.check(end - 1, end)
        last = (end - 1) // file_bytes * file_bytes
        for start in range(last + file_bytes, self.written, file_bytes):
            self._files.remove(self.path(start))
        path = self.path(last)
        self._files.open(path).zero_from(end - last)
        self._files.mark_unsynced([path])
        self.max_offset = max_offset
        self.written = end
        block = self._block_at(end - 1)
        self.crcs = self.crcs[: block * CRC_BYTES]
        self.crc = 0
        start, _ = self.block_range(block)
        self.written = start
        self._count(start - last, self._files.open(path).pread(start - last, end - start))
        self.unchecked &= (1 << block) - 1
        self._files.forget_damage(self)


class ConsumeQueues:
    """All queues of a store, by topic and queue id."""

    def __init__(self, config: "StoreConfig", disk: "Disk") -> None:
        self.directory = f"{config.directory}/consumequeue"
        self.files = GuardedFiles(
            disk,
            self.directory,
            file_bytes=config.queue_file_bytes,
            open_max=config.open_files_max,
        )
        self._topics: dict[bytes, tuple[bytes, str, bytes]] = {}
        """Objects that all queues of a topic share: its name, encoded, decoded, as in records."""
        self._unwritten_max = config.unflushed_units_max
        self.by_key: dict[tuple[bytes, int], ConsumeQueue] = {}
        """By encoded topic, as records have it, and queue id."""
        self.by_topic: dict[bytes, dict[int, ConsumeQueue]] = {}
        """Those that may be written to, for the hot paths: neighbours mostly share the topic."""
        self.by_name: dict[tuple[str, int], ConsumeQueue] = {}
        self.unwritten: list[ConsumeQueue] = []
        """Queues with a tail, each once, longest waiting first."""
        self.unwritten_units = 0
        self.touched: list[ConsumeQueue] = []
        """Queues that took units since the listener was last told, each once."""
        self.flushed_count = 0
        """Queues taken from the front of ``unwritten`` since the start."""
        self.has_space = True
        """Whether the last write found space."""

    def maybe_make(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        """Return a queue, made if new; None if topic or id cannot name a queue."""
        queue = self.by_key.get((topic, queue_id))
        if queue is not None:
            return queue
        if not 0 <= queue_id <= QUEUE_ID_MAX:
            return None
        names = self._topics.get(topic) or maybe_names(topic)
        if names is None:
            return None
        self._topics[topic] = names
        encoded, name, field = names
        queue = ConsumeQueue(self.files, name, field, queue_id)
        self.by_key[encoded, queue_id] = self.by_name[name, queue_id] = queue
        if len(encoded) <= TOPIC_BYTES_MAX:
            self.by_topic.setdefault(encoded, {})[queue_id] = queue
        return queue

    def take(self, queue: ConsumeQueue, units: bytes, count: int) -> None:
        """Add ``count`` units of 20 bytes to a queue, behind the last one. The hot path."""
        if not queue.tail:
            self.unwritten.append(queue)
        queue.tail += units
        queue.max_offset += count
        self.unwritten_units += count
        if not queue.touched:
            queue.touched = True
            self.touched.append(queue)

    def begin(self, queue: ConsumeQueue, offset: int) -> None:
        """Let an empty queue begin at ``offset``; what fills its first file up is written soon."""
        if self.unwritten_units >= self._unwritten_max:
            self.flush()
        queue.begin_at(offset)
        if queue.tail:
            self.unwritten.append(queue)
            self.unwritten_units += len(queue.tail) // UNIT_BYTES

    def fill(self, queue: ConsumeQueue, count: int) -> None:
        """Let an empty queue begin ``count`` offsets later; see `begin`."""
        if not queue.tail:
            self.unwritten.append(queue)
        queue.tail += GAP_UNIT * count
        queue.min_offset = queue.max_offset = queue.max_offset + count
        self.unwritten_units += count

    def clear(self) -> None:
        """Forget all queues."""
        self.by_key.clear()
        self.by_name.clear()
        self.by_topic.clear()
        self._topics.clear()
        self.files.damaged.clear()
        self.unwritten.clear()
        self.unwritten_units = 0
        self.touched.clear()

    def flush_some(self, limit: int) -> bool:
        """Write tails as a tick does: all if they are few; of very many only some, see `flush`.

        A queue then waits until its turn comes, and more of its units leave in one write.
        """
        waiting = len(self.unwritten)
        if waiting > limit:
            limit = max(1, limit // 2, waiting // TURN_TICKS)
        return self.flush(limit)

    def flush(self, limit: int | None = None) -> bool:
        """Write tails, longest waiting first, until that took as long as ``limit`` writes.

        Returns whether there was space for them. Errors: `FatalError` when a write fails for
        another reason. Units that found no space stay readable and are written by a later call.
        """
        count = work = 0
        file_bytes = self.files.file_bytes
        for queue in self.unwritten[:limit]:
            units = len(queue.tail)
            work += 1 if queue.written % file_bytes else NEW_FILE_WORK
            self.has_space = _flush_queue(queue)
            self.unwritten_units -= (units - len(queue.tail)) // UNIT_BYTES
            if not self.has_space:
                break
            count += 1
            if limit is not None and work >= limit:
                break
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

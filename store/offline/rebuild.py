"""Makes consume queues and key index anew from the log, and puts them in the place of the old ones.

1. `Rebuild.survey` walks the log and says what there is to do; it writes nothing.
2. `Rebuild.run` makes everything in ``rebuild/`` beside the old files, which stay as they are.
3. A file ``rebuild/complete`` says that all of it is on disk, and up to which entry it goes.
4. `_swap` moves the old directories aside (``*.replaced``), the new ones in, checkpoints last.

A crash before 3 leaves a store as it was, with ``rebuild/`` to be begun again; one behind it is
gone on with by the next rebuild, and harmless if a broker starts before that: it finds queues
missing and makes them itself. What its log has got since is not in ``rebuild/``, which is begun
again then. The store is locked as a broker locks it. Queues whose every message
is gone from the log are taken over with their last file, since nothing else says where they go on;
those that RocketMQ fills with messages of other topics (``%LMQ%``) are copied.
Source: spec/disk.md 5.3, 5.4, 5.7.
"""

from __future__ import annotations

import errno
import os
import shutil
from bisect import bisect_right
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn

from dledger.mark import LogMark
from ledgermq.runtime.errors import EXIT_BAD_INPUT, EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.printable import shown
from store.config import DEFAULT_DELAY_LEVELS_MS, IndexConfig, StoreConfig
from store.ha.switch.epochs import EPOCH_FILE
from store.index.key_index import KeyIndex
from store.index.marks import INDEX_FILE
from store.layout import (
    FIRST_OFFSET_MAX,
    SCHEDULE_TOPIC_BYTES,
    SKIPPED_BYTES,
    UNIT,
    UNIT_BYTES,
    delivery_code,
    tags_code,
)
from store.limits import SKIPPED_MAX
from store.offline.files import ReadError, StoreFile, is_directory, read_small
from store.offline.findings import Findings
from store.offline.folder import REBUILD_DIRECTORY, REPLACED, LogKind
from store.offline.index_files import IndexReader, NoIndexError, index_files
from store.offline.log import LogWalk
from store.offline.queues import GAP_SIZE, Queue, QueueKey, Queues
from store.offline.records import Damage, Record
from store.offline.small_files import SMALL_BYTES_MAX, read_promises
from store.queues.consume_queue import ConsumeQueues
from store.recovery.checkpoint import (
    CHECKPOINT_FILE,
    CLEAN_FILE,
    CheckpointHead,
    join_checkpoint,
)
from store.recovery.checkpointer import Picture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.disk import Disk
    from store.layout import Keyed
    from store.offline.folder import StoreFolder
    from store.offline.log import Progress
    from store.queues.consume_queue import ConsumeQueue

COMPLETE: Final = "complete"
UNITS_IN_MEMORY_MAX: Final = 1 << 18
KEYS_AT_ONCE: Final = 4096
NOT_MADE: Final = ("batchconsumequeue", "consumequeue_ext")
"""Of 5.x, or switched on there only: a rebuild cannot make them."""
PARTS: Final = ("consumequeue", "index")
NOTHING: Final = LogMark(-1, 0, 0)
_NO_HOST: Final = bytes(8)


@dataclass(slots=True)
class Plan:
    """What a rebuild makes, counted."""

    messages: int = 0
    keyed: int = 0
    """Messages with a key."""
    queues: set[QueueKey] = field(default_factory=set)
    kept: list[Queue] = field(default_factory=list)
    """Queues without a message in the log, taken over."""
    last: LogMark = NOTHING
    """The last entry that is dispatched."""
    stored: int = 0
    """Its store timestamp, or that of the last message before it (ms)."""
    is_going_on: bool = False
    """A rebuild before this one was interrupted while it put its files in place."""


class Rebuild:
    """A rebuild of one store."""

    def __init__(
        self,
        folder: StoreFolder,
        disk: Disk,
        clock: Clock,
        progress: Progress | None = None,
        *,
        queue_file_bytes: int | None = None,
    ) -> None:
        """Look at the store. Errors: `FatalError` when it is one that cannot be rebuilt.

        ``queue_file_bytes``: size of the new queue files; None: as the old ones are.
        """
        self._folder = folder
        self._disk = disk
        self._clock = clock
        self._progress = progress
        self._promises = read_promises(folder, Findings())
        self._old = Queues(folder.path("consumequeue"))
        self._staging = folder.path(REBUILD_DIRECTORY)
        self.index_config = _index_config(folder)
        if folder.is_lone:
            _refuse(f"{shown(folder.root)}: queues lie in a storePathRootDir, this is a log alone")
        for name in NOT_MADE:
            if is_directory(folder.path(name)):
                _refuse(f"{shown(folder.path(name))}: a rebuild cannot make what lies there")
        self._is_going_on = os.path.lexists(f"{self._staging}/{COMPLETE}")
        self._confirmed = self._confirmed_end()
        self._asked_bytes = queue_file_bytes
        self._choose_file_bytes()

    def _confirmed_end(self) -> int | None:
        """Return up to where a log counts whose masters controllers choose; None: all of it does.

        What a master or slave of theirs has behind that is not acknowledged, and may have to go: a
        broker takes what its queues have for confirmed. Errors: `FatalError`: nothing tells.
        """
        if not os.path.lexists(self._folder.path(EPOCH_FILE)):
            return None
        dispatched = self._promises.dispatched
        if dispatched is not None and dispatched.head.marks:
            return dispatched.head.marks[0].index + 1
        end = self._made_up_to().split(b" ")[0] if self._is_going_on else b""
        if not end.removeprefix(b"-").isdigit():
            _refuse(
                f"{shown(self._folder.path(CHECKPOINT_FILE))} is missing or damaged: what all"
                " in-sync replicas have is unknown; a broker that starts makes its queues itself"
            )
        return int(end) + 1

    def _choose_file_bytes(self) -> None:
        """Settle how large queue files are. Errors: `FatalError`."""
        self.queue_file_bytes = self._asked_bytes or self._old_file_bytes()
        if self.queue_file_bytes % UNIT_BYTES:
            _refuse(f"queue files of {self.queue_file_bytes} bytes hold no whole units of 20")

    def _old_file_bytes(self) -> int:
        """Return the size of queue files, by those there or our checkpoint. Errors: `FatalError`.

        A broker with another size refuses to start with them, so that none is guessed.
        """
        if self._old.file_bytes:
            return self._old.file_bytes
        dispatched = self._promises.dispatched
        if dispatched is None and self._is_going_on:
            return UNIT_BYTES  # the files are made already
        if dispatched is None:
            _refuse(
                f"{shown(self._old.directory)}: no queue file is left to tell how large they are;"
                " say it with --queue-file-bytes (mappedFileSizeConsumeQueue, by default 6000000)"
            )
        return dispatched.head.file_bytes

    @property
    def has_index(self) -> bool:
        """Whether the key index is made, too: a store may have none."""
        return is_directory(self._folder.path("index"))

    def survey(self) -> Plan:
        """Walk the log. Errors: `FatalError` names damage in it: queues would miss messages."""
        for path in self._old.unlisted:
            _refuse(f"{shown(path)} cannot be listed: what its queues go on with is unknown")
        plan = Plan()
        for record in self._dispatched():
            kind = LogKind.PLAIN if record.entry_index < 0 else LogKind.DLEDGER
            plan.last = _mark_of(record, kind)
            plan.stored = record.stored or plan.stored
            if record.is_queued and record.topic:
                plan.messages += 1
                plan.queues.add((record.topic, record.queue_id))
            plan.keyed += b"KEY" in record.properties
        if self._is_going_on:
            plan.is_going_on = self._made_up_to() == _made_up_to(plan.last)
            if not plan.is_going_on:  # a broker ran meanwhile: these files lack what came
                self._is_going_on = False
                self._choose_file_bytes()
        begin = self._folder.logs[0].segments.start
        if self._promises.begin is not None and len(self._folder.logs) == 1:
            begin = self._promises.begin[0]
        plan.kept = [
            queue
            for key, queue in self._old.by_key.items()
            if key not in plan.queues and not queue.is_light and _is_of_the_past(queue, begin)
        ]
        return plan

    def _made_up_to(self) -> bytes:
        """Return what says how far the files go that were made. Errors: `FatalError`."""
        try:
            return read_small(f"{self._staging}/{COMPLETE}", SMALL_BYTES_MAX) or b""
        except ReadError as error:
            _refuse(str(error))

    def run(self, plan: Plan) -> None:
        """Make the files and put them in place. Errors: `FatalError`; then the old ones count."""
        with ExitStack() as held:
            for path in dict.fromkeys([self._folder.path("lock"), *self._folder.lock_files]):
                held.callback(self._disk.lock(path).close)
            try:
                if not plan.is_going_on:
                    self._stage(plan)
                self._swap()
            except ReadError as error:
                _refuse(f"{error}; a file that the rebuild takes over cannot be read")
            except OSError as error:
                where = f"{self._staging}: {error.strerror or error}"
                message = f"rebuild is not complete, and can be run again: {where}"
                raise FatalError(message, EXIT_ENVIRONMENT) from error
            finally:
                self._old.close()

    def _dispatched(self) -> Iterator[Record]:
        """Yield the records that a broker dispatches. Errors: `FatalError` for damage."""
        for log in self._folder.logs:
            is_dledger = log.kind is LogKind.DLEDGER
            if is_dledger and self._promises.committed_index is None:
                _refuse(
                    f"{shown(log.directory)}/checkpoint is missing or damaged: what is committed is"
                    " unknown; a broker that starts makes its queues itself"
                )
            begin = self._promises.begin if is_dledger else None
            walk = LogWalk(log, begin=begin, progress=self._progress)
            for item in walk.run():
                if isinstance(item, Damage):
                    _refuse(
                        f"{shown(item.path)} offset {item.offset}: the log is damaged"
                        f" ({item.reason}); queues made from it would miss messages"
                    )
                elif self._is_unconfirmed(item):
                    return  # a start dispatches what is committed behind it
                else:
                    yield item
            if walk.end.unread:
                _refuse(
                    f"{shown(walk.end.path)} offset {walk.end.offset}: the log cannot be read"
                    f" ({walk.end.unread}); queues made from it would miss messages"
                )

    def _is_unconfirmed(self, record: Record) -> bool:
        """Tell whether it is not known that a record is committed."""
        if record.entry_index >= 0:
            committed = self._promises.committed_index
            return committed is not None and record.entry_index > committed
        return self._confirmed is not None and record.end > self._confirmed

    # Making

    def _stage(self, plan: Plan) -> None:
        """Make everything anew beside the old files, and sync it."""
        shutil.rmtree(self._staging, ignore_errors=True)
        self._disk.make_directories(f"{self._staging}/consumequeue")
        config = StoreConfig(
            directory=self._staging, store_host=_NO_HOST, queue_file_bytes=self.queue_file_bytes
        )
        queues = ConsumeQueues(config, self._disk)
        for queue in plan.kept:
            _copy_last_file(queue, queues)
        for queue in self._old.by_key.values():
            if queue.is_light:
                source = queue.files.row.directory
                name = source.removeprefix(self._folder.path("consumequeue"))
                shutil.copytree(source, f"{queues.directory}{name}")
        index = None
        if self.has_index:
            self._disk.make_directories(f"{self._staging}/index")
            index = KeyIndex(self.index_config, self._staging, self._disk, self._clock)
        writer = Writer(queues, index, self._old)
        for record in self._dispatched():
            writer.add(record)
        writer.finish(plan.last)
        if plan.last.index >= 0:
            picture = Picture((plan.last.index, plan.last.position), queues)
            picture.note(len(queues.by_key))
            head = CheckpointHead(
                self.queue_file_bytes, queues.files.block_bytes, plan.stored, (plan.last,)
            )
            self._disk.replace(
                f"{self._staging}/{CHECKPOINT_FILE}", join_checkpoint(head, picture.parts)
            )
        self._disk.sync_all(self._staging)
        self._disk.replace(f"{self._staging}/{COMPLETE}", _made_up_to(plan.last))

    def _swap(self) -> None:
        """Put the new files in the place of the old ones; each step may have been done before."""
        for name in (CHECKPOINT_FILE, CLEAN_FILE, INDEX_FILE):
            self._disk.remove(self._folder.path(name))
        for part in PARTS:
            made, place = f"{self._staging}/{part}", self._folder.path(part)
            if not is_directory(made):
                continue
            if os.path.lexists(place):
                _remove_aside(place + REPLACED)
                os.rename(place, place + REPLACED)  # noqa: PTH104  # paths are plain strings here
            os.rename(made, place)  # noqa: PTH104  # paths are plain strings here
        for name in (INDEX_FILE, CHECKPOINT_FILE):
            if os.path.lexists(f"{self._staging}/{name}"):
                os.rename(f"{self._staging}/{name}", self._folder.path(name))  # noqa: PTH104  # paths are plain strings here
        self._disk.sync_all(self._folder.root)
        self._disk.remove(f"{self._staging}/{COMPLETE}")
        shutil.rmtree(self._staging)


class Writer:
    """Puts messages into new queues and a new key index."""

    def __init__(self, queues: ConsumeQueues, index: KeyIndex | None, old: Queues) -> None:
        """Prepare to write. ``old``: asked for delivery times of delayed messages."""
        self._queues = queues
        self._index = index
        self._old = old
        self._keys: list[Keyed] = []
        self._index_files = 0
        self._holes: list[int] = []
        """Where what is no message lies."""
        self._ends: dict[ConsumeQueue, int] = {}
        """Where the last message of a queue lies."""

    def add(self, record: Record) -> None:
        """Put one message. Errors: `OSError`; `FatalError` for one that fits into no queue."""
        if record.is_queued and record.topic:
            self._add_unit(record)
        elif record.problem:
            self._holes.append(record.physical)
        if self._index is not None and not record.is_state:
            self._keys.append(
                (record.topic, record.properties, record.physical, record.stored, record.sys_flag)
            )
            if len(self._keys) >= KEYS_AT_ONCE:
                self._put_keys()

    def finish(self, last: LogMark) -> None:
        """Write everything. Errors: `OSError`, `FatalError`."""
        self._flush_queues()
        if not self._queues.files.sync(self._queues.files.take_unsynced()):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), self._queues.files.directory)
        self._queues.files.close()
        if self._index is not None:
            self._put_keys()
            for _ in range(2):  # the second says that the slots of the first are written
                self._sync_index(last)
            self._index.close()

    def _add_unit(self, record: Record) -> None:
        queue = self._queues.maybe_make(record.topic, record.queue_id)
        offset = record.queue_offset
        if queue is not None and 0 < offset <= FIRST_OFFSET_MAX and not queue.max_offset:
            self._queues.begin(queue, offset)
        if queue is not None and offset > queue.max_offset:
            self._skip(queue, record)
        if queue is None or offset != queue.max_offset:
            expected = "no queue can have this name" if queue is None else (
                f"offset {queue.max_offset} comes next"
            )  # fmt: skip
            _refuse(
                f"{shown(record.path)} offset {record.offset}: message {offset} of"
                f" {shown(record.name)}/{record.queue_id} fits into no queue: {expected}"
            )
        self._ends[queue] = record.physical
        self._queues.take(queue, UNIT.pack(record.physical, record.size, self._code(record)), 1)
        if self._queues.unwritten_units >= UNITS_IN_MEMORY_MAX:
            self._flush_queues()

    def _skip(self, queue: ConsumeQueue, record: Record) -> None:
        """Skip offsets as a broker does, if what is no message explains them all."""
        missing = record.queue_offset - queue.max_offset
        holes = len(self._holes) - bisect_right(self._holes, self._ends.get(queue, -1))
        if missing <= min(holes, SKIPPED_MAX):
            unit = UNIT.pack(record.physical, SKIPPED_BYTES, 0)
            self._queues.take(queue, unit * missing, missing)

    def _code(self, record: Record) -> int:
        """Return the tags code; of a delayed message what its unit has, if that is sound.

        The delays are settings of the broker that wrote it.
        """
        if record.topic != SCHEDULE_TOPIC_BYTES:
            return tags_code(record.properties)
        old = self._old.by_key.get((record.topic, record.queue_id))
        try:
            unit = None if old is None else old.unit(record.queue_offset)
        except ReadError:
            unit = None
        if unit is not None and unit[:2] == (record.physical, record.size):
            return unit[2]
        return delivery_code(record.properties, record.stored, DEFAULT_DELAY_LEVELS_MS)

    def _flush_queues(self) -> None:
        if not self._queues.flush():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _put_keys(self) -> None:
        assert self._index is not None
        self._index.put_all(self._keys)
        self._keys = []
        if not self._index.has_room and not self._index.flush():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if len(self._index.files) > self._index_files + 1:  # full ones keep their slots in memory
            self._index_files = len(self._index.files) - 1
            self._sync_index(None)

    def _sync_index(self, last: LogMark | None) -> None:
        assert self._index is not None
        plan = None
        if self._index.flush():
            plan = self._index.plan(last, is_last=last is not None)
        if plan is None or not plan.run():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._index.settle(plan, is_written=True)


def _copy_last_file(queue: Queue, queues: ConsumeQueues) -> None:
    """Take over a queue that has no message in the log, so that its offsets go on."""
    made = queues.maybe_make(queue.topic, queue.queue_id)
    end = queue.end
    start = (end * UNIT_BYTES - 1) // queues.files.file_bytes * queues.files.file_bytes
    info = queue.files.file_at(start)
    if made is None or info is None or (info.base, info.size) != (start, queues.files.file_bytes):
        _refuse(
            f"{shown(queue.files.row.directory)}: no file of {queues.files.file_bytes} bytes at"
            f" {start}, which is needed to go on where the queue ends"
        )
    file = StoreFile(info.path)
    try:
        data = file.read_exact(0, end * UNIT_BYTES - start)
    finally:
        file.close()
    queues.files.write(made.path(start), 0, data)
    made.adopt(end, end, start)


def _remove_aside(path: str) -> None:
    """Remove what an earlier rebuild moved aside: a directory, or the link that led to one."""
    if os.path.islink(path):  # noqa: PTH114  # paths are plain strings here
        os.remove(path)  # noqa: PTH107  # the same
    else:
        shutil.rmtree(path, ignore_errors=True)


def _is_of_the_past(queue: Queue, log_begin: int) -> bool:
    """Tell whether a queue had messages, all of which are gone. Errors: `FatalError`."""
    try:
        unit = queue.unit(queue.end - 1)
    except ReadError as error:
        _refuse(f"{error}; where the queue goes on is unknown")
    return unit is not None and (unit[0] < log_begin or unit[1] == GAP_SIZE)


def _made_up_to(last: LogMark) -> bytes:
    """Return what ``complete`` says of files that go up to this entry."""
    return b"%d %d %d\n" % (last.index, last.term, last.position)


def _mark_of(record: Record, kind: LogKind) -> LogMark:
    """Return the mark of an entry: its index, in a plain log the position of its last byte."""
    if kind is LogKind.DLEDGER:
        return LogMark(record.entry_index, record.term, record.position)
    return LogMark(record.end - 1, 1, record.position)


def _index_config(folder: StoreFolder) -> IndexConfig:
    """Return the sizes that the index files there have."""
    for info in index_files(folder.path("index"))[0]:
        try:
            reader = IndexReader(info)
        except (ReadError, NoIndexError):
            continue
        reader.close()
        if reader.head.count > 1:
            return IndexConfig(slots=reader.head.slots, entries=reader.head.capacity)
    return IndexConfig()


def _refuse(message: str) -> NoReturn:
    raise FatalError(message, EXIT_BAD_INPUT)

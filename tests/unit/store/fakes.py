"""Fakes for the store: a single-replica log that commits when told, a disk in memory, a clock."""

import errno
import time
from collections.abc import Callable, Iterator, Sequence

from dledger.codec.entry import encode_entry
from dledger.config import END_RECORD_BYTES, ENTRY_HEADER_BYTES
from dledger.core.model import Role
from dledger.errors import DamagedEntry, DiskFull, NotLeader, PendingFull
from dledger.replicated_log import ReplicatedLog
from dledger.storage.recent import HintedSpan
from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.runtime.disk import Space
from ledgermq.runtime.errors import FatalError
from store.config import StoreConfig
from store.message_store import MessageStore
from store.results import PutBatch, PutMessage, PutStatus

HOST = pack_host("127.0.0.1", 10911)
BORN = pack_host("10.0.0.7", 54321)


def batch_of(messages: Sequence[PutMessage]) -> PutBatch:
    """Return messages that share what those of a batch share."""
    one = messages[0]
    shared = {
        (m.topic, m.queue_id, m.sys_flag, m.born_timestamp, m.born_host, m.reconsume_times)
        for m in messages
    }
    assert len(shared) == 1, shared
    return PutBatch(
        one.topic,
        one.queue_id,
        one.sys_flag,
        one.born_timestamp,
        one.born_host,
        one.reconsume_times,
        [m.flag for m in messages],
        [m.body for m in messages],
        [m.properties for m in messages],
        [m.tags_code for m in messages],
    )


class FakeClock:
    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return self.now

    def monotonic_ns(self) -> int:
        return self.now * 1_000_000

    def wall_ms(self) -> int:
        return self.now

    def local(self, wall_ms: int) -> time.struct_time:
        return time.gmtime(wall_ms / 1000)


class FakeFile:
    def __init__(self, disk: "FakeDisk", path: str) -> None:
        self.disk = disk
        self.path = path
        self.closed = False

    @property
    def data(self) -> bytearray:
        return self.disk.files[self.path]

    def pwrite(self, offset: int, buffers: Sequence[bytes]) -> None:
        assert not self.closed
        content = b"".join(buffers)
        assert offset + len(content) <= len(self.data)
        if self.disk.writes_left is not None:
            self.disk.writes_left -= 1
            if self.disk.writes_left < 0:
                half = content[: len(content) // 2]
                self.data[offset : offset + len(half)] = half
                raise OSError(self.disk.error, "write failed")
        self.data[offset : offset + len(content)] = content

    def pread(self, offset: int, size: int) -> bytes:
        assert not self.closed
        return bytes(self.data[offset : offset + size])

    def view(self) -> memoryview:
        return memoryview(bytes(self.data))

    def fdatasync(self) -> None:
        assert not self.closed
        if self.disk.sync_fails:
            raise OSError(errno.EIO, "sync failed")

    def zero_from(self, offset: int) -> None:
        self.data[offset:] = bytes(len(self.data) - offset)

    def nonzero_end(self, offset: int) -> int:
        return max(offset, len(self.data.rstrip(b"\0")))

    def close(self) -> None:
        self.closed = True


class FakeDisk:
    """Files in memory; `crash` is simply a new store over the same disk."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.directories = {"/s"}
        self.writes_left: int | None = None
        self.error = errno.ENOSPC
        self.sync_fails = False
        self.opened: list[FakeFile] = []

    def open(self, path: str, *, size: int) -> FakeFile:
        if path.rpartition("/")[0] not in self.directories:
            raise FileNotFoundError(path)
        if len(self.files.setdefault(path, bytearray(size))) != size:
            raise FatalError(f"{path} has another size")
        self.opened = [file for file in self.opened if not file.closed]
        self.opened.append(FakeFile(self, path))
        return self.opened[-1]

    def open_unsynced(self, path: str, *, size: int) -> FakeFile:
        if path not in self.files:
            self.make_directories(path.rpartition("/")[0])
        return self.open(path, size=size)

    def sync_all(self, directory: str) -> None:
        if self.sync_fails:
            raise OSError(errno.EIO, "sync failed")

    def read(self, path: str) -> bytes | None:
        data = self.files.get(path)
        return None if data is None else bytes(data)

    def replace(self, path: str, data: bytes | bytearray) -> None:
        if self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left < 0:
                raise OSError(self.error, "write failed")
        self.files[path] = bytearray(data)

    def names(self, directory: str) -> list[str]:
        if directory in self.files:
            raise NotADirectoryError(directory)
        prefix = directory + "/"
        paths = [*self.files, *self.directories]
        return sorted({p[len(prefix) :].split("/")[0] for p in paths if p.startswith(prefix)})

    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    def lock(self, path: str) -> FakeFile:
        return self.open(path, size=0)

    def make_directories(self, path: str) -> None:
        while path:
            self.directories.add(path)
            path = path.rpartition("/")[0]

    def size(self, path: str) -> int | None:
        data = self.files.get(path)
        return None if data is None else len(data)

    def space(self, path: str) -> Space:
        return Space(1, 1)


class FakeNode:
    """A log of one replica in memory. Entries commit when the test says so."""

    def __init__(self, *, segment_bytes: int = 1 << 20) -> None:
        self.segment_bytes = segment_bytes
        self.entries: list[tuple[int, int, bytes]] = []  # position, term, body
        self.segments: dict[int, bytearray] = {}
        self.end = 0
        self.first_index = 0
        self.first_position = 0
        """Moves with `drop_before`."""
        self.term = 0
        self.is_leader = False
        self.commit_index = -1
        self.refuse: Exception | None = None
        self.ahead: list[tuple[int, int]] = []
        self.reserved = (0, 0)
        self.listener: ReplicatedLog | None = None
        self.reader = self
        self.hints: list[HintedSpan] = []
        self.released = 0

    @property
    def end_index(self) -> int:
        return len(self.entries) - 1

    @property
    def committed_position(self) -> int:
        if self.commit_index < 0:
            return 0
        position, _, body = self.entries[self.commit_index]
        return position + ENTRY_HEADER_BYTES + len(body)

    def _place(self, body_bytes: int) -> int:
        if self.refuse is not None:
            raise self.refuse
        if not self.is_leader:
            raise NotLeader(None)
        room = self.segment_bytes - self.end % self.segment_bytes
        if ENTRY_HEADER_BYTES + body_bytes + END_RECORD_BYTES > room:
            self.end += room
        return self.end

    def reserve(self, body_bytes: int) -> int:
        position = self._place(body_bytes)
        self.reserved = position, position + ENTRY_HEADER_BYTES + body_bytes
        return position + ENTRY_HEADER_BYTES

    def append(self, parts: Sequence[bytes], body_bytes: int) -> int:
        body = b"".join(parts)
        assert len(body) == body_bytes
        position, limit = self.reserved
        end = position + ENTRY_HEADER_BYTES + body_bytes
        assert end <= limit, "append without reserve"
        self.reserved = end, limit
        return self.add(position, self.term, body)

    def append_batch(self, bodies: Sequence[bytes]) -> list[int]:
        return [self.append((body,), len(body)) for body in bodies]

    def drop_before(self, index: int) -> None:
        """Let the log begin with an entry."""
        self.first_index, self.first_position = index, self.position_after(index - 1)

    def add(self, position: int, term: int, body: bytes) -> int:
        self.entries.append((position, term, body))
        at = position % self.segment_bytes
        segment = self.segments.setdefault(position - at, bytearray())
        segment[at:] = encode_entry(self.end_index, term, position, body)
        self.end = position + ENTRY_HEADER_BYTES + len(body)
        return self.end_index

    def entry(self, index: int) -> tuple[int, int, int]:
        position, term, body = self.entries[index]
        return position, len(body) + ENTRY_HEADER_BYTES, term

    @property
    def end_position(self) -> int:
        return self.position_after(self.end_index)

    def position_after(self, index: int) -> int:
        if index < self.first_index:
            return self.first_position
        position, size, _ = self.entry(index)
        return position + size

    def term_at(self, index: int) -> int:
        return self.entries[index][1]

    def bodies(self, first: int, last: int) -> Iterator[tuple[int, memoryview, int, int]]:
        for index in range(first, last + 1):
            body = self.body_view(index)
            yield self.entries[index][0] + ENTRY_HEADER_BYTES, body, 0, len(body)

    def maybe_hinted(self, index: int) -> HintedSpan | None:
        return next((hinted for hinted in self.hints if hinted.last_index >= index), None)

    def release(self, index: int) -> None:
        self.released = index

    def last_body(self) -> memoryview | None:
        return self.body_view(self.end_index) if self.entries else None

    def body_view(self, index: int) -> memoryview:
        position, _, body = self.entries[index]
        at = position % self.segment_bytes
        found = self.segments[position - at][at : at + len(body) + ENTRY_HEADER_BYTES]
        if found != encode_entry(index, self.entries[index][1], position, body):
            raise DamagedEntry(index, "here")
        return memoryview(body)

    def body_at(self, physical_offset: int, size: int) -> memoryview:
        index = self.find(physical_offset)
        if index is None or len(self.entries[index][2]) != size:
            raise LookupError(physical_offset)
        return self.body_view(index)

    def read_ahead(self, physical_offset: int, size: int) -> None:
        self.ahead.append((physical_offset, size))

    def find(self, physical_offset: int) -> int | None:
        for index, entry in enumerate(self.entries):
            if entry[0] + ENTRY_HEADER_BYTES == physical_offset:
                return index
        return None

    def describe(self, physical_offset: int) -> str:
        return f"file=log offset={physical_offset}"

    def view(self, physical_offset: int, size: int) -> memoryview:
        at = physical_offset % self.segment_bytes
        return memoryview(bytes(self.segments[physical_offset - at][at : at + size]))

    # What tests do with it.

    def lead(self, *, commit: bool = True) -> None:
        assert self.listener is not None
        self.term += 1
        self.is_leader = True
        self.reserve(1)
        position = self._place(200)
        self.add(position, self.term, self.listener.noop_body(position + ENTRY_HEADER_BYTES))
        self.listener.on_role(Role.LEADER, self.term, "n0")
        if commit:
            self.commit()

    def follow(self, *, truncate: bool = True) -> None:
        assert self.listener is not None
        self.is_leader = False
        self.term += 1
        if truncate:
            self.truncate(self.commit_index + 1)
        self.listener.on_role(Role.FOLLOWER, self.term, "n1")

    def truncate(self, index: int) -> None:
        if index < len(self.entries):
            self.end = end = self.entries[index][0]
            base = end - end % self.segment_bytes
            del self.segments[base][end - base :]
            self.segments = {at: data for at, data in self.segments.items() if at <= base}
        del self.entries[index:]

    def spoil(self, index: int) -> None:
        """Let an entry have been written with a body that is no record."""
        position, term, body = self.entries[index]
        spoilt = body[:4] + b"what" + body[8:]
        self.entries[index] = (position, term, spoilt)
        at = position % self.segment_bytes
        entry = encode_entry(index, term, position, spoilt)
        self.segments[position - at][at : at + len(entry)] = entry

    def corrupt(self, index: int, at: int = 60) -> None:
        """Flip a bit of an entry; again, and it is as it was."""
        position = self.entries[index][0] + at
        offset = position % self.segment_bytes
        self.segments[position - offset][offset] ^= 1

    def commit(self, index: int | None = None) -> None:
        assert self.listener is not None
        self.commit_index = self.end_index if index is None else index
        self.listener.on_committed(self.commit_index)


class Listener:
    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []
        self.states: list[tuple[int, str, bytes]] = []
        self.log: ReplicatedLog | None = None

    def on_message(self, topic: str, queue_id: int, max_offset: int) -> None:
        self.events.append(("message", topic, queue_id, max_offset))

    def apply_state(self, position: int, kind: str, payload: bytes) -> None:
        self.events.append(("state", kind))
        index = position if self.log is None else self.log.index_before(position)
        self.states.append((index, kind, payload))

    def on_writable(self, writable: bool, term: int) -> None:
        self.events.append(("writable", writable, term))


class World:
    """A store over fakes; `turns` runs what it asked to be called soon."""

    def __init__(
        self, disk: FakeDisk | None = None, node: FakeNode | None = None, **config
    ) -> None:
        self.disk = disk or FakeDisk()
        self.node = node or FakeNode()
        self.clock = FakeClock()
        self.listener = Listener()
        self.soon: list[Callable[[], None]] = []
        self.config = StoreConfig(
            **{
                "directory": "/s",
                "store_host": HOST,
                "queue_file_bytes": 200,
                "follower_batch": 1,  # nothing waits for a tick
                "checkpoint_ms": 10**12,  # by hand, with flush(): ticks have no loop here
                **config,
            }
        )
        self.fatal: list[FatalError] = []
        self.store = MessageStore(
            self.config,
            self.disk,
            self.clock,
            self.listener,
            on_fatal=self.fatal.append,
            call_soon=self.soon.append,
        )
        self.log = self.listener.log = self.node.listener = ReplicatedLog(self.node)
        self.store.attach(self.log)
        self.log.serve(self.store.log_user)
        self.answers: list[tuple[object, ...]] = []

    def begin(self, state_applied_index: int = -1) -> "World":
        """Load, and hear of what is committed already."""
        self.load(state_applied_index)
        self.log.on_committed(self.node.commit_index)
        self.turns()
        return self

    def load(self, state_applied_index: int = -1, bases: Sequence[tuple[str, int, int]] = ()):
        self.store.load(self.log.position_after(state_applied_index), bases)

    @property
    def applied_index(self) -> int:
        """Number of the last entry that the store has dispatched."""
        return self.log.index_before(self.store.applied)

    def turns(self) -> int:
        count = 0
        while self.soon:
            self.soon.pop(0)()
            count += 1
        return count

    def put(self, name: str = "x", **fields) -> None:
        self.store.writer.put(
            message(**fields), lambda *answer: self.answers.append((name, *answer))
        )

    def take_answers(self) -> list[tuple[object, ...]]:
        answers = list(self.answers)
        self.answers.clear()
        return answers

    def queue_bytes(self) -> dict[str, bytes]:
        """All consume queue files, without trailing zeros, after a flush."""
        assert self.store.checkpoints.write_now()
        return {
            path: bytes(data).rstrip(b"\0")
            for path, data in self.disk.files.items()
            if "/consumequeue/" in path and any(data)
        }


def message(
    *,
    topic: str = "t",
    queue_id: int = 0,
    body: bytes = b"hello",
    properties: bytes = b"",
    tags_code: int = 0,
    sys_flag: int = 0,
    born_host: bytes = BORN,
    **fields: int,
) -> PutMessage:
    return PutMessage(
        topic.encode(),
        queue_id,
        fields.get("flag", 0),
        sys_flag,
        fields.get("born_timestamp", 1_600_000_000_000),
        born_host,
        fields.get("reconsume_times", 0),
        fields.get("prepared_offset", 0),
        properties,
        body,
        tags_code,
    )


REFUSALS = {
    PutStatus.NOT_LEADER: NotLeader("n1"),
    PutStatus.FULL: PendingFull(2, 1),
    PutStatus.DISK_FULL: DiskFull(),
}

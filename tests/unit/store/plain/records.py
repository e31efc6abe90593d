"""Records for a plain log, and a log without a loop: what a `PlainLog` does in a turn, by hand."""

from dledger.errors import NotLeader
from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.remoting.protocol.message import MessageExt, encode_record
from store.plain.config import PlainLogConfig
from store.plain.files import open_segments
from store.plain.parts import PlainMarks
from store.plain.recovery import recover
from store.plain.view import PlainView
from store.plain.writer import Writer

HOST = pack_host("127.0.0.1", 10911)
SEGMENT = 4096
DIRECTORY = "/log"
T0 = 1_700_000_000_000


def record(position, *, body=b"body", topic="t", properties=b"", stored=T0, sys_flag=0, **fields):
    hosts = {
        "born_host": bytes(16) + HOST[4:] if sys_flag & 0x10 else HOST,
        "store_host": bytes(16) + HOST[4:] if sys_flag & 0x20 else HOST,
    }
    return encode_record(
        MessageExt(
            topic=topic, queue_id=0, flag=0, sys_flag=sys_flag, queue_offset=0,
            physical_offset=position, born_timestamp=stored, store_timestamp=stored,
            reconsume_times=0, prepared_offset=0, body=body, properties=properties,
            **{**hosts, **fields},
        )
    )  # fmt: skip


def size_of(**fields):
    return len(record(0, **fields))


class Log(PlainView):
    """A log over a disk; opened at once."""

    def __init__(
        self, disk, *, clean=False, safe_timestamp_ms=0, synced=None, directory=DIRECTORY, **config
    ):
        self.config = PlainLogConfig(**{"directory": directory, "segment_bytes": SEGMENT, **config})
        self.turns = 0
        self._running = True
        self._damaged = set()
        self._segments = open_segments(disk, self.config)
        self.recovered = recover(
            self._segments,
            self.config,
            clean=clean,
            safe_timestamp_ms=safe_timestamp_ms,
            synced=synced,
        )
        self.writer = Writer(self.config, schedule=self._schedule, refusal=lambda: NotLeader(None))
        self.writer.begin(self._segments, self.recovered.extent)
        self.writer.accepting = True
        self.committed_position = self.end_position

    @property
    def written(self):
        return self.writer.written

    @property
    def marks(self):
        return PlainMarks(self)

    @property
    def files(self):
        return self._segments

    def _schedule(self):
        self.turns += 1

    def put(self, **fields):
        """Append one record; return its position."""
        size = size_of(**fields)
        position = self.writer.reserve(size)
        self.writer.append((record(position, **fields),), size)
        return position

    def flush(self):
        self.writer.scheduled = False
        refused_from = self.writer.flush()
        self.committed_position = self.end_position
        return refused_from

    def sync(self):
        self._segments.sync(self._segments.take_dirty())
        self._segments.make_room()

    def entries(self):
        """Positions and records of all entries."""
        return [
            (at, bytes(chunk[start : start + size]))
            for at, chunk, start, size in self.walk(self.first_position, self.end_position, 1 << 30)
        ]

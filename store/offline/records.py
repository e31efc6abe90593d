"""One record of a log, judged: whether these bytes are a whole message that belongs here.

Pure. Source: spec/wire.md 4.1; the layout is in `store.layout`.
"""

from typing import Final, NamedTuple
from zlib import crc32

from ledgermq.remoting.protocol.message import MAGIC_V1, MAGIC_V2
from store.layout import (
    FLAG_NOT_INDEXED,
    STATE_TOPIC_BYTES,
    CorruptRecord,
    RecordFields,
    read_record,
    record_body,
)
from store.queues.names import names_queue

RECORD_HEAD_BYTES: Final = 88
RECORD_BYTES_MIN: Final = 91
RECORD_BYTES_MAX: Final = 64 << 20
"""More than any broker accepts; a larger size is a damaged one."""
MAGICS: Final = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))


class Record(NamedTuple):
    """A sound record of the log; ``view`` holds its bytes until the next one is asked for."""

    entry_index: int
    """-1 in a plain log."""
    term: int
    position: int
    """Where the entry begins: its header, or the record itself."""
    end: int
    """Position behind it."""
    physical: int
    """Where the record begins: what queues, index and message ids hold."""
    size: int
    queue_id: int
    queue_offset: int
    sys_flag: int
    stored: int
    """Store timestamp (ms)."""
    topic: bytes
    properties: bytes
    view: memoryview
    path: str
    offset: int
    """Of the record in its file."""
    problem: str = ""
    """Why it is no message although these bytes are what was written; empty if it is one."""

    @property
    def is_queued(self) -> bool:
        """Whether it is in a queue: no prepared or rolled back half, no replicated state."""
        return not self.sys_flag & FLAG_NOT_INDEXED

    @property
    def is_state(self) -> bool:
        """Whether it carries replicated state of a broker, or is nobody's message at all."""
        return self.topic == STATE_TOPIC_BYTES or not self.topic

    @property
    def name(self) -> str:
        """Its topic as text."""
        return self.topic.decode("utf-8", "replace")


def name_problem(record: Record) -> str:
    """Say why no queue can have the topic and queue id of a message; empty if one can."""
    if not record.is_queued or names_queue(record.topic, record.queue_id):
        return ""
    return f"topic {record.topic!r} queue {record.queue_id} cannot name a queue"


class Damage(NamedTuple):
    """Bytes of the log that are no entries, with sound entries behind them."""

    position: int
    end: int
    path: str
    offset: int
    reason: str


def read_fields(view: memoryview, physical: int, *, check: bool) -> RecordFields:
    """Return the fields of the record that fills ``view`` and lies at ``physical``.

    ``check``: the CRC of the body, too; a CRC of 0 says nothing. Errors: `CorruptRecord`.
    """
    head = view[:RECORD_HEAD_BYTES]
    problem = head_problem(head, physical, len(view))
    if problem:
        raise CorruptRecord(problem)
    fields = read_record(view)
    if fields[0] != len(view):
        message = f"size is {fields[0]} in an entry that has {len(view)} bytes for it"
        raise CorruptRecord(message)
    if check:
        stated = int.from_bytes(view[8:12], "big")
        if stated and stated != crc32(record_body(view)) & 0x7FFFFFFF:
            message = "CRC of the body does not match"
            raise CorruptRecord(message)
    return fields


def head_problem(head: memoryview, physical: int, room: int) -> str | None:
    """Say why no record that lies at ``physical`` begins like this, None if one may."""
    if len(head) < RECORD_HEAD_BYTES or room < RECORD_BYTES_MIN:
        return f"only {min(len(head), room)} bytes are left"
    if bytes(head[4:8]) not in MAGICS:
        return f"magic is {bytes(head[4:8]).hex()}"
    size = int.from_bytes(head[:4], "big", signed=True)
    if not RECORD_BYTES_MIN <= size <= min(room, RECORD_BYTES_MAX):
        return f"size is {size}, {room} bytes are left"
    stated = int.from_bytes(head[28:36], "big", signed=True)
    if stated != physical:
        return f"it says that it lies at {stated}"
    return None

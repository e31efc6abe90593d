"""What goes into the store and what comes out of it: requests, results and their status enums.

Plain values; it knows neither files nor the log.
Source: spec/wire.md 3.3 (put results), 3.5 (get results); spec/disk.md 5.3 (boundaries of a search
by time).
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

import msgspec


class PutStatus(Enum):
    """How a put or a state proposal ended."""

    OK = "ok"
    """Committed by a majority."""
    NOT_LEADER = "not leader"
    """Refused: this replica does not lead, or its own no-op is not applied yet."""
    UNKNOWN = "unknown"
    """Appended, then leadership was lost or the store stopped: it may yet commit."""
    QUORUM_TIMEOUT = "quorum timeout"
    """Appended, not committed within the wait limit: it may yet commit."""
    FULL = "full"
    """Refused: too much is waiting to be committed."""
    DISK_FULL = "disk full"
    """Refused: the log has no space."""
    MESSAGE_ILLEGAL = "message illegal"
    """Refused: topic or body outside the limits of spec/wire.md 4.7."""
    PROPERTIES_SIZE_EXCEEDED = "properties size exceeded"
    """Refused: more than 32,767 bytes of properties."""
    FLUSH_TIMEOUT = "flush timeout"
    """Stored, but not flushed in time (without a group)."""
    SLAVE_TIMEOUT = "slave timeout"
    """Stored, but no slave of a synchronous master has confirmed it in time."""
    NO_SLAVE = "no slave"
    """Stored by a synchronous master without a slave that keeps up."""

    @property
    def is_stored(self) -> bool:
        """Whether the message is stored, and will be delivered."""
        return self in _SURE

    @property
    def outcome_unknown(self) -> bool:
        """Whether the message may still appear although the caller got no acknowledgement."""
        return self in _UNKNOWN


STORED: Final = frozenset({PutStatus.FLUSH_TIMEOUT, PutStatus.SLAVE_TIMEOUT, PutStatus.NO_SLAVE})
"""The message is stored, and less is certain of it than was asked for."""
_SURE: Final = STORED | {PutStatus.OK}
_UNKNOWN: Final = frozenset({PutStatus.UNKNOWN, PutStatus.QUORUM_TIMEOUT})


class RecordTest(msgspec.Struct, frozen=True, eq=False):
    """A look into each record that a read would return."""

    matches: Callable[[memoryview], bool]
    #: Records that are looked into for one answer.
    records_max: int
    #: They are no larger together, but for the first.
    bytes_max: int
    #: What it takes in memory.
    size_bytes: int


Wanted = frozenset[int] | RecordTest | None
"""What a read returns of a queue: messages with one of these tags codes, or that pass a test; None
for all."""


class GetStatus(Enum):
    """RocketMQ's GetMessageStatus; the name is the remark of the pull response."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    DAMAGED = 9
    """Ours: the first message wanted is damaged on this disk, and not repaired yet."""
    LOST = 10
    """Ours: it is damaged in a log without a group, which nobody repairs. The offset to go on at is
    its own, as above: who asks says whether to pass it over."""


class Boundary(Enum):
    """Which of two neighbours a search by time takes (RocketMQ 5)."""

    LOWER = "lower"
    """The first message stored at or after the time, else one past the last."""
    UPPER = "upper"
    """The last message stored at or before the time, else the first."""


class PutMessage(msgspec.Struct, gc=False):
    """One message to store. Hosts are packed: 4 or 16 address bytes, then an int32 port."""

    topic: bytes
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int
    prepared_offset: int
    properties: bytes
    body: bytes
    tags_code: int


class PutBatch(msgspec.Struct, gc=False):
    """Messages to store side by side in one queue; see `PutMessage` for what they share.

    What is theirs alone lies in columns, one value a message; there is at least one message.
    """

    topic: bytes
    queue_id: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int
    flags: Sequence[int]
    bodies: Sequence[bytes]
    properties: Sequence[bytes]
    tags_codes: Sequence[int]


class GetResult(msgspec.Struct, gc=False):
    """Answer of a read: stored records back to back in ``buffers``, ``count`` of them."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    buffers: list[memoryview]
    count: int
    size_bytes: int
    is_far_behind: bool = False
    """What was read lies so far behind the end that it counts as on disk: a slave may as well
    answer the next reads."""


PutCallback = Callable[[PutStatus, int, int], None]
"""``(status, queue_offset, physical_offset)``; called once in the loop thread; must not raise."""

BatchCallback = Callable[[PutStatus, int, list[int]], None]
"""``(status, first queue_offset, physical offsets)``; called once in the loop thread."""

StateCallback = Callable[[PutStatus], None]
"""``(status)``; called once in the loop thread, after the record was applied."""

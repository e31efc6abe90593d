"""What users hand in and get back: messages, queues, results of sends and pulls.

Knows no network and no bytes. The hot ones are msgspec structs, which cost a seventh of a
frozen dataclass to create. Source: RocketMQ Message, MessageQueue, SendResult, PullResult.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

import msgspec

from ledgermq.remoting.protocol.errors import Outcome
from ledgermq.remoting.protocol.headers import DEFAULT_REGION
from ledgermq.remoting.protocol.message import MessageExt


class MessageQueue(NamedTuple):
    """One queue of a topic; sorts by topic, broker name and queue id, as RocketMQ does."""

    topic: str
    broker_name: str
    queue_id: int


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message to send.

    Messages with the same ``sharding_key`` go to the same queue, and so keep their order.
    ``keys`` holds the business keys separated by spaces. ``delay_level`` 0 means deliver at once
    (levels 1..18 are 1 s to 2 h). ``flag`` is an opaque number of the user (int32).
    """

    topic: str
    body: bytes
    tags: str = ""
    keys: str = ""
    properties: dict[str, str] = {}  # msgspec copies an empty default
    flag: int = 0
    delay_level: int = 0
    sharding_key: str = ""


class SendStatus(IntEnum):
    """How the broker stored an acknowledged message; the values are the response codes."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """One try to send a message; times are of the monotonic clock, in nanoseconds.

    ``code`` is the response code, None when there was no response. ``error_class`` is empty for a
    success, and ``outcome`` is then None. ``broker_addr`` is empty if no leader was known.
    """

    broker_addr: str
    t_start_ns: int
    t_end_ns: int
    code: int | None
    error_class: str
    outcome: Outcome | None


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """An acknowledged send.

    ``msg_id`` is the unique key made by this client (comma joined for a batch), ``offset_msg_id``
    the broker's id, ``queue_offset`` the position (of the first message of a batch) in the queue.
    """

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    attempts: tuple[Attempt, ...]
    region: str = DEFAULT_REGION
    """What the broker calls the region it is in; traces name it."""


class PullStatus(Enum):
    """What a pull found."""

    FOUND = "found"
    NO_NEW_MESSAGE = "no new message"
    NO_MATCHED_MESSAGE = "no matched message"
    OFFSET_ILLEGAL = "offset illegal"


@dataclass(frozen=True, slots=True, kw_only=True)
class PullResult:
    """The answer to a pull; ``next_offset`` is where the next pull should begin."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[MessageExt]
    suggested_broker_id: int = 0


class ConsumeStatus(Enum):
    """What a listener says about the messages it was given."""

    CONSUME_SUCCESS = "success"
    RECONSUME_LATER = "later"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = RECONSUME_LATER
    """RocketMQ's name for the same in an orderly listener."""


class MessageModel(Enum):
    """Who of a group gets a message; the values are the wire names."""

    CLUSTERING = "CLUSTERING"
    """One member."""
    BROADCASTING = "BROADCASTING"
    """Every member."""


class ConsumeFrom(Enum):
    """Where a group without a stored offset begins; the values are the wire names."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(slots=True, eq=False)
class ConsumeContext:
    """What a listener may know and say about one call.

    Set ``delay_level`` to choose when a failed message returns: 1 to 18 is the level, 0 one level
    higher each time (10 s, 30 s, 1 min and so on), and -1 makes it a dead letter at once. Set
    ``suspend_ms`` to choose how long an orderly queue waits (10 to 30,000; None: as the options
    say).
    """

    queue: MessageQueue
    delay_level: int = 0
    t_pull_start_ns: int = 0
    """When the pull that brought the messages was sent, by the monotonic clock."""
    t_pull_end_ns: int = 0
    suspend_ms: int | None = None

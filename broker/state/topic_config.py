"""Topics: their queues and permissions, what exists at start, and how a missing one is made.

A state machine fed by the replicated log: every change is an entry applied on all replicas in the
same order, so the table and its data version are the same everywhere. System topics come from the
settings and are not replicated. Knows neither the log nor the disk; ``snapshot`` and ``restore``
speak RocketMQ's JSON. Source: spec/wire.md 3.3 (auto-creation), 3.9 (17); spec/disk.md 5.6;
RocketMQ TopicConfigManager, TopicValidator.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from broker.limits import TOPICS_BYTES_MAX
from broker.state.kinds import StateKind
from broker.state.table import LargeTable
from broker.table_text import documents_of, text_in_steps
from ledgermq.remoting.protocol.bodies import DataVersion, TopicConfig, decode_file
from ledgermq.remoting.protocol.limits import TOPIC_LENGTH_MAX, Int64

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from broker.config import BrokerConfig
    from broker.state.table import Exchange, Gauge, Text

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
PERM_READ_WRITE = PERM_READ | PERM_WRITE

AUTO_CREATE_TOPIC = "TBW102"
STATE_TOPIC = "rmq_sys_LEDGER_STATE"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
SYSTEM_PREFIX = "rmq_sys_"


SUMMED_PER_STEP = 10_000
#: What one more topic may take in a registration, whatever its name.
TOPIC_BYTES_MAX = 1_024
#: Bits: 1 inherited by topics that are created like this one, 2 writable, 4 readable.
PERM_MAX = PERM_INHERIT | PERM_WRITE | PERM_READ
FILTER_TYPES = frozenset({"SINGLE_TAG", "MULTI_TAG"})

#: Topics that clients must not send to.
FORBIDDEN_TOPICS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        STATE_TOPIC,
    }
)
#: Topics whose messages no consumer is meant to have.
UNREAD_TOPICS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        STATE_TOPIC,
    }
)
_SYSTEM_TOPICS = frozenset(
    {*FORBIDDEN_TOPICS, AUTO_CREATE_TOPIC, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC"}
)
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+\Z")
#: TopicFilterType MULTI_TAG adds this sysFlag to every message.
_MULTI_TAGS_FLAG = 2


class TopicEntry(msgspec.Struct, frozen=True):
    """One topic as the send and pull paths want it: one dictionary look-up, no conversion."""

    name: str
    name_bytes: bytes
    config: TopicConfig
    read_queues: int
    write_queues: int
    #: A queue id must be below this.
    queues: int
    readable: bool
    #: Or-ed into the sysFlag of every message.
    system_flag: int
    #: Clients may not send here.
    forbidden: bool
    #: A send is looked at first: it may be refused, or go elsewhere.
    is_special: bool
    #: Member of a JSON object of topics by name.
    encoded: bytes


class TopicChange(msgspec.Struct, frozen=True, rename="camel"):
    """A replicated change: the new configuration and the leader's wall time of it."""

    config: TopicConfig
    timestamp: Int64


class TopicRemoval(msgspec.Struct, frozen=True, rename="camel"):
    """A replicated removal, and the leader's wall time of it."""

    topic: str
    timestamp: Int64


class _Snapshot(msgspec.Struct, rename="camel"):
    data_version: DataVersion
    topic_config_table: dict[str, TopicConfig]


def topic_name_error(topic: str) -> str | None:
    """Return why RocketMQ 4.9 refuses this topic name, or None."""
    if len(topic) > TOPIC_LENGTH_MAX:
        return "The specified topic is longer than topic max length."
    if not topic.strip():
        return "The specified topic is blank."
    if not _NAME.match(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    return None


def topic_text(config: TopicConfig) -> str:
    """Return a topic's configuration in the words that remarks of RocketMQ 4.9 have for it."""
    order = "true" if config.order else "false"
    bits = zip("RWX", (PERM_READ, PERM_WRITE, PERM_INHERIT), strict=True)
    perm = "".join(letter if config.perm & bit else "-" for letter, bit in bits)
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={order}]"
    )


def auto_created(topic: str, default: TopicEntry | None, client_queues: int) -> TopicConfig | None:
    """Return the configuration a send to a missing topic creates, or None when it may not.

    Source: spec/wire.md 3.3, TopicConfigManager.createTopicInSendMessageMethod.
    """
    if default is None or not default.config.perm & PERM_INHERIT:
        return None
    queues = max(min(client_queues, default.write_queues), 0)
    return TopicConfig(
        topic_name=topic,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=default.config.perm & ~PERM_INHERIT,
        topic_filter_type=default.config.topic_filter_type,
    )


def send_back_topic(topic: str, queues: int) -> TopicConfig:
    """Return the configuration of a retry or dead-letter topic."""
    return TopicConfig(
        topic_name=topic,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=PERM_READ | PERM_WRITE,
    )


def system_topics(config: BrokerConfig) -> list[TopicConfig]:
    """Return the topics that every broker has from its start (spec/disk.md 5.6)."""
    read_write = PERM_READ | PERM_WRITE
    inherited = read_write | PERM_INHERIT
    model = [(AUTO_CREATE_TOPIC, config.default_topic_queue_nums, inherited)]
    rows = [
        ("SELF_TEST_TOPIC", 1, read_write),
        *(model if config.auto_create_topic_enable else ()),  # else clients find no route to it
        ("BenchmarkTest", 1024, read_write),
        (config.broker_cluster_name, 16, inherited),
        (config.broker_name, 1, inherited),
        ("OFFSET_MOVED_EVENT", 1, read_write),
        ("SCHEDULE_TOPIC_XXXX", 18, read_write),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 1, read_write),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, read_write),
        ("TRANS_CHECK_MAX_TIME_TOPIC", 1, read_write),
        (f"{config.broker_cluster_name}_REPLY_TOPIC", 1, read_write),
    ]
    if config.trace_topic_enable:
        rows.append((config.msg_trace_topic_name, 1, read_write))
    return [
        TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        for name, queues, perm in rows
    ]


class TopicTable(LargeTable):
    """All topics of the group, by name.

    Args:
        system: topics that exist without being replicated; clients may not change them.
        timestamp: wall time in milliseconds of the first data version.
        permission: what may be done to any topic of this broker, whatever its own says.
    """

    file = "topics.json"

    def __init__(
        self, system: Iterable[TopicConfig], timestamp: int, permission: int = PERM_READ_WRITE
    ) -> None:
        self._permission = permission
        self.entries: dict[str, TopicEntry] = {}
        self.encoded_bytes = 0
        self._encoded: bytes | None = None
        self.data_version = DataVersion(timestamp=timestamp, counter=0)
        self._system = {config.topic_name: config for config in system}
        for config in self._system.values():
            self._put(config)

    def get(self, topic: str) -> TopicEntry | None:
        """Return a topic, or None."""
        return self.entries.get(topic)

    @property
    def full(self) -> bool:
        """Whether no further topic may be created."""
        return not self._has_room()

    @property
    def writable(self) -> bool:
        """Whether this broker may be written; who has to send to it may send all the same."""
        return bool(self._permission & PERM_WRITE)

    def exists(self, topic: str) -> bool:
        """Tell whether there is a topic, or may be one that is not in this table: the system's."""
        return topic in self.entries or self.is_system(topic)

    @property
    def is_bare(self) -> bool:
        """Whether there is no topic but those of the settings."""
        return len(self.entries) <= len(self._system)

    def is_system(self, topic: str) -> bool:
        """Tell whether administration of this topic is refused."""
        return topic in _SYSTEM_TOPICS or topic in self._system or topic.startswith(SYSTEM_PREFIX)

    def is_of_settings(self, topic: str) -> bool:
        """Tell whether a topic is there as this broker's settings say, whatever others say."""
        return topic in self._system or topic == AUTO_CREATE_TOPIC

    def system_names(self) -> list[str]:
        """Return the names of system topics, of those that do not exist here, too."""
        return sorted(_SYSTEM_TOPICS | self._system.keys())

    def configs(self) -> Mapping[str, TopicConfig]:
        """Return every configuration by topic name."""
        return {name: entry.config for name, entry in self.entries.items()}

    def permitted(self) -> Mapping[str, TopicConfig]:
        """Return `configs` as routes show them: with no more than this broker permits."""
        permission = self._permission
        if self._permits_all:
            return self.configs()
        return {
            name: msgspec.structs.replace(entry.config, perm=entry.config.perm & permission)
            for name, entry in self.entries.items()
        }

    def encode_permitted(self) -> bytes:
        """Return the JSON object of `permitted`; made anew where not all is."""
        return self.encode() if self._permits_all else msgspec.json.encode(self.permitted())

    def encode(self) -> bytes:
        """Return the JSON object of all topics by name; made of parts, so that it is quick."""
        if self._encoded is None:
            members = [entry.encoded for entry in self.entries.values()]
            self._encoded = b"{" + b",".join(members) + b"}"
        return self._encoded

    def appliers(self) -> Mapping[str, Callable[[bytes], object]]:
        """See `ReplicatedTable`."""
        return {StateKind.TOPIC: self.apply, StateKind.FORGET_TOPIC: self.apply_removal}

    def gauges(self) -> Iterable[Gauge]:
        """See `ReplicatedTable`."""
        yield TOPICS_BYTES_MAX, lambda: self.encoded_bytes

    def apply(self, payload: bytes) -> str:
        """Apply a replicated change and return the topic's name."""
        change = msgspec.json.decode(payload, type=TopicChange)
        self._put(change.config)
        self.data_version = DataVersion(
            timestamp=change.timestamp, counter=self.data_version.counter + 1
        )
        return change.config.topic_name

    def apply_removal(self, payload: bytes) -> None:
        """Apply a replicated removal; topics of the system stay."""
        removal = msgspec.json.decode(payload, type=TopicRemoval)
        if removal.topic not in self._system:
            self._remove(removal.topic)
        self.data_version = DataVersion(
            timestamp=removal.timestamp, counter=self.data_version.counter + 1
        )

    def snapshot_steps(self) -> Iterator[bytes]:
        """Return the parts of config/topics.json as it is now.

        Without the system's topics: these are settings, and another replica that takes this
        snapshot has its own, a topic by its broker's name among them.
        """
        version = self.data_version
        entries = self.entries.copy()
        for name in self._system:
            entries.pop(name, None)
        return text_in_steps(
            lambda part: _Snapshot(version, {name: entry.config for name, entry in part}),
            entries.items(),
        )

    def restore_steps(self, data: Text) -> Generator[None, None, Exchange]:
        """See `ReplicatedTable`; system topics keep what the settings say."""
        version = self.data_version
        entries = {name: self.entries[name] for name in self._system}
        for number, document in enumerate(documents_of(data)):
            if number:
                yield
            part = decode_file(document, _Snapshot)
            version = part.data_version
            for config in part.topic_config_table.values():
                if not self.is_of_settings(config.topic_name):
                    entries[config.topic_name] = _entry_of(config, self._permission)
        size = 0
        for number, entry in enumerate(entries.values(), start=1):
            size += _size_of(entry)
            if number % SUMMED_PER_STEP == 0:
                yield
        return partial(self._replace, version, entries, size)

    def _replace(
        self, version: DataVersion, entries: dict[str, TopicEntry], size: int
    ) -> dict[str, TopicEntry]:
        """Exchange what is in ``entries``: the hot path has that dictionary itself."""
        former = self.entries.copy()
        self.entries.clear()
        self.entries.update(entries)
        self.encoded_bytes, self._encoded = size, None
        self.data_version = version
        return former

    @property
    def _permits_all(self) -> bool:
        return self._permission & PERM_READ_WRITE == PERM_READ_WRITE

    def _has_room(self) -> bool:
        return self.encoded_bytes + TOPIC_BYTES_MAX <= TOPICS_BYTES_MAX

    def _remove(self, name: str) -> None:
        entry = self.entries.pop(name, None)
        if entry is not None:
            self.encoded_bytes -= _size_of(entry)
            self._encoded = None

    def _put(self, config: TopicConfig) -> None:
        entry = _entry_of(config, self._permission)
        self._encoded = None
        former = self.entries.get(entry.name)
        self.encoded_bytes += _size_of(entry) - (_size_of(former) if former else 0)
        self.entries[entry.name] = entry


def _size_of(entry: TopicEntry) -> int:
    return len(entry.encoded) + 1


def _entry_of(config: TopicConfig, permission: int) -> TopicEntry:
    name = config.topic_name
    is_forbidden = name in FORBIDDEN_TOPICS or (config.order and not permission & PERM_WRITE)
    return TopicEntry(
        name=name,
        name_bytes=name.encode(),
        config=config,
        read_queues=config.read_queue_nums,
        write_queues=config.write_queue_nums,
        queues=max(config.read_queue_nums, config.write_queue_nums),
        readable=bool(config.perm & permission & PERM_READ),
        system_flag=_MULTI_TAGS_FLAG if config.topic_filter_type == "MULTI_TAG" else 0,
        forbidden=is_forbidden,
        is_special=is_forbidden or name.startswith(RETRY_PREFIX),
        encoded=msgspec.json.encode(name) + b":" + msgspec.json.encode(config),
    )

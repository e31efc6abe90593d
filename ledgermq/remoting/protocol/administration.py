"""Headers and bodies of the requests by which RocketMQ's tools look at a broker and prepare it.

Members of bodies are in fastjson's order (alphabetical). Maps that have message queues for keys are
made by `bodies.queue_map`, or of texts by `joined_map`. Pure.
Source: spec/wire.md 3.9; RocketMQ ConsumeStats, TopicStatsTable, ProducerTableInfo,
BrokerStatsData, QueryConsumeQueueResponseBody and the headers beside them.
"""

from collections.abc import Iterable

import msgspec

from ledgermq.remoting.protocol.bodies import (
    ClientConnection,
    DataVersion,
    QueueKey,
    SubscriptionData,
)
from ledgermq.remoting.protocol.limits import Int32, Int64


class TopicHeader(msgspec.Struct):
    """Header of 202, 300 and 351."""

    topic: str


class GroupHeader(msgspec.Struct):
    """Header of 343 and 352."""

    group: str


class ProducerGroupHeader(msgspec.Struct, rename="camel"):
    """Header of 204."""

    producer_group: str


class ConsumeStatsHeader(msgspec.Struct, rename="camel"):
    """Header of 208; RocketMQ 5 names several topics, with ``;`` in between."""

    consumer_group: str
    topic: str = ""
    topic_list: str = ""


class AllConsumeStatsHeader(msgspec.Struct, rename="camel"):
    """Header of 317."""

    is_order: bool = False


class CorrectionHeader(msgspec.Struct, rename="camel"):
    """Header of 308; the groups that are passed over have ``,`` in between."""

    topic: str
    compare_group: str
    filter_groups: str = ""


class CloneOffsetsHeader(msgspec.Struct, rename="camel"):
    """Header of 314; without a topic all of them are meant."""

    src_group: str
    dest_group: str
    topic: str = ""
    offline: bool = False


class TimeSpanHeader(msgspec.Struct):
    """Header of 303."""

    topic: str
    group: str


class StatsDataHeader(msgspec.Struct, rename="camel"):
    """Header of 315."""

    stats_name: str
    stats_key: str


class DeleteGroupHeader(msgspec.Struct, rename="camel"):
    """Header of 207: RocketMQ 4.9's tools and 5's have different names for the same."""

    group_name: str
    remove_offset: bool = False
    clean_offset: bool = False


class ResetOffsetHeader(msgspec.Struct, rename="camel"):
    """Header of 222 and 220; time -1 is the end of a queue, queue -1 all of them.

    RocketMQ 5 may name one queue, and an offset in it.
    """

    topic: str
    group: str
    timestamp: Int64
    is_force: bool = False
    queue_id: Int32 = -1
    offset: Int64 | None = None


class ToldResetHeader(msgspec.Struct, rename="camel"):
    """Header of 220."""

    topic: str
    group: str
    timestamp: int
    is_force: bool


class ClientStatusHeader(msgspec.Struct, rename="camel"):
    """Header of 223 and 221; ``client_addr`` is the id of a client, none for all."""

    topic: str
    group: str
    client_addr: str | None = None


class RunningInfoHeader(msgspec.Struct, rename="camel"):
    """Header of 307."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeDirectlyHeader(msgspec.Struct, rename="camel"):
    """Header of 309; the broker adds its name."""

    consumer_group: str
    client_id: str
    msg_id: str
    broker_name: str | None = None
    topic: str | None = None


class QueueUnitsHeader(msgspec.Struct, rename="camel"):
    """Header of 321."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


class _Body(msgspec.Struct, rename="camel", kw_only=True):
    pass


class QueueOffsets(_Body, gc=False):
    """A queue in the answer of 202; times are wall time in milliseconds, 0 for none."""

    last_update_timestamp: int
    max_offset: int
    min_offset: int


class TopicStats(_Body):
    """Answer of 202; see `queue_map`."""

    offset_table: msgspec.Raw


class ConsumedOffsets(_Body, gc=False):
    """A queue in the answers of 208 and 317: where it ends, where the group is, and since when.

    RocketMQ 5 tells where the group has pulled to as well, and its tools show the difference as
    what is in flight. Nobody counts that here: it is told as 0.
    """

    broker_offset: int
    consumer_offset: int
    last_timestamp: int
    pull_offset: int


class ConsumeStats(_Body):
    """Answer of 208; see `queue_map`."""

    consume_tps: float
    offset_table: msgspec.Raw


class AllConsumeStats(_Body):
    """Answer of 317: a map of one group to its topics, `ConsumeStats`, for each group."""

    broker_addr: str
    consume_stats_list: msgspec.Raw
    total_diff: int


class QueueTimeSpan(_Body):
    """A queue in the answer of 303."""

    consume_time_stamp: int
    delay_time: int
    max_time_stamp: int
    message_queue: QueueKey
    min_time_stamp: int


class TimeSpans(_Body):
    """Answer of 303."""

    consume_time_span_set: list[QueueTimeSpan]


class ResetOffsets(_Body):
    """Answer of 222, and body of 220; see `queue_map`."""

    offset_table: msgspec.Raw


class QueueOffset(_Body, gc=False):
    """A queue in the body of 220 for clients in C++, which read no map."""

    broker_name: str
    offset: int
    queue_id: int
    topic: str


class ResetOffsetList(_Body):
    """Body of 220 for clients in C++."""

    offset_table: list[QueueOffset]


class ClientStatusTable(_Body):
    """Answer of 223, by client id; see `queue_map`."""

    consumer_table: dict[str, msgspec.Raw]


class QueueUnit(_Body, gc=False):
    """An entry of a consume queue in the answer of 321."""

    eval: bool
    physic_offset: int
    physic_size: int
    tags_code: int


class QueueUnits(_Body, omit_defaults=True):
    """Answer of 321; the subscription of the group that was named, or why there is none."""

    max_queue_index: int
    min_queue_index: int
    queue_data: list[QueueUnit]
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


class WindowStats(_Body):
    """A window in the answer of 315; nobody counts how many requests made up the sum."""

    avgpt: float = 0.0
    sum: int = 0
    tps: float = 0.0


class StatsData(_Body):
    """Answer of 315."""

    stats_day: WindowStats
    stats_hour: WindowStats
    stats_minute: WindowStats


class GroupList(_Body):
    """Answer of 300."""

    group_list: list[str]


class ProducerConnections(_Body):
    """Answer of 204."""

    connection_set: list[ClientConnection]


class ProducerInfo(_Body):
    """One producer in the answer of 328."""

    client_id: str
    language: str
    last_update_timestamp: int
    remote_ip: str = msgspec.field(name="remoteIP")
    version: int


class ProducerTable(_Body):
    """Answer of 328."""

    data: dict[str, list[ProducerInfo]]


class TopicTableBody(_Body):
    """Answer of 21, with the topics as they are kept encoded."""

    data_version: DataVersion
    topic_config_table: msgspec.Raw


class GroupTableBody(_Body):
    """Answer of 201, with groups that are encoded."""

    data_version: DataVersion
    subscription_group_table: msgspec.Raw


class GroupConfigBody(_Body):
    """Body of 200: the settings of a consumer group, with RocketMQ's defaults."""

    broker_id: Int64 = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    group_name: str = ""
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: Int32 = 16
    retry_queue_nums: Int32 = 1
    which_broker_when_consume_slowly: Int64 = 1


class CorrectionOffsets(_Body):
    """Answer of 308, by queue."""

    correction_offsets: dict[int, int]


class ClientOffsets(_Body):
    """Answer of 221; see `queue_map`."""

    message_queue_table: msgspec.Raw


class ProcessQueueInfo(_Body, gc=False):
    """A queue in the answer of 307; times are wall time in milliseconds, 0 for never."""

    cached_msg_count: int
    cached_msg_max_offset: int
    cached_msg_min_offset: int
    cached_msg_size_in_mi_b: int
    commit_offset: int
    droped: bool
    last_consume_timestamp: int
    last_lock_timestamp: int
    last_pull_timestamp: int
    locked: bool
    transaction_msg_count: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_min_offset: int = 0
    try_unlock_times: int = 0


class ConsumeFigures(_Body, gc=False):
    """A topic in the answer of 307: messages by second, and times in milliseconds."""

    consume_failed_msgs: int
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS")
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS")
    consume_rt: float = msgspec.field(name="consumeRT")
    pull_rt: float = msgspec.field(name="pullRT")
    pull_tps: float = msgspec.field(name="pullTPS")


class ConsumerRunningInfo(_Body):
    """Answer of 307; see `queue_map`."""

    jstack: str | None
    mq_table: msgspec.Raw
    properties: dict[str, str]
    status_table: dict[str, ConsumeFigures]
    subscription_set: list[SubscriptionData]


class DirectResult(_Body):
    """Answer of 309: what the listener said, and how long it took."""

    auto_commit: bool
    consume_result: str
    order: bool
    remark: str | None
    spent_time_mills: int


def queue_member(queue: QueueKey, value: object) -> bytes:
    """Return the text of a member of a `bodies.queue_map`."""
    return msgspec.json.encode(queue) + b":" + msgspec.json.encode(value)


def joined_map(members: Iterable[bytes]) -> msgspec.Raw:
    """Return a map of members that are text already."""
    return msgspec.Raw(b"{" + b",".join(members) + b"}")

"""What one broker knows: the replicated tables and the registries of who is connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.cluster.usage import Usage
from broker.fair_share import FairShare
from broker.groups.client_registry import ConsumerRegistry, ProducerRegistry
from broker.limits import GROUPS_MAX, LOCKS_MAX, OFFSETS_BYTES_MAX, TOPICS_BYTES_MAX
from broker.pulls.long_polling import HoldTable
from broker.serving_limits import CLIENTS_BYTES_MAX, HELD_MAX, HELD_TAGS_BYTES_MAX
from broker.state.consumer_offset import ConsumerOffsetTable
from broker.state.queue_lock import QueueLockTable
from broker.state.replicated_state import ReplicatedState
from broker.state.subscription import SubscriptionGroupTable
from broker.state.topic_config import TopicTable, system_topics

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from ledgermq.runtime.clock import Clock


class Tables:
    """Built once; filled by the snapshot, the log and the clients."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        now_ms = clock.wall_ms()
        self.topics = TopicTable(system_topics(config), now_ms)
        self.groups = SubscriptionGroupTable(
            now_ms, auto_create=config.auto_create_subscription_group
        )
        self.offsets = ConsumerOffsetTable()
        self.locks = QueueLockTable()
        clients = FairShare(CLIENTS_BYTES_MAX)
        self.producers = ProducerRegistry(clients)
        self.consumers = ConsumerRegistry(clients)
        self.held = HoldTable()
        self.usage = Usage()
        self.usage.add(CLIENTS_BYTES_MAX, lambda: clients.used)
        self.usage.add(HELD_MAX, self.held.__len__)
        self.usage.add(HELD_TAGS_BYTES_MAX, lambda: self.held.tags_bytes)
        for limit, table in (
            (GROUPS_MAX, self.groups),
            (LOCKS_MAX, self.locks),
        ):
            self.usage.add(limit, table.__len__)
        self.usage.add(TOPICS_BYTES_MAX, lambda: self.topics.encoded_bytes)
        self.usage.add(OFFSETS_BYTES_MAX, lambda: self.offsets.room.used)
        self.state = ReplicatedState(
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            locks=self.locks,
            clock=clock,
        )

"""What one broker knows: replicated tables, registries of who is connected, budgets, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from broker.cluster.usage import Usage
from broker.fair_share import FairShare
from broker.groups.client_registry import ConsumerRegistry, ProducerRegistry
from broker.limits import COPIED_BYTES_MAX, TRAFFIC_NAMES_MAX
from broker.pulls.long_polling import HoldTable
from broker.sends.copy_budget import CopyBudget
from broker.serving_limits import CLAIMS_MAX, CLIENTS_BYTES_MAX, HELD_MAX, HELD_TAGS_BYTES_MAX
from broker.state.consumer_offset import ConsumerOffsetTable
from broker.state.own_offsets import OwnOffsets
from broker.state.queue_lock import QueueLockTable
from broker.state.replicated_state import ReplicatedState
from broker.state.subscription import SubscriptionGroupTable
from broker.state.table import ReplicatedTable
from broker.state.topic_config import TopicTable, system_topics
from broker.stats.counts import TrafficCounts

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from ledgermq.runtime.clock import Clock


T = TypeVar("T", bound=ReplicatedTable)


class Commits(Protocol):
    """Takes offsets that clients commit."""

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """See `ConsumerOffsetTable.commit`."""


class Tables:
    """Built once; filled by the snapshot, the log and the clients."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.state = ReplicatedState()
        self.usage = Usage()
        now_ms = clock.wall_ms()
        self.topics = self.add(
            TopicTable(system_topics(config), now_ms, permission=config.broker_permission)
        )
        self.groups = self.add(
            SubscriptionGroupTable(now_ms, auto_create=config.auto_create_subscription_group)
        )
        self.offsets = self.add(ConsumerOffsetTable())
        self.own_offsets: OwnOffsets | None = None
        """Of a master and a slave: what was committed to this broker while it was a slave."""
        self.commits: Commits = self.offsets
        """Takes what clients commit."""
        if config.broker_role and not config.enable_dledger:
            self.own_offsets = self.add(OwnOffsets(self.offsets))
            if config.is_slave:
                self.commits = self.own_offsets
        self.locks = self.add(QueueLockTable(clock.monotonic_ms))
        clients = FairShare(CLIENTS_BYTES_MAX)
        self.producers = ProducerRegistry(clients)
        self.consumers = ConsumerRegistry(clients)
        self.held = HoldTable()
        self.copies = CopyBudget(clock.monotonic_ms)
        self.counts = TrafficCounts(clock)
        self.usage.add(TRAFFIC_NAMES_MAX, self.counts.__len__)
        self.usage.add(COPIED_BYTES_MAX, lambda: self.copies.used)
        self.usage.add(CLIENTS_BYTES_MAX, lambda: clients.used)
        self.usage.add(CLAIMS_MAX, self.consumers.claims.__len__)
        self.usage.add(HELD_MAX, self.held.__len__)
        self.usage.add(HELD_TAGS_BYTES_MAX, lambda: self.held.filters_bytes)

    def add(self, table: T) -> T:
        """Register a replicated table: its records, its text in snapshots, its limits."""
        self.state.add(table)
        for limit, used in table.gauges():
            self.usage.add(limit, used)
        return table

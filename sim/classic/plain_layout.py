"""Machines of plans in which copies of RocketMQ's commit log replicate: no Raft group.

Who is master is said elsewhere: by settings (`sim.classic.layout`) or by controllers
(`sim.switch.layout`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from dledger.config import FlushDiskType
from ledgermq.client.config import ClientConfig
from sim.layout import BROKER_PORT, KEY_SLOTS, NAMESRV_PORT, SEND_TIMEOUT_MS, STORE
from sim.record import AUDITOR
from sim.settings import SimBrokerConfig

if TYPE_CHECKING:
    from sim.context import Host
    from sim.faults.plan import Plan

GIVE_UP_BEATS: Final = 4
"""A connection is given up after so many heartbeats that did not come."""


class Replication(Protocol):
    """What plans of both kinds say of the stream between brokers."""

    @property
    def names(self) -> tuple[str, ...]:
        """Hosts of the brokers."""
        ...

    @property
    def slave_timeout_ms(self) -> int:
        """How long a send waits for other replicas."""
        ...

    @property
    def heartbeat_ms(self) -> int:
        """Of the stream."""
        ...

    @property
    def batch_bytes(self) -> int:
        """Of a transfer."""
        ...


class PlainLayout:
    """Names of hosts by what runs on them; ``hosts`` is filled by who makes them.

    Args:
        name: what the brokers are called.
        flush: how all brokers but the first one flush.
    """

    def __init__(self, plan: Plan, replication: Replication, name: str, flush: str) -> None:
        self.plan = plan
        self.hosts: dict[str, Host] = {}
        self.brokers = replication.names
        self.namesrvs = tuple(f"ns{i}" for i in range(plan.options.namesrvs))
        self.producers = tuple(f"p{i}" for i in range(plan.workload.producers))
        self.consumers = tuple(f"c{i}" for i in range(plan.workload.consumers))
        self._replication = replication
        self._name = name
        self._flush = flush

    @property
    def clients(self) -> tuple[str, ...]:
        """Hosts of producers and consumers."""
        return self.producers + self.consumers

    @property
    def nets(self) -> tuple[tuple[str, ...], ...]:
        """Hosts by network; each has one of its own."""
        return self.brokers, self.namesrvs, self.producers, self.consumers, (AUDITOR,)

    def namesrv_addrs(self) -> tuple[str, ...]:
        """Return the addresses of all name servers."""
        return tuple(f"{self.hosts[name].address}:{NAMESRV_PORT}" for name in self.namesrvs)

    def broker_address(self, name: str) -> str:
        """Return where a broker listens for clients."""
        return f"{self.hosts[name].address}:{BROKER_PORT}"

    def is_synced(self, name: str) -> bool:
        """Tell whether a broker promises only what it has synced."""
        return self.flush_of(name) is FlushDiskType.SYNC_FLUSH

    def flush_of(self, name: str) -> FlushDiskType:
        """Return how a broker flushes, whatever its role."""
        is_first = name == self.brokers[0]
        return FlushDiskType(self.plan.options.flush_disk_type if is_first else self._flush)

    def client_config(self, name: str) -> ClientConfig:
        """Return the settings of a producer or consumer."""
        host = self.hosts[name]
        return ClientConfig(
            namesrv_addrs=self.namesrv_addrs(),
            group="senders",
            instance_name=f"{name}-{host.incarnation}",
            source_address=host.address,
            process_id=host.number,
            send_timeout_ms=max(SEND_TIMEOUT_MS, 2 * self._replication.slave_timeout_ms),
        )

    def _config(self, name: str) -> SimBrokerConfig:
        """Return the settings of a broker that no role changes."""
        options, replication, host = self.plan.options, self._replication, self.hosts[name]
        return SimBrokerConfig(
            broker_name=self._name,
            broker_ip1=host.address,
            bind_address=host.address,
            listen_port=BROKER_PORT,
            namesrv_addr=";".join(self.namesrv_addrs()),
            register_period_ms=10_000,
            store_path=STORE,
            segment_bytes=options.segment_bytes,
            queue_file_bytes=options.queue_file_bytes,
            max_hash_slot_num=KEY_SLOTS,
            max_index_num=4 * KEY_SLOTS,
            flush_disk_type=self.flush_of(name),
            flush_pages_min=0,
            default_topic_queue_nums=max(1, self.plan.workload.queues),
            enable_dledger=False,
            process_id=host.number,
            sync_flush_timeout_ms=options.max_wait_ack_ms,
            slave_timeout_ms=replication.slave_timeout_ms,
            ha_heartbeat_ms=replication.heartbeat_ms,
            ha_housekeeping_ms=GIVE_UP_BEATS * replication.heartbeat_ms,
            ha_batch_bytes=replication.batch_bytes,
            delay_levels=options.delay_levels,
            clean_interval_ms=0,
            sim_checkpoint_ms=options.checkpoint_ms,
        )

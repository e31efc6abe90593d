"""Which machines a plan about master and slaves has, and the settings of the programs on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.config import FlushDiskType
from ledgermq.client.config import ClientConfig
from sim.layout import BROKER_PORT, KEY_SLOTS, NAMESRV_PORT, SEND_TIMEOUT_MS, STORE
from sim.record import AUDITOR
from sim.settings import SimBrokerConfig

if TYPE_CHECKING:
    from sim.context import Host
    from sim.faults.classic import Classic
    from sim.faults.plan import Plan

NAME: Final = "BrokerPair"
"""What master and slaves are called."""
GIVE_UP_BEATS: Final = 4
"""A connection is given up after so many heartbeats that did not come."""


class ClassicLayout:
    """Names of hosts by what runs on them; ``hosts`` is filled by who makes them."""

    def __init__(self, plan: Plan) -> None:
        options, workload = plan.options, plan.workload
        assert options.classic is not None
        self.plan = plan
        self.classic: Classic = options.classic
        self.hosts: dict[str, Host] = {}
        self.brokers = self.classic.names
        self.namesrvs = tuple(f"ns{i}" for i in range(options.namesrvs))
        self.producers = tuple(f"p{i}" for i in range(workload.producers))
        self.consumers = tuple(f"c{i}" for i in range(workload.consumers))

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
        options = self.plan.options
        return FlushDiskType(options.flush_disk_type if is_first else self.classic.slave_flush)

    def client_config(self, name: str) -> ClientConfig:
        """Return the settings of a producer or consumer."""
        host = self.hosts[name]
        return ClientConfig(
            namesrv_addrs=self.namesrv_addrs(),
            group="senders",
            instance_name=f"{name}-{host.incarnation}",
            source_address=host.address,
            process_id=host.number,
            send_timeout_ms=max(SEND_TIMEOUT_MS, 2 * self.classic.slave_timeout_ms),
        )

    def broker_config(self, name: str, *, is_master: bool) -> SimBrokerConfig:
        """Return the settings of a broker in a role."""
        options, classic, host = self.plan.options, self.classic, self.hosts[name]
        role = "SLAVE"
        if is_master:
            role = "SYNC_MASTER" if classic.is_sync else "ASYNC_MASTER"
        return SimBrokerConfig(
            broker_name=NAME,
            broker_id=0 if is_master else 1 + self.brokers.index(name),
            broker_role=role,
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
            slave_timeout_ms=classic.slave_timeout_ms,
            ha_behind_max=classic.behind_max,
            ha_heartbeat_ms=classic.heartbeat_ms,
            ha_housekeeping_ms=GIVE_UP_BEATS * classic.heartbeat_ms,
            ha_batch_bytes=classic.batch_bytes,
            delay_levels=options.delay_levels,
            clean_interval_ms=0,
            sim_checkpoint_ms=options.checkpoint_ms,
        )

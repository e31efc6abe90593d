"""Which machines a plan about controllers has, and the settings of the programs on them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dledger.config import FlushDiskType
from ledgermq.client.config import ClientConfig
from ledgermq.remoting.transport.credentials import SecuritySettings
from namesrv.config import NamesrvConfig
from namesrv.controller.config import ControllerConfig
from sim.classic.layout import GIVE_UP_BEATS
from sim.layout import BROKER_PORT, KEY_SLOTS, NAMESRV_PORT, PEER_KEY, SEND_TIMEOUT_MS, STORE
from sim.record import AUDITOR
from sim.settings import SimBrokerConfig

if TYPE_CHECKING:
    from sim.context import Host
    from sim.faults.plan import Plan
    from sim.faults.switch import Switch

NAME: Final = "BrokerSet"
"""What the brokers are called."""
CLUSTER: Final = "DefaultCluster"
CONTROLLER_PORT: Final = 9_878
CONTROLLER_STORE: Final = "/controller"


class SwitchLayout:
    """Names of hosts by what runs on them; ``hosts`` is filled by who makes them."""

    def __init__(self, plan: Plan) -> None:
        options, workload = plan.options, plan.workload
        assert options.switch is not None
        self.plan = plan
        self.switch: Switch = options.switch
        self.hosts: dict[str, Host] = {}
        self.brokers = self.switch.names
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

    def controller_addrs(self) -> tuple[str, ...]:
        """Return the addresses of all controllers."""
        return tuple(f"{self.hosts[name].address}:{CONTROLLER_PORT}" for name in self.namesrvs)

    def broker_address(self, name: str) -> str:
        """Return where a broker listens for clients."""
        return f"{self.hosts[name].address}:{BROKER_PORT}"

    def broker_at(self, address: str) -> str:
        """Return the broker that listens at ``host:port``."""
        return next(name for name in self.brokers if self.broker_address(name) == address)

    def is_synced(self, name: str) -> bool:
        """Tell whether a broker promises only what it has synced."""
        return self.flush_of(name) is FlushDiskType.SYNC_FLUSH

    def flush_of(self, name: str) -> FlushDiskType:
        """Return how a broker flushes, whatever its role."""
        is_first = name == self.brokers[0]
        return FlushDiskType(self.plan.options.flush_disk_type if is_first else self.switch.flush)

    def client_config(self, name: str) -> ClientConfig:
        """Return the settings of a producer or consumer."""
        host = self.hosts[name]
        return ClientConfig(
            namesrv_addrs=self.namesrv_addrs(),
            group="senders",
            instance_name=f"{name}-{host.incarnation}",
            source_address=host.address,
            process_id=host.number,
            send_timeout_ms=max(SEND_TIMEOUT_MS, 2 * self.switch.slave_timeout_ms),
            route_poll_ms=2_000,
        )

    def namesrv_config(self, name: str) -> NamesrvConfig:
        """Return the settings of a name server."""
        return NamesrvConfig(
            listen_port=NAMESRV_PORT,
            bind_address=self.hosts[name].address,
            kv_config_path=f"{STORE}/kv.json",
            shared_key=PEER_KEY,
        )

    def controller_config(self, name: str) -> ControllerConfig:
        """Return the settings of the controller beside it."""
        return ControllerConfig(
            group="controllers",
            own_id=name,
            peers=dict(zip(self.namesrvs, self.controller_addrs(), strict=True)),
            store_path=CONTROLLER_STORE,
            bind_address=self.hosts[name].address,
            is_authenticated=True,
        )

    def security(self) -> SecuritySettings:
        """Return what controllers are known by."""
        return SecuritySettings(shared_key=PEER_KEY)

    def broker_config(self, name: str) -> SimBrokerConfig:
        """Return the settings of a broker, of whatever role."""
        options, switch, host = self.plan.options, self.switch, self.hosts[name]
        config = SimBrokerConfig(
            broker_cluster_name=CLUSTER,
            broker_name=NAME,
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
            slave_timeout_ms=switch.slave_timeout_ms,
            ha_heartbeat_ms=switch.heartbeat_ms,
            ha_housekeeping_ms=GIVE_UP_BEATS * switch.heartbeat_ms,
            ha_batch_bytes=switch.batch_bytes,
            delay_levels=options.delay_levels,
            clean_interval_ms=0,
            sim_checkpoint_ms=options.checkpoint_ms,
            peer_shared_key=PEER_KEY,
        )
        return replace(
            config,
            enable_controller_mode=True,
            controller_addr=";".join(self.controller_addrs()),
            controller_beat_ms=switch.beat_ms,
            controller_silence_ms=switch.silence_ms,
            controller_poll_ms=switch.poll_ms,
            behind_max_ms=switch.behind_max_ms,
            in_sync_min=switch.in_sync_min,
        )

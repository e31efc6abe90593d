"""Which machines a plan has, where they are, and with what settings the programs on them run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from broker.delay_levels import DELAY_LEVELS
from dledger.config import FlushDiskType
from ledgermq.client.config import ClientConfig
from sim.faults.edges import BEATS
from sim.faults.plan import MEMBERS
from sim.faults.strain import RETRY_TIMES
from sim.oracles.alone_disk import LogFiles
from sim.oracles.records import ENTRY_HEADER_BYTES
from sim.record import AUDITOR
from sim.settings import ALL_HOURS, RETENTION_INTERVAL_MS, SimBrokerConfig
from sim.validators import ALONE_NAME, GROUP_NAME

if TYPE_CHECKING:
    from sim.context import Host
    from sim.faults.plan import Plan

GROUP: Final = GROUP_NAME
BROKER_PORT: Final = 10_911
PEER_PORT: Final = 40_911
PEER_KEY: Final = "a key that all members share"
NAMESRV_PORT: Final = 9_876
DISK_HANG_TICKS: Final = 20
"""A sync that takes so many ticks means that the disk hangs; sooner than in production, so that
the hung disks of a plan are long enough."""
STORE: Final = "/store"
ALONE_HOST: Final = "b0"
"""The machine of a broker outside the group."""
ODD_HOST: Final = "h0"
"""The machine of odd and hostile clients."""
TOOLS_HOST: Final = "y0"
"""The machine of who asks what tools ask."""
EVERYDAY_HOST: Final = "u0"
"""The machine of clients that do what users do every day."""
FITFUL_HOST: Final = "f0"
"""The machine of clients that come and go, and change their minds."""
SKILLED_HOST: Final = "k0"
"""The machine of clients that know what a broker can do."""
GUARDED_HOST: Final = "q0"
"""The machine of who asks brokers with access control, and is not trusted."""
HEARTBEAT_MS: Final = 30_000
"""As clients are set by default."""
SEND_TIMEOUT_MS: Final = 1_500
"""Half of the default: while nobody leads, clients do little else than ask for a leader."""
MIN_PLAIN_SEGMENT: Final = 64 * 1024
SMALL_SEGMENT: Final = 8 * 1024
SMALL_BODY_MAX: Final = 1_024
KEY_SLOTS: Final = 256
"""Slots of a file of the key index: some files are filled in a run of minutes."""


class Layout:
    """Names of hosts by what runs on them; ``hosts`` is filled by who makes them."""

    def __init__(self, plan: Plan) -> None:
        options, workload = plan.options, plan.workload
        self.plan = plan
        self.hosts: dict[str, Host] = {}
        self.brokers = tuple(f"n{i}" for i in range(options.brokers + options.spares))
        self.voters = self.brokers[: options.brokers]
        self.namesrvs = tuple(f"ns{i}" for i in range(options.namesrvs))
        self.producers = tuple(f"p{i}" for i in range(workload.producers))
        self.consumers = tuple(f"c{i}" for i in range(workload.consumers))
        self.late = tuple(f"g{i}" for i in range(len(workload.late)))
        self.alone = (ALONE_HOST,) if options.alone else ()
        self.odd = (ODD_HOST,) if workload.odd else ()
        edges = workload.edges
        self.tools = (TOOLS_HOST,) if edges is not None and edges.tools_ms else ()
        self.everyday = () if workload.everyday is None else (EVERYDAY_HOST,)
        self.fitful = () if workload.fitful is None else (FITFUL_HOST,)
        self.skilled = () if workload.skilled is None else (SKILLED_HOST,)
        self.guarded = () if workload.guarded is None else (GUARDED_HOST,)
        self.members = {
            prefix: tuple(f"{prefix}{i}" for i in range(workload.members(prefix)))
            for prefix in MEMBERS
        }
        """Hosts with members of further groups, by what their names begin with."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Hosts of producers and consumers."""
        return self.producers + self.consumers

    @property
    def all_members(self) -> tuple[str, ...]:
        """Hosts with members of further groups."""
        return tuple(name for names in self.members.values() for name in names)

    @property
    def unhurried(self) -> frozenset[str]:
        """Addresses of clients whose programs ask nothing by themselves but what they send."""
        asking = {*self.tools, *self.members["x"]}
        names = (*self.clients, *self.late, *self.all_members)
        return frozenset(self.hosts[name].address for name in names if name not in asking)

    @property
    def polite(self) -> frozenset[str]:
        """Addresses of clients that say what they mean."""
        others = (*self.tools, *self.everyday, *self.fitful, *self.skilled)
        names = (*self.clients, *self.all_members, *others, AUDITOR)
        return frozenset(self.hosts[name].address for name in names)

    @property
    def nets(self) -> tuple[tuple[str, ...], ...]:
        """Hosts by network; each has one of its own."""
        return (
            self.brokers, self.namesrvs, self.producers, self.consumers, (AUDITOR,), self.odd,
            self.late, self.alone, *self.members.values(), self.tools,
            self.everyday, self.fitful, self.skilled, self.guarded,
        )  # fmt: skip

    def broker_address(self, name: str) -> str:
        """Return where a broker listens for clients."""
        return f"{self.hosts[name].address}:{BROKER_PORT}"

    def peer_address(self, name: str) -> str:
        """Return where a broker listens for its peers."""
        return f"{self.hosts[name].address}:{PEER_PORT}"

    def namesrv_addrs(self) -> list[str]:
        """Return the addresses of all name servers."""
        return [f"{self.hosts[name].address}:{NAMESRV_PORT}" for name in self.namesrvs]

    def namesrv_key(self) -> str:
        """Return the key by which name servers believe, empty where they believe everybody."""
        everyday, fitful = self.plan.workload.everyday, self.plan.workload.fitful
        keeps = everyday is not None and everyday.values
        return PEER_KEY if keeps or (fitful is not None and fitful.names) else ""

    def peers_of(self, name: str) -> tuple[str, ...]:
        """Return whom a broker knows as members when it starts."""
        return self.voters if name in self.voters else (*self.voters, name)

    def client_config(self, name: str) -> ClientConfig:
        """Return the settings of a producer or consumer."""
        host, strain = self.hosts[name], self.plan.workload.strain
        edges = self.plan.workload.edges
        silent_ms = 0 if edges is None else edges.silent_ms
        return ClientConfig(
            heartbeat_ms=silent_ms // BEATS or HEARTBEAT_MS,
            namesrv_addrs=tuple(self.namesrv_addrs()),
            group="senders",
            instance_name=f"{name}-{host.incarnation}",
            source_address=host.address,
            process_id=host.number,
            compress_over_bytes=self.plan.workload.compress_over,
            send_timeout_ms=SEND_TIMEOUT_MS,
            retry_times=RETRY_TIMES if strain is None else strain.retry_times,
        )

    def alone_config(self) -> SimBrokerConfig:
        """Return the settings of a broker outside the group: with none, or one of its own."""
        config = self.broker_config(ALONE_HOST)
        options = self.plan.options
        is_plain = options.alone == "plain"
        return replace(
            config,
            broker_name=ALONE_NAME,
            flush_disk_type=FlushDiskType(options.alone_flush),
            flush_pages_min=0,
            enable_dledger=not is_plain,
            dledger_group=ALONE_NAME,
            dledger_peers=f"{ALONE_HOST}-{self.peer_address(ALONE_HOST)}",
            preferred_leader_id="",
            segment_bytes=self._alone_segment_bytes(),
            clean_interval_ms=options.alone_retention_ms and RETENTION_INTERVAL_MS,
            sim_retention_ms=options.alone_retention_ms,
            joining=False,
        )

    def _alone_segment_bytes(self) -> int:
        """Return segments so small that some become old, where messages are small."""
        options = self.plan.options
        if options.alone_retention_ms and self.plan.workload.body_max <= SMALL_BODY_MAX:
            return SMALL_SEGMENT
        return max(MIN_PLAIN_SEGMENT, options.segment_bytes)

    def alone_log(self) -> LogFiles:
        """Return where the log of a broker outside the group lies."""
        size = self.alone_config().segment_bytes
        if self.plan.options.alone == "plain":
            return LogFiles(f"{STORE}/commitlog", size, 0)
        return LogFiles(f"{STORE}/dledger-{ALONE_HOST}/data", size, ENTRY_HEADER_BYTES)

    def log_of(self, name: str) -> LogFiles:
        """Return where the log of a broker lies."""
        if name in self.alone:
            return self.alone_log()
        size = self.broker_config(name).segment_bytes
        return LogFiles(f"{STORE}/dledger-{name}/data", size, ENTRY_HEADER_BYTES)

    def broker_config(self, name: str) -> SimBrokerConfig:
        """Return the settings of a broker."""
        config, settings = self._usual_config(name), self.plan.workload.transactional
        strain, worn = self.plan.workload.strain, self.plan.workload.worn
        skilled, pressed = self.plan.workload.skilled, self.plan.workload.pressed
        if pressed is not None:
            config = replace(
                config,
                clean_interval_ms=RETENTION_INTERVAL_MS,
                clean_file_forcibly_enable=pressed.forcibly,
            )
        if skilled is not None:
            config = replace(config, sim_units_max=skilled.units_max)
        if worn is not None:
            config = replace(config, sim_pending_bytes=worn.pending_bytes)
        if strain is not None:
            config = replace(
                config,
                sim_units_max=strain.units_max or config.sim_units_max,
                get_messages_max=strain.count_max or config.get_messages_max,
                sim_checkpoint_ms=strain.checkpoint_ms or config.sim_checkpoint_ms,
                max_hash_slot_num=strain.key_slots or KEY_SLOTS,
                max_index_num=4 * (strain.key_slots or KEY_SLOTS),
            )
        config = self._with_edges(config)
        if settings is None:
            return config
        return replace(
            config,
            transaction_timeout_ms=settings.check_ms,
            transaction_check_interval_ms=settings.check_ms,
            transaction_check_max=settings.check_max,
        )

    def _with_edges(self, config: SimBrokerConfig) -> SimBrokerConfig:
        edges = self.plan.workload.edges
        if edges is None:
            return config
        slots = edges.key_slots or config.max_hash_slot_num
        return replace(
            config,
            sim_queues_flushed=edges.queues_flushed,
            sim_unwritten=edges.unwritten,
            sim_dispatch=edges.dispatch,
            get_bytes_max=edges.read_bytes or config.get_bytes_max,
            max_hash_slot_num=slots,
            max_index_num=4 * slots,
        )

    def _usual_config(self, name: str) -> SimBrokerConfig:
        options = self.plan.options
        host = self.hosts[name]
        peers = ";".join(f"{peer}-{self.peer_address(peer)}" for peer in self.peers_of(name))
        return SimBrokerConfig(
            broker_name=name,
            broker_ip1=host.address,
            bind_address=host.address,
            listen_port=BROKER_PORT,
            namesrv_addr=";".join(self.namesrv_addrs()),
            store_path=STORE,
            segment_bytes=options.segment_bytes,
            queue_file_bytes=options.queue_file_bytes,
            max_hash_slot_num=KEY_SLOTS,
            max_index_num=4 * KEY_SLOTS,
            flush_disk_type=FlushDiskType(options.flush_disk_type),
            default_topic_queue_nums=max(1, self.plan.workload.queues),
            enable_dledger=True,
            dledger_group=GROUP,
            dledger_self_id=name,
            dledger_peers=peers,
            peer_shared_key=PEER_KEY if options.peer_key else "",
            tick_ms=options.tick_ms,
            heartbeat_ticks=options.heartbeat_ticks,
            election_ticks_min=options.election_ticks_min,
            election_ticks_max=options.election_ticks_max,
            disk_hang_ms=DISK_HANG_TICKS * options.tick_ms,
            process_id=host.number,
            preferred_leader_id=options.preferred,
            sync_flush_timeout_ms=options.max_wait_ack_ms,
            delay_levels=options.delay_levels or DELAY_LEVELS,
            clean_interval_ms=options.retention_ms and RETENTION_INTERVAL_MS,
            sim_checkpoint_ms=options.checkpoint_ms,
            sim_retention_ms=options.retention_ms,
            sim_retention_hours=ALL_HOURS if options.retention_by == "hour" else (),
            sim_tell_clock_ms=options.tell_clock_ms,
            sim_span_bytes=options.span_bytes,
            sim_inflight_spans=options.inflight_spans,
            joining=name not in self.voters,
        )

"""Settings of a broker under RocketMQ's own keys, and the parts of them that its components get.

Keys that begin ``dLegerTick``, ``dLegerHeartbeat``, ``dLegerElection``, ``dLegerDisk``,
``dLegerEvent``, ``dLegerJoin``, ``peerTls`` and ``peerSharedKey`` are ours, as is ``bindAddress``
for the address to listen on (5.x has it for its servers).
Source: spec/disk.md 6.3; spec/wire.md 8; RocketMQ BrokerConfig, MessageStoreConfig,
NettyServerConfig.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from broker.controller_settings import ControllerSettings
from broker.delay_levels import DELAY_LEVELS, delay_levels_ms
from broker.retention_policy import HOUR_MS, RetentionConfig, disk_ratio, hours_of
from dledger.config import DLedgerConfig, FlushDiskType
from dledger.limits import NODE_ID
from ledgermq.remoting.protocol.errors import LocalProtocolError
from ledgermq.remoting.protocol.headers import DEFAULT_REGION
from ledgermq.remoting.protocol.hosts import are_of_two_kinds, is_loopback, pack_host, parse_address
from ledgermq.remoting.transport.credentials import SecuritySettings
from ledgermq.runtime.config import key
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.machine import memory_bytes, process_id
from store.config import INDEX_COUNT_MAX, IndexConfig, StoreConfig
from store.ha.config import HaConfig
from store.limits import HA_TRANSFER_BYTES_MAX
from store.plain import PlainLogConfig
from store.results import PutStatus

PORT_MAX: Final = 65_535
GIB: Final = 1024**3
ALL_HOSTS: Final = "0.0.0.0"  # noqa: S104 - a server that is told to
ALL_HOSTS_V6: Final = "::"
LOOPBACK: Final = "127.0.0.1"


class Role(StrEnum):
    """What a broker without a Raft group is to others of its name (``brokerRole``)."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(ControllerSettings):
    """Settings of one broker process; sizes are bytes, times milliseconds."""

    broker_cluster_name: str = key("brokerClusterName", "DefaultCluster")
    broker_name: str = key("brokerName", "DEFAULT_BROKER")
    """Name of a broker on its own, and of a master and its slaves together; the members of a group
    use ``dLegerGroup``."""
    region_id: str = key("regionId", DEFAULT_REGION)
    """Told in the answer to each send; clients name it in what they trace."""
    broker_id: int = key("brokerId", 0, low=0, high=2**31 - 1)
    """0 for a master, above for its slaves."""
    broker_ip1: str = key("brokerIP1", "127.0.0.1")
    """Address that clients are told, and that message ids hold."""
    broker_ip2: str = key("brokerIP2", "")
    listen_port: int = key("listenPort", 10_911, low=1, high=PORT_MAX)
    bind_address: str = key("bindAddress", "")
    """Address to listen on; empty: see `listen_host`."""
    ha_listen_port: int = key("haListenPort", 0, low=0, high=PORT_MAX)
    namesrv_addr: str = key("namesrvAddr", "")
    """``host:port`` of every name server, separated by ``;``."""
    register_period_ms: int = key("registerNameServerPeriod", 30_000, low=10_000, high=60_000)

    store_path: str = key("storePathRootDir", "store")
    segment_bytes: int = key("mappedFileSizeCommitLog", GIB, low=64 * 1024, high=2 * GIB)
    queue_file_bytes: int = key("mappedFileSizeConsumeQueue", 6_000_000, low=20, high=GIB)
    max_message_bytes: int = key("maxMessageSize", 4 * 1024**2, low=1, high=8 * 1024**2)
    flush_disk_type: FlushDiskType = key(  # noqa: RUF009 - a field declaration
        "flushDiskType", FlushDiskType.ASYNC_FLUSH
    )
    store_path_commit_log: str = key("storePathCommitLog", "")
    """Of a broker without a group; by default ``commitlog`` below storePathRootDir."""
    flush_interval_ms: int = key("flushIntervalCommitLog", 500, low=1, high=60_000)
    flush_pages_min: int = key("flushCommitLogLeastPages", 4, low=0, high=1_000_000)
    flush_thorough_ms: int = key("flushCommitLogThoroughInterval", 10_000, low=1, high=600_000)
    cut_damaged: bool = key("cutDamagedCommitLog", default=False)
    """Ours, of a broker without a group: cut the log where it was corrupted, for one start."""
    get_bytes_max: int = key("maxTransferBytesOnMessageInMemory", 262_144, low=1, high=8 * 1024**2)
    get_messages_max: int = key("maxTransferCountOnMessageInMemory", 32, low=1, high=1024)
    cold_bytes_max: int = key("maxTransferBytesOnMessageInDisk", 65_536, low=1, high=8 * 1024**2)
    cold_messages_max: int = key("maxTransferCountOnMessageInDisk", 8, low=1, high=1024)
    in_memory_percent: int = key("accessMessageInMemoryMaxRatio", 40, low=0, high=100)
    """What lies farther behind the end of the log than this part of the memory is on disk."""
    slave_read_enable: bool = key("slaveReadEnable", default=False)
    """Whether who reads far behind the end is sent to a slave."""
    enable_property_filter: bool = key("enablePropertyFilter", default=True)
    """Whether consumers may filter by SQL92; RocketMQ's default is false."""

    delay_levels: str = key("messageDelayLevel", DELAY_LEVELS)
    """How long messages of level 1, 2, ... wait; the same at all members of a group."""

    reject_transactions: bool = key("rejectTransactionMessage", default=False)
    transaction_timeout_ms: int = key("transactionTimeOut", 6_000, low=0, high=HOUR_MS * 24 * 366)
    """How old half a transaction is before its producers are asked how it ends."""
    transaction_check_max: int = key("transactionCheckMax", 15, low=1, high=1_000)
    """How often they are asked before it is parked."""
    transaction_check_interval_ms: int = key(
        "transactionCheckInterval", 60_000, low=100, high=HOUR_MS * 24
    )

    clean_interval_ms: int = key("cleanResourceInterval", 10_000, low=0, high=3_600_000)
    """How often retention looks at log and disk; 0: never, and no disk is too full for it."""
    file_reserved_hours: int = key("fileReservedTime", 72, low=1, high=1_000_000)
    delete_when: str = key("deleteWhen", "04")
    """Local hours, separated by ``;``, in which expired files go."""
    disk_max_used_percent: int = key("diskMaxUsedSpaceRatio", 75, low=10, high=95)
    disk_clean_forcibly_ratio: str = key("diskSpaceCleanForciblyRatio", "0.85")
    """As the next one a part such as 0.85, or percent such as 85."""
    disk_warning_level_ratio: str = key("diskSpaceWarningLevelRatio", "0.90")
    clean_file_forcibly_enable: bool = key("cleanFileForciblyEnable", default=True)
    delete_file_batch_max: int = key("deleteFileBatchMax", 10, low=1, high=1_000)

    message_index_enable: bool = key("messageIndexEnable", default=True)
    max_hash_slot_num: int = key("maxHashSlotNum", 5_000_000, low=1, high=INDEX_COUNT_MAX)
    max_index_num: int = key("maxIndexNum", 20_000_000, low=2, high=INDEX_COUNT_MAX)
    max_msgs_num_batch: int = key("maxMsgsNumBatch", 64, low=1, high=1024)
    default_query_max_num: int = key("defaultQueryMaxNum", 32, low=1, high=1024)

    broker_permission: int = key("brokerPermission", 6, low=0, high=7)
    auto_create_topic_enable: bool = key("autoCreateTopicEnable", default=True)
    default_topic_queue_nums: int = key("defaultTopicQueueNums", 8, low=1, high=65_536)
    auto_create_subscription_group: bool = key("autoCreateSubscriptionGroup", default=True)
    store_reply_message_enable: bool = key("storeReplyMessageEnable", default=True)
    """Whether replies are stored besides being passed on."""

    broker_role: str = key("brokerRole", "")
    """One of `Role`; empty for a broker that nobody follows."""
    ha_master_address: str = key("haMasterAddress", "")
    """``host:port`` of the master's HA service; empty: name servers tell it to a slave."""
    ha_heartbeat_ms: int = key("haSendHeartbeatInterval", 5_000, low=10, high=600_000)
    ha_housekeeping_ms: int = key("haHousekeepingInterval", 20_000, low=100, high=3_600_000)
    ha_batch_bytes: int = key(
        "haTransferBatchSize", 32 * 1024, low=1024, high=int(HA_TRANSFER_BYTES_MAX)
    )
    ha_behind_max: int = key("haSlaveFallbehindMax", 256 * 1024**2, low=1, high=1024 * GIB)
    """A slave that lacks so many bytes does not count as there for a synchronous master."""
    enable_dledger: bool = key("enableDLegerCommitLog", default=False)
    dledger_group: str = key("dLegerGroup", "")
    dledger_self_id: str = key("dLegerSelfId", "")
    dledger_peers: str = key("dLegerPeers", "")
    """``id-host:port`` of every member, this one included, separated by ``;``."""
    preferred_leader_id: str = key("preferredLeaderId", "")
    """The member that should lead when it can; whoever leads instead hands over to it. It may join
    later than this file was written, so it need not be among ``dLegerPeers``."""
    joining: bool = key("dLegerJoin", default=False)
    """Whether this replica waits to be added to the group of its peers (`ledgermq admin`)."""
    event_file_bytes: int = key("dLegerEventFileBytes", 8 * 1024**2, low=0, high=GIB)
    """Size of each of the four files in which this member notes what it does; 0: it does not."""
    tick_ms: int = key("dLegerTickMs", 25, low=1, high=10_000)
    heartbeat_ticks: int = key("dLegerHeartbeatTicks", 4, low=1, high=1_000)
    election_ticks_min: int = key("dLegerElectionTicksMin", 20, low=2, high=10_000)
    election_ticks_max: int = key("dLegerElectionTicksMax", 40, low=3, high=20_000)
    disk_hang_ms: int = key("dLegerDiskHangMs", 3_000, low=100, high=600_000)
    """A sync that takes so long means that the disk hangs."""
    peer_tls_cert_path: str = key("peerTlsCertPath", "")
    """Ours, with the next two: links between members carry TLS, see `SecuritySettings`."""
    peer_tls_key_path: str = key("peerTlsKeyPath", "")
    peer_tls_ca_path: str = key("peerTlsCaPath", "")
    peer_shared_key: str = key("peerSharedKey", "")
    """Ours: what members prove to have where there are no certificates; better in a file."""
    peer_shared_key_file: str = key("peerSharedKeyFile", "")
    process_id: int = field(default_factory=process_id)
    """Part of the message ids that the broker makes; no key sets it."""
    memory_bytes: int = field(default_factory=memory_bytes)
    """What ``accessMessageInMemoryMaxRatio`` is a part of; no key sets it."""

    def __post_init__(self) -> None:
        """Check what concerns more than one key.

        Raises:
            FatalError: names the key at fault.
        """
        self._check_role()
        self.check_in_sync(is_sync_master=self.broker_role == Role.SYNC_MASTER)
        self.check_controllers(in_group=self.enable_dledger, ha_heartbeat_ms=self.ha_heartbeat_ms)
        for name, value in (
            ("brokerClusterName", self.broker_cluster_name),
            ("brokerName", self.broker_name),
            ("regionId", self.region_id),
        ):
            if not _NAME.match(value):
                raise FatalError(f"{name}={value}: letters, digits, %, |, - and _ are expected")
        if self.queue_file_bytes % 20:
            raise FatalError(
                f"mappedFileSizeConsumeQueue={self.queue_file_bytes}: a multiple of 20 is expected"
            )
        try:
            pack_host(self.broker_ip1, self.listen_port)
        except LocalProtocolError as error:
            raise FatalError(f"brokerIP1={self.broker_ip1}: an IP address is expected") from error
        if are_of_two_kinds(self.broker_ip1, self.broker_ip2):
            other = f"brokerIP1={self.broker_ip1}"
            raise FatalError(f"brokerIP2={self.broker_ip2}: IPv4 or IPv6, as {other} is")
        self.namesrvs  # noqa: B018 - checks the addresses
        self.security  # noqa: B018 - checks the keys
        if self.enable_dledger:
            self.dledger_config()
        self.retention_config()

    def _check_role(self) -> None:
        """Check what says whether this is a master or a slave. Errors: `FatalError`."""
        role, number = self.broker_role, self.broker_id
        if role not in {"", *Role}:
            raise FatalError(f"brokerRole={role}: one of {', '.join(Role)} is expected")
        if self.enable_dledger:
            if role in {Role.SYNC_MASTER, Role.SLAVE}:
                raise FatalError(
                    f"brokerRole={role} with enableDLegerCommitLog=true: the members of a Raft"
                    " group elect their leader; remove one of the two lines"
                )
            return
        if role == Role.SLAVE:
            if not number:
                raise FatalError("brokerRole=SLAVE: brokerId of a slave must be above 0")
            if not (self.namesrv_addr or self.ha_master_address or self.enable_controller_mode):
                raise FatalError(
                    "brokerRole=SLAVE: namesrvAddr or haMasterAddress is needed to find the master"
                )
        elif number:
            raise FatalError(
                f"brokerId={number}: a master has brokerId=0; a slave has brokerRole=SLAVE"
            )
        if self.ha_master_address:
            _check_address("haMasterAddress", self.ha_master_address)
        if (
            self.is_replicated and not 0 < self.ha_port <= PORT_MAX
        ) or self.ha_port == self.listen_port:
            raise FatalError(
                f"haListenPort={self.ha_port}: a port other than listenPort={self.listen_port} is"
                " expected"
            )
        self.ha_config()

    @property
    def is_replicated(self) -> bool:
        """Whether this broker has an HA service, or may have one."""
        return bool(self.broker_role) or self.enable_controller_mode

    @property
    def is_slave(self) -> bool:
        """Whether this broker follows a master."""
        return not self.enable_dledger and self.broker_role == Role.SLAVE

    @property
    def second_port(self) -> int:
        """Where a master and a slave take requests as well, as RocketMQ's: its slaves ask there."""
        is_classic = self.broker_role and not self.enable_dledger
        return max(0, self.listen_port - 2) if is_classic else 0

    @property
    def registered_name(self) -> str:
        """Name under which routes show this broker: that of its group."""
        return self.dledger_group if self.enable_dledger else self.broker_name

    @property
    def self_id(self) -> str:
        """Id of this replica in its group; the name of a broker without one."""
        return self.dledger_self_id if self.enable_dledger else self.broker_name

    @property
    def broker_addr(self) -> str:
        """``host:port`` that clients are told."""
        return f"{self.broker_ip1}:{self.listen_port}"

    @property
    def ha_addr(self) -> str:
        """``host:port`` of the HA service, which each registration names."""
        return f"{self.broker_ip2 or self.broker_ip1}:{self.ha_port}"

    @property
    def ha_port(self) -> int:
        """Port of the HA service of a master."""
        return self.ha_listen_port or self.listen_port + 1

    def ha_config(self) -> HaConfig:
        """Return the settings of the HA stream."""
        try:
            return HaConfig(
                heartbeat_ms=self.ha_heartbeat_ms,
                housekeeping_ms=self.ha_housekeeping_ms,
                batch_bytes=self.ha_batch_bytes,
            )
        except ValueError as error:
            raise FatalError(str(error)) from error

    @property
    def store_host(self) -> bytes:
        """Packed address of this broker, as records and message ids hold it."""
        return pack_host(self.broker_ip1, self.listen_port)

    @property
    def listen_host(self) -> str:
        """Address to listen on: all of this machine if it is told one that others reach.

        Of IPv6 where clients are told such an address: they connect by that.
        """
        if self.bind_address:
            return self.bind_address
        told = [self.broker_ip1, self.broker_ip2 or "localhost", *self.peer_hosts]
        is_v6 = ":" in self.broker_ip1
        if any(not is_loopback(host) for host in told):
            return ALL_HOSTS_V6 if is_v6 else ALL_HOSTS
        return self.broker_ip1 if is_v6 else LOOPBACK

    @property
    def peer_hosts(self) -> list[str]:
        """Where the members of the group are, this one included; none without a group."""
        if not self.enable_dledger:
            return []
        return [parse_address(address)[0] for address in self._peers().values()]

    @property
    def security(self) -> SecuritySettings:
        """Where keys and certificates are."""
        return SecuritySettings(
            cert_path=self.peer_tls_cert_path,
            key_path=self.peer_tls_key_path,
            ca_path=self.peer_tls_ca_path,
            shared_key=self.peer_shared_key,
            shared_key_file=self.peer_shared_key_file,
        )

    @property
    def owner(self) -> str:
        """Whom certificates and signed requests name: ``GROUP/ID`` of this replica."""
        return f"{self.registered_name}/{self.self_id}"

    @property
    def namesrvs(self) -> list[str]:
        """Addresses of the name servers."""
        addresses = [part.strip() for part in self.namesrv_addr.split(";") if part.strip()]
        for address in addresses:
            _check_address("namesrvAddr", address)
        return addresses

    @property
    def dledger_directory(self) -> str:
        """Where the replicated log of this replica lies."""
        return f"{self.store_path}/dledger-{self.self_id}"

    @property
    def partitions(self) -> tuple[str, ...]:
        """Directories on the disks that log and queues fill."""
        log = self.dledger_directory if self.enable_dledger else self.commit_log_directory
        return (self.store_path, log)

    @property
    def commit_log_directory(self) -> str:
        """Where the plain log of a broker without a group lies."""
        return self.store_path_commit_log or f"{self.store_path}/commitlog"

    def plain_log_config(self) -> PlainLogConfig:
        """Return the settings of the log of a broker without a group."""
        return PlainLogConfig(
            directory=self.commit_log_directory,
            name=self.broker_name,
            segment_bytes=self.segment_bytes,
            flush_disk_type=self.flush_disk_type,
            flush_interval_ms=self.flush_interval_ms,
            flush_pages_min=self.flush_pages_min,
            flush_thorough_ms=self.flush_thorough_ms,
            cut_damaged=self.cut_damaged,
        )

    def dledger_config(self) -> DLedgerConfig:
        """Return the settings of the replicated log. Only with enableDLegerCommitLog."""
        peers = self._peers()
        try:
            return DLedgerConfig(
                group=self.registered_name,
                self_id=self.self_id,
                peers=peers,
                joining=self.joining,
                directory=self.dledger_directory,
                security=self.security,
                flush_disk_type=self.flush_disk_type,
                data_segment_bytes=self.segment_bytes,
                tick_ms=self.tick_ms,
                heartbeat_ticks=self.heartbeat_ticks,
                election_ticks_min=self.election_ticks_min,
                election_ticks_max=self.election_ticks_max,
                disk_hang_ms=self.disk_hang_ms,
                preferred_leader=self.preferred_leader_id or None,
                event_file_bytes=self.event_file_bytes,
            )
        except ValueError as error:
            raise FatalError(f"dLegerTickMs and its neighbours: {error}") from error

    def store_config(self) -> StoreConfig:
        """Return the settings of the store."""
        config = StoreConfig(
            directory=self.store_path,
            store_host=self.store_host,
            queue_file_bytes=self.queue_file_bytes,
            max_body_bytes=self.max_message_bytes,
            get_bytes_max=self.get_bytes_max,
            get_messages_max=self.get_messages_max,
            cold_behind_bytes=max(1, self.memory_bytes * self.in_memory_percent // 100),
            get_cold_messages_max=self.cold_messages_max,
            get_cold_bytes_max=self.cold_bytes_max,
            index=self._index_config(),
            delay_levels_ms=self.delay_levels_ms,
        )
        if self.enable_dledger:
            return config
        return dataclasses.replace(
            config,
            max_wait_ack_ms=self.ack_wait_ms(
                is_synced=self.flush_disk_type is FlushDiskType.SYNC_FLUSH,
                is_sync_master=self.broker_role == Role.SYNC_MASTER,
            ),
            late_status=(
                PutStatus.SLAVE_TIMEOUT if self.enable_controller_mode else PutStatus.FLUSH_TIMEOUT
            ),
            is_replicated=False,
            reads_following=self.is_slave,
        )

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """How long messages of level 1, 2, ... wait."""
        return delay_levels_ms("messageDelayLevel", self.delay_levels)

    def _index_config(self) -> IndexConfig | None:
        if not self.message_index_enable:
            return None
        return IndexConfig(
            slots=self.max_hash_slot_num,
            entries=self.max_index_num,
            offsets_max=self.max_msgs_num_batch,
        )

    def retention_config(self) -> RetentionConfig:
        """Return how long messages are kept, and what a full disk means."""
        forced = disk_ratio("diskSpaceCleanForciblyRatio", self.disk_clean_forcibly_ratio)
        full = disk_ratio("diskSpaceWarningLevelRatio", self.disk_warning_level_ratio)
        if forced > full:
            raise FatalError(
                f"diskSpaceCleanForciblyRatio={self.disk_clean_forcibly_ratio}: at most"
                f" diskSpaceWarningLevelRatio={self.disk_warning_level_ratio} is expected"
            )
        return RetentionConfig(
            interval_ms=self.clean_interval_ms,
            reserved_ms=self.file_reserved_hours * HOUR_MS,
            hours=hours_of("deleteWhen", self.delete_when),
            high_ratio=self.disk_max_used_percent / 100,
            forced_ratio=forced,
            full_ratio=full,
            cleans_forcibly=self.clean_file_forcibly_enable,
            files_per_round=self.delete_file_batch_max,
        )

    def _peers(self) -> dict[str, str]:
        if not _NAME.match(self.dledger_group):
            raise FatalError(f"dLegerGroup={self.dledger_group}: a group name is expected")
        if not NODE_ID.match(self.dledger_self_id):
            raise FatalError(
                f"dLegerSelfId={self.dledger_self_id}: an id that ends in a number is expected (n0)"
            )
        peers: dict[str, str] = {}
        for part in self.dledger_peers.split(";"):
            if not part.strip():
                continue
            peer_id, separator, address = part.strip().partition("-")
            if not separator or not NODE_ID.match(peer_id) or peer_id in peers:
                raise FatalError(
                    f"dLegerPeers: {part!r} is not an id-host:port, or its id is repeated"
                )
            _check_address("dLegerPeers", address)
            peers[peer_id] = address
        if self.dledger_self_id not in peers:
            raise FatalError(
                f"dLegerSelfId={self.dledger_self_id} is not among dLegerPeers={self.dledger_peers}"
            )
        if self.preferred_leader_id and not NODE_ID.match(self.preferred_leader_id):
            found = f"preferredLeaderId={self.preferred_leader_id}"
            raise FatalError(f"{found}: an id that ends in a number is expected (n0)")
        return peers


def _check_address(name: str, address: str) -> None:
    try:
        parse_address(address)
    except LocalProtocolError as error:
        raise FatalError(f"{name}: {address!r} is not host:port") from error

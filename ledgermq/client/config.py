"""Settings of producers and consumers, with RocketMQ's defaults (spec/wire.md 7.1, 7.6)."""

import ssl
from dataclasses import dataclass, field

from ledgermq.client.hooks import Hook
from ledgermq.client.message import ConsumeFrom, MessageModel
from ledgermq.client.rebalance import Allocate, allocate_averagely
from ledgermq.remoting.protocol.access import AccountKey
from ledgermq.remoting.protocol.hosts import is_port
from ledgermq.remoting.transport.tls import client_context
from ledgermq.runtime.machine import process_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings that every kind of client has; durations in milliseconds, sizes in bytes."""

    namesrv_addrs: tuple[str, ...]
    """Name servers as ``host:port``; tried in turn, the one that answered is remembered."""
    group: str
    """Producer or consumer group."""
    instance_name: str = ""
    """Last part of the client id; empty makes one that is unique (pid#nanoseconds)."""
    source_address: str | None = None
    """Local address to connect from; also the first part of the client id."""
    process_id: int = field(default_factory=process_id)
    """Part of message ids, and of the client id where ``instance_name`` is empty."""
    send_timeout_ms: int = 3_000
    """Budget of one send with all its retries."""
    retry_times: int = 2
    """Further attempts after one that the broker refused or whose outcome is unknown. Waiting
    for a leader (not leader, connection refused) does not count, only the budget limits it."""
    backoff_ms: tuple[int, ...] = (20, 50, 100)
    """Waits between attempts while no leader is known; the last one repeats."""
    stall_ms: int = 500
    """A request unanswered for so long makes the client look whether the leader has moved."""
    connect_timeout_ms: int = 1_000
    request_timeout_ms: int = 3_000
    """For everything that is neither a send nor a pull."""
    heartbeat_ms: int = 30_000
    route_poll_ms: int = 30_000
    leader_check_ms: int = 1_000
    """How often a push consumer asks a name server whether leaders have moved."""
    persist_offset_ms: int = 5_000
    rebalance_ms: int = 20_000
    stop_timeout_ms: int = 10_000
    """How long ``stop`` waits for running listeners and for requests that are on the wire."""
    compress_over_bytes: int = 4_096
    """Larger bodies are compressed with zlib, except in batches; 0 turns it off."""
    max_message_bytes: int = 4_194_304
    auto_batch: bool = True
    """Whether ordinary sends of one topic that start in the same turn of the loop share a request
    and a queue. Nothing waits for more to come; each message keeps its id, result and error."""
    auto_batch_messages_max: int = 64
    """Most messages of such a request; what is over it goes into another, to the next queue."""
    auto_batch_bytes_max: int = 131_072
    """Bytes of such a request; likewise. A larger message goes alone."""
    avoid_slow_brokers: bool = False
    """Whether sends keep away from brokers whose answers took long, while there are others, as with
    RocketMQ's ``sendLatencyFaultEnable``; for 30 s after 550 ms, up to ten minutes after 15 s."""
    max_pending_sends: int = 20_000
    """Sends awaiting an answer, a batch being one; more are refused with ``TooManyPending``."""
    max_pending_bytes: int = 50_331_648
    """Bodies of those sends together, as they are sent; likewise, but one alone may be larger. Also
    what `Producer.send_oneway` has given a connection and the network has not taken."""
    hooks: tuple[Hook, ...] = ()
    """What hears of sends, listener calls and decisions of transactions."""
    trace: bool = False
    """Whether these are traced: RocketMQ's tools show who sent and consumed a message."""
    trace_topic: str = "RMQ_SYS_TRACE_TOPIC"
    """Where traces go; the brokers have that topic with ``traceTopicEnable``."""
    access_key: str = ""
    """Account of brokers with access control; each request is signed with ``secret_key``."""
    secret_key: str = field(default="", repr=False)
    security_token: str = field(default="", repr=False)
    """What a service that lent the two keys gave along with them; sent and signed as it is."""
    tls_ca_path: str = ""
    """PEM file: the CA that brokers and name servers have their certificates from; with it, every
    connection carries TLS."""
    tls_cert_path: str = ""
    """PEM file: the certificate to show servers that ask for one; ``tls_key_path`` has its key."""
    tls_key_path: str = ""
    default_topic: str = "TBW102"
    """The topic whose route serves a topic that does not exist yet."""
    default_topic_queues: int = 4
    """How many queues an automatically created topic gets."""

    def __post_init__(self) -> None:
        if not self.namesrv_addrs:
            raise ValueError("namesrv_addrs: at least one name server is needed")
        for addr in self.namesrv_addrs:
            host, _, port = addr.rpartition(":")
            if not host or not is_port(port):
                raise ValueError(f"namesrv_addrs: {addr!r} is not host:port")
        for name in (
            "send_timeout_ms", "connect_timeout_ms", "request_timeout_ms", "stall_ms",
            "heartbeat_ms", "route_poll_ms", "leader_check_ms", "persist_offset_ms", "rebalance_ms",
        ):  # fmt: skip
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        self._check_account()
        for name, least in (
            ("auto_batch_messages_max", 1), ("auto_batch_bytes_max", 1), ("max_pending_sends", 1),
            ("max_pending_bytes", 1), ("max_message_bytes", 1), ("default_topic_queues", 1),
            ("retry_times", 0), ("stop_timeout_ms", 0), ("compress_over_bytes", 0),
        ):  # fmt: skip
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not self.backoff_ms or min(self.backoff_ms) <= 0:
            raise ValueError(f"backoff_ms needs positive waits, not {self.backoff_ms}")

    def tls_context(self) -> ssl.SSLContext | None:
        """Return what connections need for TLS, None without. Errors: `ValueError`."""
        if not self.tls_ca_path:
            if self.tls_cert_path or self.tls_key_path:
                raise ValueError("tls_cert_path without tls_ca_path: no server could be believed")
            return None
        return client_context(self.tls_ca_path, self.tls_cert_path, self.tls_key_path)

    def _check_account(self) -> None:
        if bool(self.access_key) != bool(self.secret_key):
            raise ValueError("access_key and secret_key: both are needed, or neither")
        if self.security_token and not self.access_key:
            raise ValueError("security_token: access_key and secret_key are needed with it")

    @property
    def account(self) -> AccountKey | None:
        """What requests are signed with, if they are."""
        if not self.access_key:
            return None
        return AccountKey(self.access_key, self.secret_key, self.security_token)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """Settings of a push consumer."""

    consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET
    """Where a group without a stored offset begins."""
    consume_timestamp_ms: int = 0
    """Wall-clock time for ``ConsumeFrom.TIMESTAMP``."""
    allocate: Allocate = allocate_averagely
    """How the queues are shared: see `ledgermq.client.strategies`."""
    model: MessageModel = MessageModel.CLUSTERING
    """Whether a message goes to one member of the group, or to every one."""
    local_offsets_dir: str = ""
    """Where broadcasting members keep their offsets; empty is ``~/.rocketmq_offsets``."""
    orderly: bool = False
    """Whether each queue is locked and consumed in order, one batch at a time."""
    order_suspend_ms: int = 1_000
    """How long an orderly queue waits after a failure, before the same messages come again."""
    concurrency: int = 20
    """How many listener calls may be in progress at once."""
    consume_batch_count: int = 1
    """Most messages given to one listener call."""
    pull_batch_count: int = 32
    suspend_ms: int = 15_000
    """How long the broker holds a pull that finds nothing."""
    pull_timeout_ms: int = 30_000
    max_cached_messages: int = 1_000
    max_cached_bytes: int = 104_857_600
    max_offset_span: int = 2_000
    """Flow control: distance between the oldest unconsumed and the newest message of a queue."""
    flow_control_wait_ms: int = 50
    local_retry_ms: int = 5_000
    """When a message that could not be sent back to the broker is tried again here."""
    max_reconsume_times: int = -1
    """How often a message is delivered again before it becomes a dead letter; -1 is what
    ``retryMaxTimes`` of the group says (16 by default), and without end where ``orderly``."""
    commit_on_pull: bool = True
    """Let each pull carry the committed offset, besides the periodic commit."""

    def __post_init__(self) -> None:
        for name in (
            "concurrency", "consume_batch_count", "pull_batch_count", "max_cached_messages",
            "max_cached_bytes", "max_offset_span", "flow_control_wait_ms", "local_retry_ms",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name, least in (
            ("suspend_ms", 0), ("consume_timestamp_ms", 0), ("max_reconsume_times", -1),
        ):  # fmt: skip
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not 10 <= self.order_suspend_ms <= 30_000:
            raise ValueError(f"order_suspend_ms {self.order_suspend_ms} is not in 10..30000")
        if self.pull_timeout_ms <= self.suspend_ms:
            raise ValueError("pull_timeout_ms must be longer than suspend_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionOptions:
    """Settings of a transaction producer."""

    execute_timeout_ms: int = 30_000
    """How long a local transaction may take; then its outcome is unknown, and a coroutine is
    cancelled."""
    check_timeout_ms: int = 10_000
    """How long the listener may take to say how a transaction ended; likewise."""
    checks_max: int = 16
    """How many such questions may be with the listener at once."""
    check_immunity_s: int | None = None
    """For how long brokers ask nobody about a half. None is a second more than a local transaction
    may take: who is asked while it runs, perhaps in another process, does not find it. 0 leaves it
    to the brokers' ``transactionTimeOut``."""
    threads_max: int = 32
    """How many calls of ``execute`` may run at once where it is a plain function; those of
    ``check`` have threads of their own."""

    def __post_init__(self) -> None:
        for name in ("execute_timeout_ms", "check_timeout_ms", "checks_max", "threads_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.check_immunity_s is not None and self.check_immunity_s < 0:
            raise ValueError(f"check_immunity_s must not be negative, not {self.check_immunity_s}")

    @property
    def immunity_s(self) -> int:
        """The seconds that a half asks for, 0 if it asks for none."""
        if self.check_immunity_s is None:
            return -(-self.execute_timeout_ms // 1_000) + 1
        return self.check_immunity_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullOptions:
    """Settings of a lite pull consumer; those that `ConsumeOptions` has too mean the same."""

    auto_commit: bool = True
    """Whether what was polled is committed by itself, once the next poll has come."""
    auto_commit_interval_ms: int = 5_000
    poll_count_max: int = 100
    """Most messages that one poll gives out."""
    consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET
    consume_timestamp_ms: int = 0
    allocate: Allocate = allocate_averagely
    model: MessageModel = MessageModel.CLUSTERING
    local_offsets_dir: str = ""
    pull_batch_count: int = 32
    suspend_ms: int = 15_000
    pull_timeout_ms: int = 30_000
    max_cached_messages: int = 1_000
    """Of one queue, like the next two; the messages given out by the last poll count, too."""
    max_cached_bytes: int = 104_857_600
    max_offset_span: int = 2_000
    max_cached_messages_all: int = 10_000
    """Of all queues together."""
    queues_check_ms: int = 30_000
    """How often topics are looked at for whom ``on_queues_changed`` was called."""

    def __post_init__(self) -> None:
        for name in ("auto_commit_interval_ms", "poll_count_max", "queues_check_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        self.to_consume()

    def to_consume(self) -> ConsumeOptions:
        """Return the settings that all members of groups have. Errors: ``ValueError``."""
        return ConsumeOptions(
            consume_from=self.consume_from,
            consume_timestamp_ms=self.consume_timestamp_ms,
            allocate=self.allocate,
            model=self.model,
            local_offsets_dir=self.local_offsets_dir,
            pull_batch_count=self.pull_batch_count,
            suspend_ms=self.suspend_ms,
            pull_timeout_ms=self.pull_timeout_ms,
            max_cached_messages=self.max_cached_messages,
            max_cached_bytes=self.max_cached_bytes,
            max_offset_span=self.max_offset_span,
            commit_on_pull=self.auto_commit,
        )

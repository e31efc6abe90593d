"""Settings of one replica of the log."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ledgermq.remoting.protocol.hosts import is_port
from ledgermq.remoting.transport.credentials import SecuritySettings

ENTRY_HEADER_BYTES: Final = 48
HOST_CHARACTERS_MAX: Final = 253
"""Longest name that DNS has."""
END_RECORD_BYTES: Final = 8
INDEX_UNIT_BYTES: Final = 32
SEGMENT_BYTES_MIN: Final = 4096
EVENT_FILE_BYTES_MIN: Final = 64 * 1024


class FlushDiskType(Enum):
    """When an entry counts as held by a replica."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    """Once written to the page cache; synced in the background. Survives a process, not a power cut
    of a majority."""
    SYNC_FLUSH = "SYNC_FLUSH"
    """Once ``fdatasync`` has returned; syncs are shared by all entries that wait."""


def is_address(address: str) -> bool:
    """Tell whether a member at ``host:port`` can be dialled."""
    host, _, port = address.rpartition(":")
    is_host = 0 < len(host) <= HOST_CHARACTERS_MAX and host.isascii() and host.isprintable()
    if not is_host or " " in host:
        return False
    return is_port(port)


@dataclass(frozen=True, kw_only=True)
class DLedgerConfig:
    """Settings of a `dledger.node.DLedgerNode`; sizes are bytes, times milliseconds or ticks."""

    group: str
    """Name of the replication group (``dLegerGroup``); messages of other groups are dropped."""
    self_id: str
    """Name of this node within the group (``dLegerSelfId``)."""
    peers: dict[str, str] = field(default_factory=dict)
    """All members, this one included, as id -> ``host:port``. The own entry is the address to
    listen on. Addresses may differ from node to node and from start to start, ids may not. Once
    the group has been changed its members are those of the log; addresses given here still win."""
    joining: bool = False
    """Whether this node is to be added to a group that runs: then the other peers are those it
    begins with, and it takes part once it is a member (``dLegerJoin``)."""
    security: SecuritySettings = field(default_factory=SecuritySettings)
    """Keys and certificates by which members know each other; with none, anybody is believed."""
    directory: str
    """Where ``data/ index/ checkpoint currterm identity lock`` lie."""
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    data_segment_bytes: int = 1024 * 1024 * 1024
    index_segment_bytes: int = 5 * 1024 * 1024 * INDEX_UNIT_BYTES

    tick_ms: int = 25
    """Length of a tick, the only clock of the core."""
    heartbeat_ticks: int = 4
    election_ticks_min: int = 20
    """A follower that heard nothing for a random number of ticks between these two campaigns; a
    leader that heard from no majority for the smaller one steps down."""
    election_ticks_max: int = 40

    pending_bytes_max: int = 64 * 1024 * 1024
    """Bytes that may be appended and not committed before `PendingFull`."""
    span_bytes_max: int = 1024 * 1024
    """Most bytes of entries in one message to a peer; one entry larger than that goes alone."""
    inflight_bytes_max: int = 8 * 1024 * 1024
    """Bytes sent to one follower and not yet acknowledged."""
    inflight_spans_max: int = 128
    """Messages with entries sent to one follower and not yet acknowledged."""
    peer_buffer_bytes_max: int = 16 * 1024 * 1024
    """Bytes that may wait in the socket buffer of one peer; beyond, messages to it are dropped."""
    flush_interval_ms: int = 500
    """ASYNC_FLUSH: how often written data is synced in the background."""
    checkpoint_interval_ms: int = 1000
    """How often the committed index is noted on disk, when it has changed."""
    disk_full_retry_ms: int = 500
    """How long sends are refused after the disk was full, before one is tried again."""
    tell_clock_ms: int = 1_000
    """How often members tell each other their wall clocks (`dledger.peers.clocks`); 0 for never."""
    disk_hang_ms: int = 3_000
    """When a sync has not returned for this long, the disk hangs: the node does not lead
    until it does. Well above what a busy disk takes, or leaders would change without need."""
    recovery_bytes: int = 32 * 1024 * 1024
    """At start, how much of the log before its last known synced entry is verified byte by byte;
    everything behind that entry always is."""
    reconnect_ms_min: int = 50
    reconnect_ms_max: int = 500
    source_address: str | None = None
    """Local address that connections to peers leave from; None for the system's choice."""
    max_wait_ack_ms: int = 2500
    """How long the user of the log should wait for a majority before it answers *unknown*."""
    preferred_leader: str | None = None
    """The member that should lead when it can (``preferredLeaderId``); others hand over to it."""
    event_file_bytes: int = 8 * 1024 * 1024
    """Size of each of the four files of ``raft_event/``; 0 records nothing."""

    def __post_init__(self) -> None:
        """Check the relations between the fields; raises `ValueError`."""
        checks = (
            (bool(self.group), "group is empty"),
            (self.self_id in self.peers, f"self_id {self.self_id} is not among the peers"),
            (bool(self.voters), "who joins a group must name peers of it"),
            (self.data_segment_bytes >= SEGMENT_BYTES_MIN, "data_segment_bytes below 4096"),
            (
                self.index_segment_bytes > 0 and self.index_segment_bytes % INDEX_UNIT_BYTES == 0,
                f"index_segment_bytes must be a multiple of {INDEX_UNIT_BYTES}",
            ),
            (self.tick_ms > 0, "tick_ms must be positive"),
            (self.disk_hang_ms > 0, "disk_hang_ms must be positive"),
            (
                0 < self.heartbeat_ticks < self.election_ticks_min < self.election_ticks_max,
                "ticks must satisfy 0 < heartbeat < election min < election max",
            ),
            (
                self.event_file_bytes == 0 or self.event_file_bytes >= EVENT_FILE_BYTES_MIN,
                f"event_file_bytes must be 0 or at least {EVENT_FILE_BYTES_MIN}",
            ),
            (self.span_bytes_max <= 8 * 1024 * 1024, "span_bytes_max above 8 MiB"),
        )
        for holds, problem in checks:
            if not holds:
                raise ValueError(f"DLedgerConfig: {problem}")

    @property
    def election_timeout_ms(self) -> int:
        """The smaller election timeout, in milliseconds."""
        return self.election_ticks_min * self.tick_ms

    @property
    def voters(self) -> tuple[str, ...]:
        """Ids of the voters that the group begins with."""
        return tuple(
            sorted(peer for peer in self.peers if not (self.joining and peer == self.self_id))
        )

    @property
    def listen_address(self) -> str:
        """``host:port`` to listen on; empty for a group of one that needs none."""
        return self.peers[self.self_id]

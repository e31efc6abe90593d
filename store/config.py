"""Settings of the store. RocketMQ's own keys are bound to them by the broker."""

from dataclasses import dataclass
from typing import Final

from store.layout import UNIT_BYTES
from store.results import PutStatus

INDEX_COUNT_MAX: Final = 100_000_000
DEFAULT_DELAY_LEVELS_MS: tuple[int, ...] = tuple(
    seconds * 1000
    for seconds in (
        *(1, 5, 10, 30),
        *(60 * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
        *(3600, 7200),
    )
)
"""``messageDelayLevel`` 1s 5s 10s 30s 1m .. 10m 20m 30m 1h 2h; level 1 is the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexConfig:
    """Size of the files of the key index, and its limits."""

    slots: int = 5_000_000
    """``maxHashSlotNum``: slots of a file."""
    entries: int = 20_000_000
    """``maxIndexNum``: entries of a file, that of number 0 included."""
    offsets_max: int = 64
    """``maxMsgsNumBatch``: messages of one query."""
    steps_max: int = 65_536
    """Entries that one query looks at."""
    flush_ms: int = 1_000
    """Period in which new entries are written, all at once."""
    checkpoint_ms: int = 5_000
    """Period in which the files are synced."""

    def __post_init__(self) -> None:
        if not 0 < self.slots <= INDEX_COUNT_MAX:
            message = f"maxHashSlotNum={self.slots}: 1..{INDEX_COUNT_MAX} is expected"
            raise ValueError(message)
        if not 1 < self.entries <= INDEX_COUNT_MAX:
            message = f"maxIndexNum={self.entries}: 2..{INDEX_COUNT_MAX} is expected"
            raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Where the store lies and what bounds it."""

    directory: str
    """``storePathRootDir``: holds ``consumequeue/`` and the checkpoint files."""
    store_host: bytes
    """Packed address and port of this broker, written into every record."""
    queue_file_bytes: int = 6_000_000
    """``mappedFileSizeConsumeQueue``: size of one consume queue file, a multiple of 20."""
    max_body_bytes: int = 4 * 1024 * 1024
    """``maxMessageSize``: limit of a body, and of all bodies of a batch."""
    max_wait_ack_ms: int = 2500
    """After this long without a majority a put is answered ``late_status``; in a plain log
    (``syncFlushTimeout``) after this long without a flush."""
    late_status: PutStatus = PutStatus.QUORUM_TIMEOUT
    """What is answered then; FLUSH_TIMEOUT where there is no majority to wait for."""
    is_replicated: bool = True
    """Whether a group keeps the log: what is damaged here may come from another member, and an
    index says where entries begin. Otherwise neither is so."""
    reads_following: bool = False
    """Whether a replica that does not lead answers reads as well: a slave does."""
    get_messages_max: int = 32
    """``maxTransferCountOnMessageInMemory``: messages of one read."""
    get_bytes_max: int = 256 * 1024
    """``maxTransferBytesOnMessageInMemory``: bytes of one read."""
    cold_behind_bytes: int = 0
    """``accessMessageInMemoryMaxRatio`` of the memory: a read from farther behind the end of the
    log counts as one from disk; 0: none does."""
    get_cold_messages_max: int = 8
    """``maxTransferCountOnMessageInDisk``: messages of one read from disk."""
    get_cold_bytes_max: int = 64 * 1024
    """``maxTransferBytesOnMessageInDisk``: bytes of one read from disk."""
    get_units_max: int = 800
    """Consume queue units one read looks at."""
    dispatch_batch: int = 512
    """Entries read back from the log in one turn of the loop."""
    follower_batch: int = 512
    """Committed entries that a follower lets come together before it dispatches them, unless a tick
    comes first; 1: none waits."""
    flush_queues_max: int = 256
    """Queues written in one tick, so that many thousands of them do not hold up the loop."""
    unflushed_units_max: int = 1 << 20
    """Units kept in memory before they are written; when writing fails, dispatch stops there."""
    open_files_max: int = 256
    """Consume queue files open at a time."""
    tick_ms: int = 100
    """Period of timeouts, queue writes and retries."""
    checkpoint_ms: int = 5000
    """Period of checkpoints: queues fsynced, dispatch position recorded."""
    index: IndexConfig | None = None
    """``messageIndexEnable``: the index of keys; None: there is none."""
    delay_levels_ms: tuple[int, ...] = DEFAULT_DELAY_LEVELS_MS
    """``messageDelayLevel``: delays of level 1, 2, ..."""

    def __post_init__(self) -> None:
        if self.queue_file_bytes <= 0 or self.queue_file_bytes % UNIT_BYTES:
            message = f"queue_file_bytes={self.queue_file_bytes} is not a multiple of {UNIT_BYTES}"
            raise ValueError(message)
        if len(self.store_host) not in {8, 20}:
            message = f"store_host has {len(self.store_host)} bytes, expected 8 or 20"
            raise ValueError(message)

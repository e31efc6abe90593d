"""Settings of the plain CommitLog; RocketMQ's own keys are bound to them by the broker."""

from dataclasses import dataclass
from typing import Final

from dledger.config import FlushDiskType

SEGMENT_BYTES_MIN: Final = 4096
OPEN_SEGMENTS_MIN: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLogConfig:
    """Where the log lies and what bounds it; sizes are bytes, times milliseconds."""

    directory: str
    """``storePathCommitLog``: holds the segments and nothing else."""
    name: str = "plain"
    """Of the broker, for log lines."""
    segment_bytes: int = 1024 * 1024 * 1024
    """``mappedFileSizeCommitLog``."""
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    """``flushDiskType``: whether an entry counts as committed once written, or once synced."""
    flush_interval_ms: int = 500
    """``flushIntervalCommitLog``: how often ASYNC_FLUSH looks whether to sync."""
    flush_pages_min: int = 4
    """``flushCommitLogLeastPages``: pages of 4 KiB below which it does not."""
    flush_thorough_ms: int = 10_000
    """``flushCommitLogThoroughInterval``: after so long it does, however little there is."""
    pending_bytes_max: int = 64 * 1024 * 1024
    """Bytes that may be appended and not committed before `PendingFull`."""
    disk_full_retry_ms: int = 500
    """How long appends are refused after the disk was full, before one is tried again."""
    disk_hang_ms: int = 3_000
    """When a sync has not returned for this long, the broker reports that the disk hangs."""
    open_segments_max: int = 64
    """Segments open and mapped at a time; those that wait for a sync come on top."""
    clean_walk_bytes: int = 64 * 1024 * 1024
    """How much of the end of the log a start after a clean stop reads through."""
    cut_damaged: bool = False
    """Whether a start cuts the log at damage with sound, synced messages behind, as RocketMQ does;
    otherwise it refuses."""

    def __post_init__(self) -> None:
        if self.segment_bytes < SEGMENT_BYTES_MIN:
            message = f"segment_bytes={self.segment_bytes} is below {SEGMENT_BYTES_MIN}"
            raise ValueError(message)
        if self.open_segments_max < OPEN_SEGMENTS_MIN:
            message = f"open_segments_max={self.open_segments_max} is below {OPEN_SEGMENTS_MIN}"
            raise ValueError(message)
        if min(self.flush_interval_ms, self.disk_full_retry_ms, self.pending_bytes_max) <= 0:
            raise ValueError("intervals and limits must be above 0")

"""Settings of the key index, under RocketMQ's keys bound by the broker."""

from dataclasses import dataclass
from typing import Final

from store.index.codec import FIRST_ENTRY

COUNT_MAX: Final = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexConfig:
    """Size of the index files, and the period of their checkpoints."""

    slots: int = 5_000_000
    """``maxHashSlotNum``: slots of a file."""
    entries: int = 20_000_000
    """``maxIndexNum``: entries of a file, the one of number 0 included."""
    offsets_max: int = 64
    """``maxMsgsNumBatch``: messages of one query."""
    steps_max: int = 65_536
    """Entries that one query looks at."""
    checkpoint_ms: int = 5_000
    """Period in which the files are synced."""

    def __post_init__(self) -> None:
        if not 0 < self.slots <= COUNT_MAX:
            message = f"maxHashSlotNum={self.slots}: 1..{COUNT_MAX} is expected"
            raise ValueError(message)
        if not FIRST_ENTRY < self.entries <= COUNT_MAX:
            message = f"maxIndexNum={self.entries}: 2..{COUNT_MAX} is expected"
            raise ValueError(message)

"""What a snapshot is to the core: where it ends, and how far its bytes have come.

A snapshot stands for the entries up to ``last_index``, which are in the log no more. Its content,
the state of whoever uses the log, is bytes to the core; they are shipped as they lie in the file.

Source: Raft paper 7 and Figure 13; the file in `dledger.codec.snapshot`.
"""

from typing import Final

import msgspec

from dledger.core.configuration import ConfigEntry
from dledger.core.model import LogIndex, SnapshotId

SNAPSHOT_CHUNK_BYTES: Final = 256 * 1024
"""Bytes in one message, unless the settings say otherwise."""


class SnapshotMeta(msgspec.Struct, frozen=True, gc=False):
    """What the head of a snapshot says."""

    id: SnapshotId
    position: int
    """Where entry ``last_index + 1`` lies: the beginning of the log, at the start of a segment."""
    state_index: LogIndex
    """Last entry whose effect is in the state; at least ``last_index``."""
    configuration: ConfigEntry
    """The configuration in force at ``last_index``, at its place in the log."""


class Staging:
    """A snapshot on its way in, at a follower; one at a time, one chunk at a time."""

    __slots__ = ("chunk", "handed", "id", "offset")

    def __init__(self, snapshot_id: SnapshotId) -> None:
        self.id = snapshot_id
        self.offset = 0
        """Bytes kept aside so far, from the first one on."""
        self.chunk: bytes | memoryview | None = None
        """What follows them and is not kept aside yet."""
        self.handed = False
        """The driver is at work on the chunk."""

    @property
    def installing(self) -> bool:
        """Whether the last chunk is on its way to the disk: the log is about to be replaced."""
        return self.chunk is not None and self.offset + len(self.chunk) == self.id.size


class StageWork(msgspec.Struct, frozen=True, gc=False):
    """Part of a `Ready`: bytes of a snapshot to be kept aside, and whether they are the last."""

    id: SnapshotId
    offset: int
    data: bytes | memoryview
    install: bool
    """All chunks are here: check them, and replace the log by the snapshot."""

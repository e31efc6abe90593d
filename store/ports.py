"""What the store asks of its surroundings: the replicated log below and the broker above."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from store.beginning import QueueBase


class LogNode(Protocol):
    """The replicated log as the store sees it; `dledger.node.DLedgerNode` is one.

    Indexes count entries from 0; an empty log ends at -1. A body lies 48 bytes after its entry.
    """

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads in ``term``."""
        ...

    @property
    def term(self) -> int:
        """Current term."""
        ...

    @property
    def commit_index(self) -> int:
        """Index of the last committed entry, -1 for none."""
        ...

    @property
    def first_index(self) -> int:
        """Index of the first entry still held."""
        ...

    @property
    def end_index(self) -> int:
        """Index of the last entry, -1 for an empty log."""
        ...

    @property
    def first_position(self) -> int:
        """Byte position of the first entry still held."""
        ...

    @property
    def committed_position(self) -> int:
        """Byte position just after the last committed entry."""
        ...

    def reserve(self, body_bytes: int) -> int:
        """Return the physical offset at which a body of this size will lie."""
        ...

    def reserve_batch(self, body_sizes: Sequence[int]) -> list[int]:
        """Return the physical offsets of several bodies, all in one segment."""
        ...

    def append(self, parts: Sequence[bytes], body_bytes: int) -> int:
        """Append one reserved body given as buffers; return its index."""
        ...

    def entry(self, index: int) -> tuple[int, int, int]:
        """Return ``(position, size, term)`` of an entry; size includes its 48-byte header."""
        ...

    def view(self, physical_offset: int, size: int) -> memoryview:
        """Return bytes of one segment, neither checked nor copied."""
        ...

    def body_view(self, index: int) -> memoryview:
        """Return the body of an entry, checked and not copied. Errors: `RottenEntry`."""
        ...

    def body_at(self, physical_offset: int, size: int) -> memoryview:
        """Return the body that lies there, checked and not copied.

        Errors: `RottenEntry`; `LookupError` when no entry has its body there.
        """
        ...

    def find(self, physical_offset: int) -> int | None:
        """Return the index of the entry whose body begins there, None if there is none."""
        ...


class StoreListener(Protocol):
    """What the broker hears from the store; called in the loop thread, must not raise."""

    def on_message(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """New messages are readable; once per queue and turn, ``tags_code`` of the last one."""
        ...

    def apply_state(self, index: int, kind: str, payload: bytes) -> None:
        """Apply one committed state record, in log order; the no-op is not handed out."""
        ...

    def restore_state(self, state_index: int, state: bytes) -> "list[QueueBase]":
        """Replace all state by that of a snapshot; return where the queues begin."""
        ...

    def on_writable(self, writable: bool, term: int) -> None:  # noqa: FBT001 - the contract's event
        """Leadership became usable, or was lost."""
        ...

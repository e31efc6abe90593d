"""What the store asks of its surroundings: the replicated log below and the broker above."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dledger.storage.recent import Noted
    from store.layout import Keyed, Row
    from store.queues.start import QueueBase

Body = tuple[int, int, bytes | memoryview, int, int]
"""``(index, physical offset, chunk, where in the chunk the body begins, its bytes)``."""


class LogNode(Protocol):
    """The log as the store sees it: `dledger.node.DLedgerNode`, or `store.plain` without a group.

    Entries are named by an index that rises along the log; -1 stands before the first. A replicated
    log counts its entries from 0. A plain one names each by the position of its last byte.
    """

    @property
    def header_bytes(self) -> int:
        """Bytes of an entry before its body, the record."""
        ...

    @property
    def counts_entries(self) -> bool:
        """Whether an index is the number of an entry; otherwise it is a position."""
        ...

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
        """Where the first entry still held starts: its number, or its position."""
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

    def append_batch(self, bodies: Sequence[bytes]) -> Sequence[int]:
        """Append all the bodies that were reserved together; return their indexes."""
        ...

    def following(self, index: int) -> int:
        """Return where the entry behind ``index`` starts: its number, or its position."""
        ...

    def holds(self, index: int, term: int, position: int) -> bool:
        """Tell whether that very entry is in the log, or is the last of those dropped from it."""
        ...

    def term_at(self, index: int) -> int:
        """Return the term of an entry."""
        ...

    def bodies(self, first: int, last: int, limit: int) -> Iterator[Body]:
        """Walk at most ``limit`` bodies from the entry that starts at ``first`` up to ``last``.

        Errors: `RottenEntry` for a damaged one, when it is its turn.
        """
        ...

    def maybe_noted(self, index: int) -> "Noted | None":
        """Return the first note kept about entry ``index`` or what follows, None for none."""
        ...

    def release(self, index: int) -> None:
        """Let go of what is kept in memory of entries before ``index``."""
        ...

    def body_of(self, index: int, position: int) -> memoryview:
        """Return the body of the entry at ``position``, checked. Errors: `RottenEntry`."""
        ...

    def last_body(self) -> memoryview | None:
        """Return the body of the last entry, None for an empty log. Errors: `RottenEntry`."""
        ...

    def body_at(self, physical_offset: int, size: int) -> memoryview:
        """Return the body that lies there, checked and not copied.

        Errors: `RottenEntry`; `LookupError` when no entry has its body there.
        """
        ...

    def read_ahead(self, physical_offset: int, size: int) -> None:
        """Ask for bytes that will be read soon, without waiting; those of one segment."""
        ...

    def find(self, physical_offset: int) -> int | None:
        """Return the index of the entry whose body begins there, None if there is none."""
        ...

    def describe(self, physical_offset: int) -> str:
        """Return in words the file that holds a place of the log, and where in it that is."""
        ...


class KeySink(Protocol):
    """Who is told of the keys of messages, in log order, some of them more than once."""

    @property
    def has_room(self) -> bool:
        """Whether more may be put before what waits is written."""
        ...

    def rows_of(self, messages: "Iterable[Keyed]") -> "list[Row]":
        """Return what to put for messages, of those that have keys; nothing is put."""
        ...

    def put_rows(self, rows: "list[Row]") -> None:
        """Take the rows of messages that were dispatched. Errors: `FatalError`."""
        ...

    def flush(self) -> bool:
        """Write what waits; False if the disk is full. Errors: `FatalError`."""
        ...


class StoreListener(Protocol):
    """What the broker hears from the store; called in the loop thread, must not raise."""

    def on_message(self, topic: str, queue_id: int, max_offset: int) -> None:
        """New messages are readable; once per queue and turn."""
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

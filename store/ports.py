"""What the store asks of its surroundings: the log below and the broker above."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dledger.mark import LogMark
    from dledger.storage.recent import HintedSpan
    from store.layout import Keyed, Row
    from store.queues.start import QueueStart

Body = tuple[int, bytes | memoryview, int, int]
"""``(physical offset, chunk, where in the chunk the body begins, its bytes)``."""


class LogReader(Protocol):
    """The log as who reads it sees it: bytes at positions, some of them committed.

    An entry is a header, which the log owns, and a body, the record; it lies in ``[start, end)``.
    Between two entries there may be the unused rest of a segment, so that any position from the end
    of one entry up to the start of the next stands for the same place. How a log counts its entries
    is its own business.
    """

    @property
    def header_bytes(self) -> int:
        """Bytes of an entry before its body."""
        ...

    @property
    def first_position(self) -> int:
        """Where the first entry still held starts."""
        ...

    @property
    def committed_position(self) -> int:
        """Where the last committed entry ends."""
        ...

    @property
    def end_position(self) -> int:
        """Where the last entry ends."""
        ...

    def walk(self, start: int, end: int, limit: int) -> Iterator[Body]:
        """Walk at most ``limit`` bodies of the entries from ``start`` on, up to ``end``.

        Errors: `DamagedEntry` for a damaged one, when it is its turn.
        """
        ...

    def body_at(self, physical_offset: int, size: int) -> memoryview:
        """Return the body that lies there, checked and not copied.

        Errors: `DamagedEntry`; `LookupError` when no entry has its body there.
        """
        ...

    def maybe_size(self, physical_offset: int) -> int | None:
        """Return the size of the body that begins there, None if none does."""
        ...


class LogWriter(Protocol):
    """The log as who appends sees it."""

    @property
    def header_bytes(self) -> int:
        """Bytes of an entry before its body."""
        ...

    def maybe_term(self, applied: int) -> int | None:
        """Return the term in which this replica may write; None if it may not.

        It may if it leads, and nothing of earlier leaders lies behind ``applied``: whoever has
        applied the log so far knows everything that he continues.
        """
        ...

    def reserve(self, body_bytes: int) -> int:
        """Return the physical offset at which a body of this size will lie.

        Several that are appended one after the other, at once, lie side by side in one segment
        where the bytes of all, and of the headers between them, were reserved together.
        """
        ...

    def append(self, parts: Sequence[bytes], body_bytes: int) -> object:
        """Append one reserved body given as buffers."""
        ...

    def append_batch(self, bodies: Sequence[bytes]) -> object:
        """Append all the bodies that were reserved together."""
        ...

    def last_body(self) -> memoryview | None:
        """Return the body of the last entry, None for an empty log. Errors: `DamagedEntry`."""
        ...


class Log(LogReader, LogWriter, Protocol):
    """A log: what is in it, and how it grows.

    `dledger.replicated_log.ReplicatedLog` is the log of a group, `store.plain.PlainLog` one on its
    own.
    """


class LogFeed(Protocol):
    """What dispatch asks, which takes every entry once, in order, close behind the commit."""

    def following(self, position: int) -> int:
        """Return where the entry behind ``position`` starts, or would start."""
        ...

    def maybe_hint(self, position: int) -> "HintedSpan | None":
        """Return the first dispatch hint kept about what follows ``position``, None for none."""
        ...

    def next_batch(self, applied: int, most: int, least: int = 0) -> int:
        """Return how many entries to dispatch next; all before ``applied`` are dispatched.

        Nothing of those need be kept in memory. It is ``most``, or fewer while more of the log is
        on its way, which comes first. It is 0 where fewer than ``least`` are committed and nobody
        waits for them.
        """
        ...


class LogMarks(Protocol):
    """What checkpoints ask, which name an entry for the next start to find it again."""

    def mark(self, start: int, end: int) -> "LogMark":
        """Return what to write down of the entry that lies there, to find it again.

        ``start`` is -1 where it is not known, or the entry is not in the log any more.
        """
        ...

    def maybe_end(self, mark: "LogMark") -> int | None:
        """Return where that very entry ends; None if it is not in this log.

        The last entry that was dropped from the log counts as in it.
        """
        ...


class LogFiles(Protocol):
    """What is asked of the files below a log, whatever they hold."""

    def read_ahead(self, physical_offset: int, size: int) -> None:
        """Ask for bytes that will be read soon, without waiting; those of one segment."""
        ...

    def describe(self, physical_offset: int) -> str:
        """Return in words the file that holds a place of the log, and where in it that is."""
        ...


class LogParts(Protocol):
    """A log as a store is attached to it: each part of the store is given those that it needs."""

    @property
    def entries(self) -> Log:
        """What is in it, and how it grows."""
        ...

    @property
    def feed(self) -> LogFeed:
        """For dispatch."""
        ...

    @property
    def marks(self) -> LogMarks:
        """For checkpoints."""
        ...

    @property
    def files(self) -> LogFiles:
        """For reads that are to be quick, and for what is said of places."""
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

    def apply_state(self, position: int, kind: str, payload: bytes) -> None:
        """Apply one committed state record, in log order; the no-op is not handed out.

        ``position``: where its entry ends.
        """
        ...

    def restore_state(self, state: bytes) -> "tuple[list[QueueStart], Iterator[None]]":
        """Replace all state by that of a snapshot.

        Returns where the queues begin, and the steps in which the rest is done, each in a turn of
        the loop: nothing is dispatched, and this replica takes no messages, before the last one.
        """
        ...

    def on_writable(self, writable: bool, term: int) -> None:  # noqa: FBT001 - the contract's event
        """Leadership became usable, or was lost."""
        ...

    def on_hand_over(self) -> None:
        """Propose what is held back: leadership is about to be handed over on purpose."""
        ...

"""The words of the Raft paper as types: roles, terms, indexes, spans of entries, hard state.

Nothing here knows bytes on disk or on the wire, except that a `Span` carries them unread.

Conventions, said once:

- The first index is 0 and an empty log ends at -1, as in DLedger; so does the commit index.
- `Term` and `LogIndex` are plain ints by another name: they take part in arithmetic on the hot
  path, where wrapping each sum again costs more than the checker's help is worth.
- A position is a byte offset in the log as a whole (DLedger's ``pos``), the same on all replicas.

Source: Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm", Figure 2.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol, TypeAlias

import msgspec

from dledger.core.configuration import Configuration

NodeId: TypeAlias = str
Term: TypeAlias = int
LogIndex: TypeAlias = int

NO_INDEX: Final[LogIndex] = -1
"""Index before the first entry: the end of an empty log, and what it has committed."""
NO_TERM: Final[Term] = 0
"""Term of the (imaginary) entry at `NO_INDEX`; no leader ever has it."""

UNIT_BYTES: Final = 32
"""Size of one index unit in `Span.units`."""


class Role(Enum):
    """What a replica is, at every moment exactly one of these."""

    FOLLOWER = "FOLLOWER"
    PRE_CANDIDATE = "PRE_CANDIDATE"
    CANDIDATE = "CANDIDATE"
    LEADER = "LEADER"


FOLLOWER: Final = Role.FOLLOWER
LEADER: Final = Role.LEADER
"""For what is asked at every tick and message: a member costs ten times as much as a global."""


TRANSITIONS: Final[dict[tuple[Role, Role], str]] = {
    (Role.FOLLOWER, Role.FOLLOWER): "hears of a higher term or of its leader",
    (Role.FOLLOWER, Role.PRE_CANDIDATE): "election timeout: asks whether it could win",
    (Role.FOLLOWER, Role.CANDIDATE): "its leader hands over to it",
    (Role.PRE_CANDIDATE, Role.PRE_CANDIDATE): "election timeout again",
    (Role.PRE_CANDIDATE, Role.FOLLOWER): "hears of a leader or a higher term",
    (Role.PRE_CANDIDATE, Role.CANDIDATE): "a majority would vote for it",
    (Role.CANDIDATE, Role.PRE_CANDIDATE): "election timeout: nobody won",
    (Role.CANDIDATE, Role.FOLLOWER): "hears of a leader or a higher term",
    (Role.CANDIDATE, Role.LEADER): "a majority voted for it",
    (Role.LEADER, Role.FOLLOWER): "hears of a higher term, or from no majority",
}
"""Every legal change of role, and why it happens. Any other is a bug."""


class HardState(msgspec.Struct, frozen=True, gc=False):
    """What must be on disk before a message that follows from it may leave (paper Figure 2)."""

    term: Term = NO_TERM
    voted_for: NodeId | None = None
    fresh: bool = False
    """The directory began empty and nobody has let it vote yet, see `dledger.core.rejoin`."""


class Span(msgspec.Struct, frozen=True, gc=False):
    """Entries ``first_index..last_index``, all of one term, as the bytes they have in the log.

    The entries lie side by side in one segment. The core moves spans about and compares their
    terms; it never looks at an entry. Invariant: ``first_index <= last_index`` and ``units`` holds
    one unit an entry (see `dledger.codec.index`), from which entry boundaries are known.
    """

    first_index: LogIndex
    last_index: LogIndex
    term: Term
    position: int
    """Where the first entry lies in the log."""
    data: bytes | memoryview
    units: bytes
    """The entries' index units; rebuilt by a receiver, not sent."""
    configs: tuple[tuple[LogIndex, Configuration], ...] = ()
    """Those of the entries that are configurations, read for the core by whoever made the span."""
    hint: bytes = b""
    """What the leader's user says about all of these entries, for the others' users; it is never
    on disk, nobody below them looks into it, and a part of the span has none."""

    @property
    def end_position(self) -> int:
        """Position behind the last entry."""
        return self.position + len(self.data)

    def from_index(self, index: LogIndex) -> "Span":
        """Return the part from ``index`` on."""
        assert self.first_index <= index <= self.last_index, (self.first_index, index)
        if index == self.first_index:
            return self
        unit = (index - self.first_index) * UNIT_BYTES
        offset = int.from_bytes(self.units[unit + 4 : unit + 12], "big") - self.position
        return Span(
            index, self.last_index, self.term, self.position + offset, self.data[offset:],
            self.units[unit:], tuple(found for found in self.configs if found[0] >= index),
        )  # fmt: skip

    def before_index(self, index: LogIndex) -> "Span":
        """Return the part before ``index``."""
        assert self.first_index < index, (self.first_index, index)
        if index > self.last_index:
            return self
        unit = (index - self.first_index) * UNIT_BYTES
        size = int.from_bytes(self.units[unit + 4 : unit + 12], "big") - self.position
        return Span(
            self.first_index, index - 1, self.term, self.position, self.data[:size],
            self.units[:unit], tuple(found for found in self.configs if found[0] < index),
        )  # fmt: skip


class SnapshotId(msgspec.Struct, frozen=True, gc=False):
    """One snapshot and no other: two with the same id are equal byte for byte."""

    last_index: LogIndex
    """Last entry that the snapshot stands for; the log goes on behind it."""
    last_term: Term
    size: int
    """Bytes in all."""
    crc: int
    """CRC-32 over all but the first bytes that hold it."""

    def describe(self) -> str:
        """Render for logs and golden files."""
        return f"{self.last_index}/{self.last_term} size={self.size}"


class Rng(Protocol):
    """The only chance in the core: how long an election timeout lasts."""

    def randint(self, low: int, high: int) -> int:
        """Return an integer of ``low``..``high``, both included."""
        ...


class LogView(Protocol):
    """What the core may ask of the log on disk. Writes leave in `Ready`, never through here."""

    @property
    def first_index(self) -> LogIndex:
        """First entry retained; 0 in a log that was never trimmed."""
        ...

    @property
    def last_index(self) -> LogIndex:
        """Last entry written, -1 for none."""
        ...

    @property
    def base_term(self) -> Term:
        """Term of the entry before the first one retained; `NO_TERM` if unknown or none."""
        ...

    @property
    def snapshot(self) -> SnapshotId | None:
        """The snapshot that stands for the entries that were dropped, None for none."""
        ...

    def read_snapshot(self, offset: int, size: int) -> bytes:
        """Return bytes of the snapshot."""
        ...

    def term_runs(self) -> list[tuple[LogIndex, Term]]:
        """Return each term of the log with the first index that has it, in order."""
        ...

    def read(self, first_index: LogIndex, last_index: LogIndex, bytes_max: int) -> Span | None:
        """Return entries of one term and one segment from ``first_index`` on.

        At least one entry, at most ``last_index`` and ``bytes_max`` (which one entry may exceed).
        None when the first one is damaged on this disk, and not repaired yet.
        """
        ...

    def position_after(self, index: LogIndex) -> int:
        """Return the position behind entry ``index``; of -1, where the log begins."""
        ...


NoopBuilder: TypeAlias = Callable[[LogIndex, Term, int], Span]
"""``(index, term, end_position) -> span``: builds the entry with which a leader opens its term."""

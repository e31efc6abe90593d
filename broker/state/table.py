"""What a table of replicated state is: it changes only by records of the log.

All replicas apply the same records in the same order. A new table is a class of this kind and one
line in `broker.tables`. Knows neither the log nor the disk.
Source: docs/adr/0002.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from broker.state.steps import at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from ledgermq.remoting.protocol.limits import Limit

    Gauge = tuple[Limit, Callable[[], int]]
    Text = bytes | memoryview
    Exchange = Callable[[], dict[Any, Any]]
    """Puts what was restored in the table's place, and returns former rows, which may be many."""


class ReplicatedTable(ABC):
    """One table: the kinds of its records, how they are applied, and its text in a snapshot."""

    file: ClassVar[str]
    """Its name in ``config/`` and in a state image."""
    is_told_by_log: ClassVar[bool] = False
    """Whether a file that is ahead of its log is worse than none: all of the table is made from the
    log then. Else what is in the file counts, as in RocketMQ."""
    is_ahead: bool = False
    """Whether its file was ahead of the log when it was loaded, or named an entry that the log does
    not have: a log that lost its end may have been written on since."""
    changes: int = 0
    """How often the table was changed by something else than a record, and has to be saved."""

    @abstractmethod
    def appliers(self) -> Mapping[str, Callable[[bytes], object]]:
        """Return by kind what applies the payload of a record.

        A record may be applied twice: values are set, never added to. What it raises for a payload
        that no table can take is in `broker.state.replicated_state.BAD_CONTENT`.
        """

    @abstractmethod
    def snapshot_steps(self) -> Iterator[bytes]:
        """Return the parts of the table's text, as it is at this call.

        Taking a part is a slice of work (`broker.table_text`); what is applied between two of them
        is in none.
        """

    @abstractmethod
    def restore(self, data: bytes) -> None:
        """Replace all of the table by a text. Errors: `RemoteProtocolError`."""

    def restore_steps(self, data: Text) -> Generator[None, None, Exchange]:
        """Read a text, slice by slice; return what replaces all of the table by it.

        The table is as it was until then. One that is always small is replaced in one slice.
        Errors: `RemoteProtocolError`.
        """
        yield from ()
        return partial(self._restore_small, bytes(data))

    def check(self, data: bytes) -> None:
        """Read a text as `restore_steps` does, and change nothing; in any thread.

        So `restore` of a small table sets what it changes, and empties nothing that is there.
        Errors: those of `restore`.
        """
        copy(self).restore(data)

    @abstractmethod
    def gauges(self) -> Iterable[Gauge]:
        """Return the limits of the table, and how to count what is used of them."""

    def snapshot(self) -> bytes:
        """Return the table's text, made at once."""
        return b"".join(self.snapshot_steps())

    def _restore_small(self, data: bytes) -> dict[Any, Any]:
        self.restore(data)
        return {}


class LargeTable(ReplicatedTable):
    """A table that may have so many rows that it is restored slice by slice."""

    def restore(self, data: bytes) -> None:
        """See `ReplicatedTable`; at once."""
        at_once(self.restore_steps(data))()

    def check(self, data: bytes) -> None:
        """See `ReplicatedTable`; what would replace the table is thrown away."""
        at_once(self.restore_steps(data))

    @abstractmethod
    def restore_steps(self, data: Text) -> Generator[None, None, Exchange]:
        """See `ReplicatedTable`."""

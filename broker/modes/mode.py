"""What the kinds of brokers have in common for the controller: in a group, alone, master, slave.

A mode owns the log and the directory, and what of the tables depends on them. The controller calls
it in the order of a start, and asks no mode which one it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from broker.cluster.guard import Guard
    from broker.retention.retained_log import RetainedLog
    from broker.state.saver import TableSaver
    from ledgermq.remoting.transport.credentials import CredentialStore
    from store.queues.start import QueueStart


class RunningLog(Protocol):
    """What the controller does with a log itself."""

    async def stop(self) -> None:
        """End, with everything on disk."""
        ...


class Mode(Protocol):
    """One kind of broker; it attaches its log to the store when it is made."""

    @property
    def log(self) -> RunningLog:
        """The log."""
        ...

    @property
    def saver(self) -> TableSaver:
        """Writes the tables to disk."""
        ...

    @property
    def retained(self) -> RetainedLog:
        """The log, for retention."""
        ...

    @property
    def processors(self) -> tuple[object, ...]:
        """What answers requests that only a broker of this mode answers so."""
        ...

    @property
    def guard(self) -> Guard:
        """Says who may administer."""
        ...

    @property
    def credentials(self) -> CredentialStore:
        """Keys and certificates."""
        ...

    @property
    def boot_id(self) -> str:
        """Tells this run of the process from others."""
        ...

    @property
    def broker_id(self) -> int:
        """Id under which the broker registers now."""
        ...

    @property
    def term(self) -> int:
        """Term that name servers are told."""
        ...

    # The start, in this order; `leave` comes last of all at the stop.

    @property
    def applied_index(self) -> int:
        """Last entry that the store has dispatched, as files and status name it."""
        ...

    @property
    def state_index(self) -> int:
        """Last entry whose state records the tables had when they were loaded."""
        ...

    async def check(self) -> None:
        """Find out whether this broker may start here; nothing is touched. Errors: `FatalError`."""
        ...

    def open(self) -> None:
        """Take the directory, and open the log. Errors: `FatalError`."""
        ...

    def load(self) -> None:
        """Load tables and queues. Errors: `FatalError`."""
        ...

    async def start_log(self) -> None:
        """Let the log run, for the store. Errors: `FatalError`."""
        ...

    async def begin(self) -> None:
        """Do what is due once log and store have started."""
        ...

    async def end(self) -> None:
        """End what `begin` has begun, as far as it came."""
        ...

    def leave(self) -> None:
        """Give the directory up, after store and log have stopped."""
        ...

    # While it runs.

    def includes(self, position: int, kind: str) -> bool:
        """Tell whether the tables include a record that the store hands out."""
        ...

    def on_applied(self, kind: str) -> None:
        """Take that a record was applied."""
        ...

    def on_failed(self) -> None:
        """Take that log or store cannot go on."""
        ...

    def on_registered(self, answer: Mapping[str, str]) -> bool:
        """Take what a name server says to a registration: to a slave, who its master is.

        Returns whether that is enough; otherwise the broker registers again soon.
        """
        ...

    def restore(self, state: bytes) -> tuple[list[QueueStart], Iterator[None]]:
        """Take over the state of a snapshot that took the log's place, see `StoreListener`."""
        ...

    def status(self) -> dict[str, Any]:
        """Return the log's view of itself."""
        ...

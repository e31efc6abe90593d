"""The broker's state machine: tables that change only by entries of the replicated log.

``apply`` is called by the store for every committed state record, in the same order on all
replicas. ``propose`` appends a record and waits for it to be applied here. A table says itself
which kinds it applies (`broker.state.table`); a kind that no table has is skipped with a log line.
Source: docs/adr/0002.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from ledgermq.remoting.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.state.table import ReplicatedTable
    from store.results import PutStatus, StateCallback

_log = logging.getLogger(__name__)

BAD_CONTENT: Final = (
    msgspec.MsgspecError, ProtocolError, ValueError, TypeError, LookupError, ArithmeticError,
    RecursionError,
)  # fmt: skip
"""What an applier raises for a payload that no table can take: it looks at nothing else, so every
replica comes to the same end. Anything else that it raises is no matter of content, and fatal."""


class StateLog(Protocol):
    """What the state machine needs of the store."""

    @property
    def writable(self) -> bool:
        """Whether this replica takes proposals."""

    def propose_state(self, kind: str, payload: bytes, done: StateCallback) -> None:
        """Append a state record; ``done`` is called after it was applied, or with the failure."""


class Proposer(Protocol):
    """Has changes replicated."""

    @property
    def writable(self) -> bool:
        """Whether this replica takes proposals."""

    async def propose(self, kind: str, payload: bytes) -> PutStatus:
        """Replicate one change; OK means that it is applied here."""


class LogProposer:
    """A Proposer over the store."""

    def __init__(self, log: StateLog) -> None:
        self._log = log

    @property
    def writable(self) -> bool:
        """Whether this replica takes proposals."""
        return self._log.writable

    async def propose(self, kind: str, payload: bytes) -> PutStatus:
        """Replicate one change; OK means that it is applied here."""
        future: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()

        def done(status: PutStatus) -> None:
            if not future.done():
                future.set_result(status)

        self._log.propose_state(str(kind), payload, done)
        return await future


class ReplicatedState:
    """Applies records to the tables."""

    def __init__(self, *tables: ReplicatedTable) -> None:
        self.tables: dict[str, ReplicatedTable] = {}
        """By the name of their file, in the order in which they were registered."""
        #: By kind, how many records were applied since the start.
        self.revisions: Counter[str] = Counter()
        self.quarantined = 0
        """Records that no table could take, since the start."""
        self.empty: dict[str, bytes] = {}
        """By the name of its file, the text of a table that nothing was applied to."""
        self._appliers: dict[str, Callable[[bytes], object]] = {}
        for table in tables:
            self.add(table)

    def add(self, table: ReplicatedTable) -> None:
        """Register a table, still empty.

        Errors: `ValueError` for a kind or a file that another one has.
        """
        appliers = table.appliers()
        taken = [*(self._appliers.keys() & appliers.keys()), *({table.file} & self.tables.keys())]
        if taken:
            raise ValueError(f"{type(table).__name__}: {min(taken)} belongs to another table")
        self.tables[table.file] = table
        self.empty[table.file] = table.snapshot()
        self._appliers |= {str(kind): applier for kind, applier in appliers.items()}

    def apply(self, position: int, kind: str, payload: bytes) -> bool:
        """Apply one committed record; False if its kind or its content is not understood."""
        applier = self._appliers.get(kind)
        if applier is None:
            _log.warning(
                "event=state_record_skipped position=%d kind=%s reason=unknown-kind", position, kind
            )
            return False
        try:
            applier(payload)
            self.revisions[kind] += 1
        except BAD_CONTENT as error:
            self.quarantined += 1
            _log.error(
                "event=record_quarantined position=%d kind=%s reason=%r", position, kind, str(error)
            )
            return False
        return True

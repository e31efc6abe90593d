"""The broker's state machine: tables that change only by entries of the replicated log.

``apply`` is called by the store for every committed state record, in the same order on all
replicas. ``propose`` appends a record and waits for it to be applied here. What is applied by which
table is listed in ``StateKind``; a kind that this version does not know is skipped with a log line.
Source: docs/adr/0002.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from ledgermq.remoting.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.state.consumer_offset import ConsumerOffsetTable
    from broker.state.queue_lock import QueueLockTable
    from broker.state.subscription import SubscriptionGroupTable
    from broker.state.topic_config import TopicTable
    from ledgermq.runtime.clock import Clock
    from store.results import PutStatus, StateCallback

_log = logging.getLogger(__name__)

BAD_CONTENT: Final = (
    msgspec.MsgspecError, ProtocolError, ValueError, TypeError, LookupError, ArithmeticError,
    RecursionError,
)  # fmt: skip
"""What an applier raises for a payload that no table can take: it looks at nothing else, so every
replica comes to the same end. Anything else that it raises is no matter of content, and fatal."""


class StateKind(StrEnum):
    """What a state record changes; the value is stored with the record."""

    TOPIC = "topic"
    GROUP = "group"
    OFFSET = "offset"
    FORGET_OFFSETS = "forget-offsets"
    LOCK = "lock"
    UNLOCK = "unlock"


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

    async def propose(self, kind: StateKind, payload: bytes) -> PutStatus:
        """Replicate one change; OK means that it is applied here."""


class LogProposer:
    """A Proposer over the store."""

    def __init__(self, log: StateLog) -> None:
        self._log = log

    @property
    def writable(self) -> bool:
        """Whether this replica takes proposals."""
        return self._log.writable

    async def propose(self, kind: StateKind, payload: bytes) -> PutStatus:
        """Replicate one change; OK means that it is applied here."""
        future: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()

        def done(status: PutStatus) -> None:
            if not future.done():
                future.set_result(status)

        self._log.propose_state(kind.value, payload, done)
        return await future


class ReplicatedState:
    """Applies records to the tables."""

    def __init__(
        self,
        *,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        offsets: ConsumerOffsetTable,
        locks: QueueLockTable,
        clock: Clock,
    ) -> None:
        self.topics = topics
        self.groups = groups
        self.offsets = offsets
        self.locks = locks
        #: By kind, how many records were applied since the start.
        self.revisions: Counter[str] = Counter()
        self.quarantined = 0
        """Records that no table could take, since the start."""
        self._appliers: dict[str, Callable[[bytes], object]] = {
            StateKind.TOPIC.value: topics.apply,
            StateKind.GROUP.value: groups.apply,
            StateKind.OFFSET.value: offsets.apply,
            StateKind.FORGET_OFFSETS.value: offsets.apply_forget,
            StateKind.LOCK.value: lambda payload: locks.apply_lock(payload, clock.monotonic_ms()),
            StateKind.UNLOCK.value: locks.apply_unlock,
        }

    def apply(self, index: int, kind: str, payload: bytes) -> bool:
        """Apply one committed record; False if its kind or its content is not understood."""
        applier = self._appliers.get(kind)
        if applier is None:
            _log.warning(
                "event=state_record_skipped index=%d kind=%s reason=unknown-kind", index, kind
            )
            return False
        try:
            applier(payload)
            self.revisions[kind] += 1
        except BAD_CONTENT as error:
            self.quarantined += 1
            _log.error(
                "event=record_quarantined index=%d kind=%s reason=%r", index, kind, str(error)
            )
            return False
        return True

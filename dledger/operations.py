"""What may be asked of a running node besides appending: hand over, read, change the group.

Nothing is decided here: `Leadership` and `MembershipService` have the state, the core the rules.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from dledger.appender import Appender
from dledger.core.configuration import Change
from dledger.core.model import LogIndex, NodeId
from dledger.errors import NotLeader
from dledger.flusher import Flusher
from dledger.leadership import Leadership
from dledger.listener import DLedgerListener
from dledger.membership import MembershipService
from dledger.rpc import PeerTransport
from dledger.view import ReplicaView

SYNC_WAIT_S: Final = 0.005


class Operations(ReplicaView, ABC):
    """The administrable side of a node; whoever inherits opens the parts and runs the loop."""

    _running: bool
    _opened: bool
    _appender: Appender
    _flusher: Flusher
    _service: MembershipService
    _leadership: Leadership
    _transport: PeerTransport

    def _introduce(self, user: DLedgerListener) -> None:
        """Let the parts ask the user what only it knows."""
        self._store.corruption.is_sound_body = user.is_sound_body
        self._appender.write_hint = user.write_hint
        self._transport.validate_hints(user.is_sound_hint)

    def validate_states(self, validator: Callable[[bytes], str]) -> None:
        """Refuse a peer's snapshot if ``validator`` finds a problem in its state."""
        self._store.snapshots.validator = validator

    @abstractmethod
    def _after_input(self) -> None:
        """Look what has changed in the core, and work it off in the next turn."""

    @abstractmethod
    def _before_hand_over(self) -> None:
        """Let the listener append what the next leader ought to have."""

    @abstractmethod
    def _note_role(self) -> None:
        """Append behind what the core has from now on."""

    async def transfer_leadership(self, target: NodeId) -> None:
        """Hand leadership to ``target``; return when it leads.

        Until then, or an election timeout at most, appends are refused as by a node that does not
        lead; what was accepted before is committed first. Errors: `TransferFailed`, which says why;
        this node serves again then, unless another leads.
        """
        if not self._running:
            raise NotLeader(None)
        self._before_hand_over()
        begun = self._leadership.begin_transfer(target)
        self._after_input()
        await begun

    async def read_index(self) -> LogIndex:
        """Return an index that covers everything committed before the call, anywhere.

        Whoever has applied the log up to there reads linearizably. Only a leader whom a majority
        confirms after the call returns one; many callers share a round. Errors: `NotLeader`,
        `QuorumTimeout`.
        """
        if not self._running or not self.is_leader:
            raise NotLeader(self.leader_id)
        begun = self._leadership.begin_read()
        self._after_input()
        return await self._leadership.read_index(begun, self.config.max_wait_ack_ms)

    async def sync_to(self, index: LogIndex) -> bool:
        """Return once entry ``index`` survives a loss of power here; False if it may never do so.

        Whoever writes down what follows from an entry asks first: the entry must not be lost alone.
        """
        while self._running and self._driver.synced_index < index:
            self._flusher.start_sync()
            await asyncio.sleep(SYNC_WAIT_S)
        return self._opened and self._driver.synced_index >= index

    async def change_membership(self, change: Change) -> LogIndex:
        """Add a learner, promote it, or remove a member; return the index once it is committed.

        One change at a time; see `dledger.core.membership` for the rules. Errors: `NotLeader`,
        `MembershipRefused` (the group is as before), `OutcomeUnknown`.
        """
        if not self._running or not self.is_leader:
            raise NotLeader(self.leader_id)
        term = self.term
        self._appender.close_batch()
        index = self._service.propose(change)
        self._note_role()
        self._after_input()
        return await self._service.wait(index, term, lambda: self._running)

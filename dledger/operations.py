"""What may be asked of a running node besides appending: hand over, read, change the group.

Nothing is decided here: `Leadership` and `MembershipService` have the state, the core the rules.
"""

import asyncio
from typing import Final, Protocol

from dledger.appender import Appender
from dledger.config import DLedgerConfig
from dledger.core.configuration import Change, ChangeKind
from dledger.core.model import LogIndex, NodeId, Term
from dledger.disk.flusher import Flusher
from dledger.driver import Driver
from dledger.errors import NotLeader
from dledger.leadership import Leadership
from dledger.membership import MembershipService

SYNC_WAIT_S: Final = 0.005


class Host(Protocol):
    """The node that is operated, as far as its operations need it."""

    @property
    def config(self) -> DLedgerConfig:
        """See `DLedgerConfig`."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether it takes part in the group."""
        ...

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it knows."""
        ...

    @property
    def leader_id(self) -> NodeId | None:
        """Whom it follows."""
        ...

    @property
    def term(self) -> Term:
        """Its term."""
        ...

    def after_input(self) -> None:
        """Look what has changed in the core, and work it off in the next turn."""
        ...

    def before_hand_over(self) -> None:
        """Let the user append what the next leader ought to have."""
        ...

    def follow_role(self) -> None:
        """Append behind what the core has from now on."""
        ...


class Operations:
    """Operates one node; its parts are open."""

    def __init__(
        self,
        host: Host,
        appender: Appender,
        flushing: tuple[Driver, Flusher],
        leadership: Leadership,
        service: MembershipService,
    ) -> None:
        self._host = host
        self._appender = appender
        self._driver, self._flusher = flushing
        self._leadership = leadership
        self._service = service

    async def transfer_leadership(self, target: NodeId) -> None:
        """Hand leadership to ``target``; return when it leads.

        Until then, or an election timeout at most, appends are refused as by a node that does not
        lead; what was accepted before is committed first. Errors: `TransferFailed`, which says why;
        this node serves again then, unless another leads.
        """
        host = self._host
        if not host.is_running:
            raise NotLeader(None)
        host.before_hand_over()
        begun = self._leadership.begin_transfer(target)
        host.after_input()
        await begun

    async def read_index(self) -> LogIndex:
        """Return an index that covers everything committed before the call, anywhere.

        Whoever has applied the log up to there reads linearizably. Only a leader whom a majority
        confirms after the call returns one; many callers share a round. Errors: `NotLeader`,
        `QuorumTimeout`.
        """
        host = self._host
        if not host.is_running or not host.is_leader:
            raise NotLeader(host.leader_id)
        begun = self._leadership.begin_read()
        host.after_input()
        return await self._leadership.read_index(begun, host.config.max_wait_ack_ms)

    async def sync_to(self, index: LogIndex) -> bool:
        """Return once entry ``index`` survives a loss of power here; False if it may never do so.

        Whoever writes down what follows from an entry asks first: the entry must not be lost alone.
        """
        while self._host.is_running and self._driver.synced_index < index:
            self._flusher.start_sync()
            await asyncio.sleep(SYNC_WAIT_S)
        return self._driver.synced_index >= index

    async def change_membership(self, change: Change) -> LogIndex:
        """Add a learner, promote it, or remove a member; return the index once it is committed.

        One change at a time; see `dledger.core.membership` for the rules. Errors: `NotLeader`,
        `MembershipRefused` (the group is as before), `OutcomeUnknown`.
        """
        host = self._host
        if not host.is_running or not host.is_leader:
            raise NotLeader(host.leader_id)
        term = host.term
        if change.kind is ChangeKind.REMOVE and change.node_id == host.config.self_id:
            host.before_hand_over()  # once it is out, another one leads
        self._appender.close_batch()
        index = self._service.propose(change)
        host.follow_role()
        host.after_input()
        return await self._service.wait(index, term, lambda: host.is_running)

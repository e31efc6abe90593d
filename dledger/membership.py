"""Changing the group from a running node: builds the entry, waits for it, keeps links in step.

What may be changed when is the core's to say (`dledger.core.membership`); what the entry's body is
around the configuration is the listener's (`DLedgerListener.configuration_body`).
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from dledger.codec.configuration import encode_configuration, encode_configuration_span
from dledger.codec.peer import names_fit
from dledger.config import DLedgerConfig, is_address
from dledger.core import membership
from dledger.core.configuration import Change, ChangeKind, Configuration
from dledger.core.model import LogIndex, NodeId, Role, Term
from dledger.core.raft import Raft
from dledger.core.ready import Event, EventKind
from dledger.errors import MembershipRefused, OutcomeUnknown
from dledger.limits import NODE_ID
from dledger.listener import DLedgerListener
from dledger.peers.rpc import PeerTransport
from dledger.peers.vouching import Voucher
from dledger.replica import place_body
from dledger.storage.log_store import LogStore
from dledger.storage.snapshot_files import MEMBERS_MAX

ELECTIONS_WAITED: Final = 10
"""How many of the longest election timeouts a change waits to be committed."""


class MembershipService:
    """Takes the changes of one node."""

    def __init__(
        self, config: DLedgerConfig, raft: Raft, store: LogStore, transport: PeerTransport
    ) -> None:
        self._config = config
        self._raft = raft
        self._store = store
        self._transport = transport
        self._waits: list[_Wait] = []
        self.voucher = Voucher(raft, transport.send)

    def start(self, user: DLedgerListener, is_shut_out: Callable[[NodeId], bool]) -> None:
        """Take the user of the log; tell the transport who the members are, and who no more."""
        self._user = user
        self._transport.set_members(self._configuration.members)
        self._transport.validate_senders(is_shut_out)

    @property
    def _configuration(self) -> Configuration:
        return self._raft.state.membership.latest.configuration

    def on_events(self, events: tuple[Event, ...]) -> None:
        """Let the links follow what has come into force."""
        if any(event.kind is EventKind.CONFIG for event in events):
            self._transport.set_members(self._configuration.members)

    def on_rolled_back(self, first_index: LogIndex) -> None:
        """Note that entries from there on could not be written, and are forgotten.

        The next entry takes the place, and the term, of the change among them.
        """
        for wait in self._waits:
            wait.is_lost = wait.is_lost or wait.index >= first_index

    def propose(self, change: Change) -> LogIndex:
        """Append the configuration after ``change``; return its index.

        The caller appends nothing of its own before it has looked where the log ends now.
        Errors: `MembershipRefused`; nothing was appended.
        """
        if change.kind is ChangeKind.ADD_LEARNER:
            self._check_new_member(change.node_id, change.address)
        state = self._raft.state
        configuration = membership.plan(state, change)
        log = state.log
        make_body = partial(self._body, encode_configuration(configuration))
        position, body = place_body(make_body, self._store, log.end_position)
        index = log.last_index + 1
        span = encode_configuration_span(index, state.term, position, body, configuration)
        self._raft.propose(span)
        return index

    def _check_new_member(self, node_id: NodeId, address: str) -> None:
        """Refuse what no member could dial: once in the log, it would be in every member's."""
        if not NODE_ID.match(node_id):
            raise MembershipRefused(
                f"{node_id[:64]!r} is not a node id, as n3 is: at most 64 letters, digits and _,"
                " the last one a digit"
            )
        group, members = self._config.group, self._configuration.members
        if len(members) >= MEMBERS_MAX and node_id not in members:
            raise MembershipRefused(f"the group has {len(members)} members, and may have no more")
        if not all(names_fit(group, node_id, one) for one in members):
            raise MembershipRefused(f"{node_id} is too long beside the name of this group")
        if not is_address(address):
            raise MembershipRefused(f"{address[:255]!r} is not an address of the form host:port")
        known = self._config.peers.get(node_id, address)
        if (
            known != address and node_id not in self._configuration.members
        ):  # see `TcpTransport.set_members`
            raise MembershipRefused(
                f"{node_id} is at {known} in the settings of {self._config.self_id}, which win: use"
                " another id, or change the settings of the members first"
            )

    def _body(self, payload: bytes, physical_offset: int) -> bytes:
        return self._user.configuration_body(physical_offset, payload)

    async def wait(self, index: LogIndex, term: Term, is_running: Callable[[], bool]) -> LogIndex:
        """Return ``index`` once the entry of that term is committed there.

        Errors: `MembershipRefused`: something else has taken its place, or the disk was full;
        `OutcomeUnknown`.
        """
        wait = _Wait(index)
        self._waits.append(wait)
        try:
            return await self._watch(wait, term, is_running)
        finally:
            self._waits.remove(wait)

    async def _watch(self, wait: "_Wait", term: Term, is_running: Callable[[], bool]) -> LogIndex:
        config, state, index = self._config, self._raft.state, wait.index
        for _ in range(ELECTIONS_WAITED * config.election_ticks_max):
            if wait.is_lost:
                raise MembershipRefused("the disk is full, it could not be written", retriable=True)
            log = state.log
            if log.term_at(index) not in (term, None):
                raise MembershipRefused("another leader took over before it was committed")
            if log.commit_index >= index:
                return index
            if log.last_index < index and state.role is not Role.LEADER:
                raise MembershipRefused("leadership was lost before it was committed")
            if not is_running():
                break
            await asyncio.sleep(config.tick_ms / 1000)
        raise OutcomeUnknown("the change is in the log, but no majority has confirmed it in time")


class _Wait:
    """Somebody waits for an entry to be committed; compared by identity."""

    __slots__ = ("index", "is_lost")

    def __init__(self, index: LogIndex) -> None:
        self.index = index
        self.is_lost = False

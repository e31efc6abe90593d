"""Asks the members whether one that was removed has been added again.

A server is not heard any more once its removal is committed as far as a member knows. A member
whose log is behind may not know yet that the server was added again since, perhaps even leads; it
could not learn that from the log, since the log comes from the leader. So whoever shuts somebody
out asks the others, and takes the word of any one of them: that one could tell it the same as an
entry of the log.
"""

import logging
from collections.abc import Callable
from typing import Final

from dledger.core.messages import AskMembers, Message, ToldMembers
from dledger.core.raft import Raft
from dledger.storage.snapshot_files import find_problem_of_members

_log: Final = logging.getLogger(__name__)

ASK_INTERVAL_MS: Final = 1_000


class Voucher:
    """Asks for one member, and answers the others."""

    def __init__(self, raft: Raft, send: Callable[[Message], None]) -> None:
        self._raft = raft
        self._send = send
        self._asked_ms = -ASK_INTERVAL_MS

    def pass_time(self, now_ms: int) -> None:
        """Ask, if somebody was shut out since the last look."""
        state = self._raft.state
        if not state.shut_out_knocks or now_ms - self._asked_ms < ASK_INTERVAL_MS:
            return
        state.shut_out_knocks, self._asked_ms = False, now_ms
        version = state.membership.latest.configuration.version
        for peer in state.others:
            self._send(AskMembers(state.node_id, peer, state.term, version))

    def on_message(self, message: AskMembers | ToldMembers) -> None:
        """Take a question or an answer, of a member."""
        state = self._raft.state
        if message.sender not in state.others or message.receiver != state.node_id:
            return
        if isinstance(message, ToldMembers):
            self._take(message)
            return
        found = state.membership.at(state.log.commit_index).configuration
        if found.version > message.version:
            self._send(ToldMembers(state.node_id, message.sender, state.term, found))

    def _take(self, message: ToldMembers) -> None:
        told = message.configuration
        problem = find_problem_of_members(told)
        if problem:
            _log.warning("event=members_refused peer=%s reason=%r", message.sender, problem)
        elif self._raft.state.membership.vouch(told):
            _log.info("event=members_told peer=%s %s", message.sender, told.describe())

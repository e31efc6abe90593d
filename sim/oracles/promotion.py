"""A learner that becomes a voter holds what was committed some time before.

A voter that is far behind counts for the size of a majority and for nothing else: the group stands
still as soon as one more is away. Judged when the leader appends it, by what the learner has told
in that term, whatever the leader makes of it. How long it is silent cannot be judged so: what it
said may take seconds on a link that loses packets.
Source: dissertation 4.2.1 (a new server catches up first); docs/raft.md, members.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final

from dledger.core.messages import AppendReply, RecoveringReply
from dledger.core.model import LEADER
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from dledger.core.messages import Message
    from sim.oracles.replica import Change, Replica
    from sim.oracles.truth import Truth

ROOM_NS: Final = 2_500_000_000
"""A heartbeat ago is what counts for a leader; so much is far behind at any speed of its clock."""


class Promotion:
    """A30, for who becomes a voter."""

    name = "A30 a voter without the log"

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._told: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
        """By leader and term: up to where each member has said that it has the log."""
        self._commits: dict[str, deque[tuple[int, int]]] = {}
        """By replica: when it was seen to have committed up to where, in its present role; the
        first one is old enough to count."""

    def on_boot(self, replica: Replica) -> None:
        """What lies on a disk was judged when it was appended."""
        self._commits.pop(replica.name, None)

    def on_message(self, replica: Replica, message: Message) -> None:
        """Note what a member says to a leader."""
        if isinstance(message, AppendReply | RecoveringReply):
            told = self._told[message.receiver, message.term]
            told[replica.name] = max(message.match_index, told.get(replica.name, -1))

    def on_change(self, replica: Replica, change: Change) -> None:
        """Look at who becomes a voter by what a leader appends. Errors: `Violation`."""
        if change.now[0] is not LEADER:
            self._commits.pop(replica.name, None)
            return
        committed = self._committed_before(replica, change.now[2])
        if change.before[:2] != change.now[:2] or committed is None:
            return
        for index, term in self._truth.configurations:
            mark = replica.mark(index) if index > change.kept_index else None
            if mark is not None and mark.term == term:
                self._check(replica, index, committed)

    def _committed_before(self, replica: Replica, commit_index: int) -> int | None:
        """Return up to where a leader had committed some time before, None if it did not lead."""
        now_ns = self._truth.now_ns()
        commits = self._commits.setdefault(replica.name, deque())
        commits.append((now_ns, commit_index))
        while len(commits) > 1 and commits[1][0] <= now_ns - ROOM_NS:
            commits.popleft()
        return commits[0][1] if commits[0][0] <= now_ns - ROOM_NS else None

    def _check(self, replica: Replica, index: int, committed: int) -> None:
        truth = self._truth
        before = truth.voters_of(replica, index - 1)
        leads = (replica.name, replica.state.term)
        for name in truth.voters_of(replica, index):
            if name in before or name == replica.name:
                continue
            told = self._told[leads].get(name, -1)
            if told < committed:
                raise Violation(
                    self.name,
                    f"{replica.name} makes {name} a voter by entry {index}, which has told that "
                    f"it has the log up to {told}; up to {committed} is committed for "
                    f"{ROOM_NS // 1_000_000} ms",
                    node=replica.name,
                )

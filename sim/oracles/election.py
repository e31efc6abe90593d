"""Leaders, votes, terms: A30, A31, A32. Source: paper Figure 3, 5.2; spec/proof.md 3.6.

Votes and terms are judged by the messages that left: what nobody was told may be forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.core.messages import PreVoteReply, PreVoteRequest, VoteReply, VoteRequest
from dledger.core.model import Role
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from dledger.core.messages import Message
    from sim.oracles.replica import Change, Replica


ABOUT_VOTES: Final = (PreVoteRequest, PreVoteReply, VoteRequest, VoteReply)


class ElectionSafety:
    """A30: at most one leader in a term, across restarts too."""

    name = "A30 election safety"

    def __init__(self) -> None:
        self.leaders: dict[int, tuple[str, int]] = {}
        """By term: who leads, and in which life."""

    def on_boot(self, replica: Replica) -> None:
        """A process that has just started leads nothing."""

    def on_change(self, replica: Replica, change: Change) -> None:
        """Note a leader; another one of the same term is a violation."""
        role, term = change.now[0], change.now[1]
        if role is not Role.LEADER:
            return
        me = (replica.name, replica.incarnation)
        known = self.leaders.setdefault(term, me)
        if known != me:
            raise Violation(
                self.name,
                f"term {term} has two leaders: {known[0]} (life {known[1]}) and "
                f"{me[0]} (life {me[1]})",
                term=term,
                leaders=[known, me],
            )


class Votes:
    """A31: a replica votes for one candidate in a term, across restarts; A32: terms never fall."""

    name = "A31 vote uniqueness"
    term_name = "A32 term regress"

    def __init__(self) -> None:
        self._votes: dict[tuple[str, int], str] = {}
        self._told: dict[str, int] = {}

    def on_message(self, replica: Replica, message: Message) -> None:
        """Take a message that leaves ``replica``. Errors: `Violation`."""
        name = replica.name
        if isinstance(message, ABOUT_VOTES):
            if isinstance(message, PreVoteRequest | PreVoteReply):
                return  # its term is only a plan
            if isinstance(message, VoteRequest):
                self._vote(name, message.term, name)
            elif message.granted:
                self._vote(name, message.term, message.receiver)
        if message.term > self._told.get(name, 0):
            self._told[name] = message.term

    def on_boot(self, replica: Replica) -> None:
        """A term that was told to others must have survived; a wiped replica is another one."""
        name = replica.name
        if replica.is_wiped:
            self._told.pop(name, None)
            for place in [place for place in self._votes if place[0] == name]:
                del self._votes[place]
            return
        term = replica.read_key()[1]
        if term < self._told.get(name, 0):
            raise Violation(
                self.term_name,
                f"{name} started in term {term} after it had spoken in term {self._told[name]}",
                node=name,
            )

    def on_change(self, replica: Replica, change: Change) -> None:
        """Within a life the term never falls."""
        if change.now[1] < change.before[1]:
            raise Violation(
                self.term_name,
                f"{replica.name} went from term {change.before[1]} to {change.now[1]}",
                node=replica.name,
            )

    def _vote(self, name: str, term: int, candidate: str) -> None:
        known = self._votes.setdefault((name, term), candidate)
        if known != candidate:
            raise Violation(
                self.name,
                f"{name} voted in term {term} for {known} and for {candidate}",
                node=name,
                term=term,
                candidates=[known, candidate],
            )

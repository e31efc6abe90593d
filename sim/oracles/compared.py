"""A follower acknowledges what it has in common with its leader, and not what else it holds.

What is behind the entries that a leader has sent may differ from them, whatever the terms: an
acknowledgement that covers it counts entries that nobody has compared. Judged once the event that
said so is over, while that leader leads. Equal terms at an index mean equal logs up to there.
Source: Raft paper 5.3; dissertation 3.5; etcd raft, handleAppendEntries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.core.model import LEADER
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dledger.core.messages import AppendReply
    from sim.oracles.replica import Replica

NAME: Final = "A38 acknowledged what was not compared"


class Compared:
    """Judges acknowledgements as they leave.

    Args:
        replicas: all brokers of the group, by name.
    """

    def __init__(self, replicas: Mapping[str, Replica]) -> None:
        self._replicas = replicas

    def on_message(self, replica: Replica, message: AppendReply) -> None:
        """A follower says up to where its log is that of its leader."""
        leader, term = self._replicas.get(message.receiver), message.term
        if leader is not None and message.match_index >= leader.base:
            replica.deferred.append(lambda: self._check(replica, leader, term, message.match_index))

    @staticmethod
    def _check(replica: Replica, leader: Replica, term: int, index: int) -> None:
        leads = leader.is_up and leader.state.role is LEADER and leader.state.term == term
        is_same = replica.state.term == term and not (replica.is_corrupt or leader.is_corrupt)
        if not leads or not is_same:
            return
        mine, its = replica.mark(index), leader.mark(index)
        if mine is not None and (its is None or its.term != mine.term):
            raise Violation(
                NAME,
                f"{replica.name} says to {leader.name} that it has its log of term {term} up to"
                f" {index}: it has {mine}, its leader {its}",
                node=replica.name,
            )

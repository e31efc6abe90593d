"""What members owe each other: who hears its leader deposes nobody, who was removed leads no more.

A pre-vote that is given while the leader is heard lets whoever comes back disturb a group that is
well; a leader that was removed and stays answers clients of a group that is not its own any more.
Source: dissertation 4.2.2, 4.2.3 and 9.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.core.messages import PreVoteReply
from dledger.core.model import LEADER
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from dledger.core.messages import Message
    from sim.oracles.replica import Change, Replica
    from sim.oracles.truth import Truth

DISTURBED: Final = "A43 pre-vote against a leader that is heard"
REMOVED: Final = "A30 led by who was removed"


class Manners:
    """Judges pre-votes as they leave, and leaders as the configuration goes."""

    name = DISTURBED

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._watched: dict[str, int] = {}
        """By replica: the tick at which something was the matter with its disk last."""

    def on_message(self, replica: Replica, message: Message) -> None:
        """Judge a pre-vote that leaves. Errors: `Violation`."""
        self._note(replica)
        if not isinstance(message, PreVoteReply) or not message.granted:
            return
        state = replica.state
        silent = state.tick - state.contact_tick
        if message.term <= state.term:
            return  # the leader that is heard came behind it: who was paused takes all in one turn
        # What was heard in this very tick may have come behind the vote; a disk may hold it up,
        # and let it go once it is sound again.
        is_heard = state.leader_id is not None and 0 < silent < state.config.election_ticks_min
        is_leader = state.role is LEADER and state.tick > state.barrier_tick
        watched = self._watched.get(replica.name, -state.config.election_ticks_max)
        may_wait = state.tick - watched < state.config.election_ticks_max
        if (is_heard or is_leader) and not may_wait:
            text = f"{replica.name} heard {state.leader_id} {silent} ticks ago"
            text = f"{replica.name} leads" if is_leader else text
            raise Violation(DISTURBED, f"{text}, and gives {message.receiver} a pre-vote")

    def on_boot(self, replica: Replica) -> None:
        """A process that has just started leads nothing."""
        self._watched.pop(replica.name, None)

    def on_change(self, replica: Replica, change: Change) -> None:
        """Look at a leader. Errors: `Violation`."""
        self._note(replica)
        truth, name = self._truth, replica.name
        if change.now[0] is not LEADER or not truth.configurations:
            return
        known = (truth.voters_of(replica), truth.voters_of(replica, change.now[2]))
        if not any(name in voters for voters in known):
            text = f"{name} leads term {change.now[1]}, and the group is {list(known[0])}"
            raise Violation(REMOVED, text, node=name)

    def _note(self, replica: Replica) -> None:
        if replica.disk.is_watched:
            self._watched[replica.name] = replica.state.tick

"""Who may lead, and how long: a leader is voted for by a majority, and hears of one.

Votes are counted as they were sent, not as the candidate counted them. That a leader which nobody
answers steps down is a promise to its clients (check-quorum), judged with room to spare.
Source: paper 5.2; dissertation 6.2; `dledger.core.invariants` for what one replica alone can know.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from dledger.core import invariants
from dledger.core.messages import Rejoined, TimeoutNow, VoteReply, VoteRequest
from dledger.core.model import LEADER
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from dledger.core.leadership import Transfer
    from dledger.core.messages import Message
    from sim.oracles.replica import Change, Replica
    from sim.oracles.truth import Truth

TIMEOUTS_WITHOUT_QUORUM: Final = 2
"""A leader must step down when no majority answers it for this many longest timeouts."""
PAUSE_TIMEOUTS: Final = 10
"""A preferred leader that did not take over is left alone for this many longest timeouts."""


class Elected:
    """A30: whoever leads was voted for by a majority of the voters it knows."""

    name = "A30 elected by a minority"

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._granted: dict[tuple[str, int], dict[str, None]] = defaultdict(dict)
        """By candidate and term: who has granted it a vote."""

    def on_message(self, replica: Replica, message: Message) -> None:
        """Take a message that leaves ``replica``."""
        if isinstance(message, VoteReply) and message.granted:
            self._granted[message.receiver, message.term][replica.name] = None

    def on_boot(self, replica: Replica) -> None:
        """A process that has just started leads nothing."""

    def on_change(self, replica: Replica, change: Change) -> None:
        """Count the votes of a replica that has just become leader."""
        role, term = change.now[0], change.now[1]
        if role is not LEADER or change.before[:2] == change.now[:2]:
            return
        voters = self._truth.voters_of(replica)
        granted = {**self._granted.get((replica.name, term), {}), replica.name: None}
        yes = [voter for voter in voters if voter in granted]
        if 2 * len(yes) <= len(voters):
            raise Violation(
                self.name,
                f"{replica.name} leads term {term} with the votes of {yes} of {list(voters)}",
                node=replica.name,
                term=term,
            )


class Amnesia:
    """A31: who lost its directory does not vote before it holds again what it once held.

    Its lost votes and acknowledgements are promises that it does not know (VR Revisited 4.3). A
    candidate without entries is excepted: so a new group elects its first leader.
    """

    name = "A31 vote without memory"

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._held: dict[str, int] = {}
        """By replica that was wiped: the last committed entry that it had held."""
        self._ends: dict[tuple[str, int], int] = {}
        """By candidate and term: where its log ends."""
        self._committed: dict[str, int] = {}
        """By replica that was wiped: what was committed by then."""

    def on_boot(self, replica: Replica) -> None:
        """Note what a replica is to hold again that begins with an empty directory."""
        if not replica.is_wiped:
            return
        truth = self._truth
        self._committed[replica.name] = truth.commit_index
        held = (
            index
            for index, mark in enumerate(truth.committed)
            if truth.ever.get((index, mark.term), 0) & replica.bit
        )
        self._held[replica.name] = max(held, default=-1)

    def on_change(self, replica: Replica, change: Change) -> None:
        """Only what it says matters."""

    def on_message(self, replica: Replica, message: Message) -> None:
        """Judge a vote that leaves ``replica``, or that it will vote. Errors: `Violation`."""
        name = replica.name
        if isinstance(message, Rejoined):
            self._check_rejoined(replica)
            return
        if isinstance(message, VoteRequest):
            self._ends[name, message.term] = message.last_index
            end = message.last_index
        elif isinstance(message, VoteReply) and message.granted:
            end = self._ends.get((message.receiver, message.term), -1)
        else:
            return
        if replica.is_corrupt:
            return  # a start may take corruption for a torn end, and cut what it had acknowledged
        held = self._held.get(name, -1)
        last = replica.controller.node._raft.state.log.last_index
        if end >= 0 and last < held:
            raise Violation(
                self.name,
                f"{name} lost its directory, has entries up to {last} of the {held} it once held, "
                f"and votes in term {message.term}",
                node=name,
            )

    def _check_rejoined(self, replica: Replica) -> None:
        owed = self._committed.get(replica.name, -1)
        if replica.last_index < owed:
            raise Violation(
                self.name,
                f"{replica.name} lost its directory when {owed} was committed, "
                f"and is to vote with {replica.last_index}",
                node=replica.name,
            )


class Tenure:
    """A leader that no majority answers steps down within an election timeout (check-quorum)."""

    name = "A43 leader without a quorum"

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._ticks: dict[str, int] = {}

    def on_event(self, replica: Replica) -> None:
        """Look at a leader once a tick. Errors: `Violation`."""
        state = replica.controller.node._raft.state
        if state.role is not LEADER or self._ticks.get(replica.name) == state.tick:
            return
        self._ticks[replica.name] = state.tick
        if state.membership.latest.index > replica.last_index:
            return  # a configuration acts when it is appended, and its entry is not written yet
        limit = state.tick - TIMEOUTS_WITHOUT_QUORUM * state.config.election_ticks_max
        voters = self._truth.voters_of(replica)
        heard = [
            voter
            for voter in voters
            if voter == replica.name
            or ((found := state.progress.get(voter)) is not None and found.contact_tick > limit)
        ]
        if 2 * len(heard) <= len(voters):
            raise Violation(
                self.name,
                f"{replica.name} still leads term {state.term} and has heard only {heard} "
                f"of {list(voters)} since tick {limit}, it is {state.tick}",
                node=replica.name,
            )


class Matches:
    """A38: what a leader counts a follower for is what that follower told it in this term."""

    name = "A38 counted what was not told"

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
        """By leader and term: the highest entry that each follower has acknowledged."""
        self._latest: dict[str, tuple[int, dict[str, int]]] = {}
        """By leader: its term, and what it was told in that: looked up at every event."""

    def on_message(self, replica: Replica, message: Message) -> None:
        """Take a message that leaves ``replica``."""
        match_index = getattr(message, "match_index", None)
        if match_index is not None:
            told = self._told[message.receiver, message.term]
            told[replica.name] = max(match_index, told.get(replica.name, -1))

    def on_event(self, replica: Replica) -> None:
        """Look at a leader after an event of its own. Errors: `Violation`."""
        state, name = replica.state, replica.name
        latest = self._latest.get(name)
        if latest is None or latest[0] != state.term:
            latest = self._latest[name] = (state.term, self._told[name, state.term])
        told = latest[1]
        for follower, progress in state.progress.items():
            if progress.match_index > told.get(follower, -1):
                raise Violation(
                    self.name,
                    f"{replica.name} leads term {state.term} and counts {follower} for "
                    f"{progress.match_index}, which has told it {told.get(follower, -1)} in this "
                    "term",
                    node=replica.name,
                )


class Changes:
    """One change of the group at a time: the one before is committed first (dissertation 4.1)."""

    name = "A30 two changes of the group at once"

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def on_boot(self, replica: Replica) -> None:
        """What lies on a disk was judged when it was appended."""

    def on_change(self, replica: Replica, change: Change) -> None:
        """Look at what a leader has appended."""
        if not self._truth.configurations or change.now[0] is not LEADER:
            return
        if change.before[:2] != change.now[:2]:
            return
        held = sorted(
            index
            for index, term in self._truth.configurations
            if (mark := replica.mark(index)) is not None and mark.term == term
        )
        for before, index in pairwise(held):
            if index > change.kept_index and before > change.now[2]:
                raise Violation(
                    self.name,
                    f"{replica.name} appended a change of the group at {index}, the one at "
                    f"{before} is not committed (commit {change.now[2]})",
                    node=replica.name,
                )


class HandOver:
    """Once a successor was asked to campaign its leader appends nothing (dissertation 3.10).

    What it appended the successor would not have, and whoever waits for it would not be told. Nor
    does it stop its sends again and again for a preferred leader that cannot take over.
    """

    name = "A42 appended during a transfer"
    again_name = "A43 handed over again at once"

    def __init__(self) -> None:
        self._asked: dict[str, tuple[Transfer, int]] = {}
        self._preferred: dict[str, tuple[int, int, int]] = {}
        """By leader: its term, when it began to hand over to the preferred one, and what for."""

    def on_boot(self, replica: Replica) -> None:
        """A process that has just started hands nothing over."""
        self._asked.pop(replica.name, None)
        self._preferred.pop(replica.name, None)

    def on_tick(self, replica: Replica) -> None:
        """Look whether a leader begins to hand over by itself. Errors: `Violation`."""
        state, name = replica.state, replica.name
        known = self._preferred.get(name)
        if state.transfer is None or not state.prefer_pause:
            return  # or somebody wants it so
        if known is not None and known[2] == state.prefer_tick:
            return
        self._preferred[name] = (state.term, state.tick, state.prefer_tick)
        pause = PAUSE_TIMEOUTS * state.config.election_ticks_max
        if known is not None and known[0] == state.term and state.tick - known[1] < pause:
            raise Violation(
                self.again_name,
                f"{name} hands over to {state.transfer.target} at tick {state.tick}, and had tried "
                f"to at {known[1]}",
                node=name,
            )

    def on_message(self, replica: Replica, message: TimeoutNow) -> None:
        """Note where the log ends when the successor is asked."""
        if replica.state.transfer is not None:
            self._asked[replica.name] = (replica.state.transfer, message.last_index)

    def on_change(self, replica: Replica, change: Change) -> None:
        """Look at the log as long as the transfer goes on. Errors: `Violation`."""
        asked = self._asked.get(replica.name)
        if asked is None:
            return
        transfer, last_index = asked
        if replica.state.transfer is not transfer:
            del self._asked[replica.name]
        elif change.now[3] > last_index:
            raise Violation(
                self.name,
                f"{replica.name} asked {transfer.target} to lead with a log up to {last_index}, "
                f"and has appended up to {change.now[3]} since",
                node=replica.name,
            )


class Invariants:
    """What one replica alone can know to be wrong, asserted by the core's own list."""

    name = "core invariant"

    def on_boot(self, replica: Replica) -> None:
        """Look at a core that has just been made."""
        self._check(replica)

    def on_change(self, replica: Replica, change: Change) -> None:
        """Look at it again."""
        del change
        self._check(replica)

    def _check(self, replica: Replica) -> None:
        try:
            invariants.check(replica.controller.node._raft)
        except AssertionError as error:
            raise Violation(self.name, f"{replica.name}: {error}", node=replica.name) from error

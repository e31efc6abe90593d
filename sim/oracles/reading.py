"""Linearizable reads, by how they were confirmed: a majority answered a round that began behind.

A read index that is right by luck is no proof: the leader may have been deposed, and nothing
committed elsewhere yet. So the messages are counted, as they left: the first heartbeat of a round
behind the question, and who answered that round or a later one. And what is told is told when the
listener of the log knows it: who asks reads its tables next.
Source: dissertation 6.4; `dledger.core.read_index`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from dledger.core.messages import NO_ROUND, Heartbeat, HeartbeatReply
from sim.oracles.base import Findings, Violation

if TYPE_CHECKING:
    import asyncio

    from dledger.core.model import LogIndex
    from dledger.core.snapshot import SnapshotMeta
    from sim.oracles.replica import Change, Replica
    from sim.oracles.truth import Truth

ROUND: Final = "A38 read without a round of its own"
EARLY: Final = "A38 read told before its entries"

Leads = tuple[str, int]
"""A leader and its term."""


class Reading:
    """Judges reads at the moment at which they are answered."""

    name = ROUND

    def __init__(self, truth: Truth, findings: Findings) -> None:
        self._truth = truth
        self._findings = findings
        self._count = 0
        """Of rounds that have begun and reads that were asked for, in their order."""
        self._begun: dict[Leads, dict[int, int]] = defaultdict(dict)
        """By leader and term: when each round left first."""
        self._answered: dict[Leads, dict[str, int]] = defaultdict(dict)
        """By leader and term: the last round that each member has answered."""

    def on_message(self, replica: Replica, message: object) -> None:
        """Take a message that leaves ``replica``."""
        if isinstance(message, Heartbeat):
            if message.round != NO_ROUND:
                rounds = self._begun[replica.name, message.term]
                if message.round not in rounds:
                    self._count += 1
                    rounds[message.round] = self._count
        elif isinstance(message, HeartbeatReply):
            answered = self._answered[message.receiver, message.term]
            answered[replica.name] = max(message.round, answered.get(replica.name, NO_ROUND))

    def on_boot(self, replica: Replica) -> None:
        """Listen to the reads of a process that has just started."""
        node = replica.node
        leadership, user = node._leadership, node._user
        begin, release = leadership.begin_read, leadership.release
        committed, install = user.on_committed, user.on_snapshot
        told = node.commit_index
        asked: list[tuple[asyncio.Future[LogIndex], int, int]] = []

        def begun() -> asyncio.Future[LogIndex]:
            future = begin()
            self._count += 1
            asked.append((future, self._count, replica.state.term))
            return future

        def released(commit_index: LogIndex) -> None:
            release(commit_index)
            ended = [one for one in asked if one[0].done()]
            asked[:] = [one for one in asked if not one[0].done()]
            for future, count, term in ended:
                if not future.cancelled() and future.exception() is None:
                    self._check(replica, (future.result(), told), count, term)

        def on_committed(commit_index: LogIndex) -> None:
            nonlocal told
            committed(commit_index)
            told = commit_index

        def on_snapshot(meta: SnapshotMeta, state: bytes) -> None:
            nonlocal told
            install(meta, state)
            told = meta.id.last_index

        leadership.begin_read = begun  # type: ignore[method-assign]  # to listen to it
        leadership.release = released  # type: ignore[method-assign]  # likewise
        user.on_committed = on_committed  # type: ignore[method-assign]  # likewise
        user.on_snapshot = on_snapshot  # type: ignore[method-assign]  # likewise

    def on_change(self, replica: Replica, change: Change) -> None:
        """Reads are judged when they are answered."""

    def _check(
        self, replica: Replica, place: tuple[LogIndex, LogIndex], count: int, term: int
    ) -> None:
        index, told = place
        if index > told:
            text = f"{replica.name} answers a read with {index}, and has told {told}"
            self._findings.report(Violation(EARLY, text, node=replica.name, index=index))
        if replica.state.membership.latest.index > replica.last_index:
            return  # a configuration acts when it is appended, and its entry is not written yet
        leads = (replica.name, term)
        behind = [number for number, at in self._begun[leads].items() if at > count]
        answered = self._answered[leads]
        voters = self._truth.voters_of(replica)
        heard = [
            voter
            for voter in voters
            if voter == replica.name or (behind and answered.get(voter, NO_ROUND) >= min(behind))
        ]
        if 2 * len(heard) <= len(voters):
            text = f"which only {heard} of {list(voters)} have confirmed since it was asked for"
            self._findings.report(
                Violation(
                    ROUND, f"{replica.name} answers a read in term {term}, {text}",
                    node=replica.name,
                )
            )  # fmt: skip

"""The planted bugs, each as small as the mistake it stands for.

Source: chaos.md 6.4. The first takes a write at the leader for a majority's, the second leaves out
the repair of Raft 5.3, the third keeps the vote in memory only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from dledger.core.log import RaftLog
from dledger.storage.state_files import HardStateFile
from store.commit_log import CommitLog
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dledger.core.model import HardState, LogIndex, Span
    from store.results import BatchCallback, PutCallback, PutMessage


def ack_before_quorum() -> None:
    """Acknowledge a message as soon as the leader has appended it."""
    put, put_batch = CommitLog.put, CommitLog.put_batch

    def acknowledge(log: CommitLog, before: int) -> None:
        for number in range(before, len(log.pending)):
            item = log.pending[number]
            _, _, queue_offset, physical_offset, _, _, done = item
            if done is not None:
                log.pending[number] = (*item[:6], None)
                done(PutStatus.OK, queue_offset, physical_offset)

    def eager_put(self: CommitLog, message: PutMessage, done: PutCallback) -> None:
        before = len(self.pending)
        put(self, message, done)
        acknowledge(self, before)

    def eager_put_batch(
        self: CommitLog, messages: Sequence[PutMessage], done: BatchCallback
    ) -> None:
        before = len(self.pending)
        put_batch(self, messages, done)
        acknowledge(self, before)

    CommitLog.put = eager_put  # type: ignore[method-assign]  # the planted bug
    CommitLog.put_batch = eager_put_batch  # type: ignore[method-assign]  # the planted bug


def no_truncate_on_conflict() -> None:
    """Keep entries that differ from the leader's, and say that they are the leader's.

    Where the kept entries end at another position than the leader's the log could not go on; there
    the mutant truncates as it should.
    """
    find_conflict = RaftLog.find_conflict

    def blind(self: RaftLog, span: Span) -> LogIndex | None:
        conflict = find_conflict(self, span)
        if conflict is None or conflict > self.last_index:
            return conflict
        if span.last_index <= self.last_index:
            return None
        behind = span.from_index(self.last_index + 1)
        return self.last_index + 1 if behind.position == self.end_position else conflict

    RaftLog.find_conflict = blind  # type: ignore[method-assign]  # the planted bug


def vote_not_persisted() -> None:
    """Write the term to disk and not the vote, so that a restart forgets it."""
    save = HardStateFile.save

    def forgetful(self: HardStateFile, state: HardState) -> None:
        save(self, msgspec.structs.replace(state, voted_for=None))

    HardStateFile.save = forgetful  # type: ignore[method-assign]  # the planted bug


MUTANTS: Final[dict[str, Callable[[], None]]] = {
    "ack-before-quorum": ack_before_quorum,
    "no-truncate-on-conflict": no_truncate_on_conflict,
    "vote-not-persisted": vote_not_persisted,
}

"""Planted bugs in replication: what a follower takes, what counts, what is committed.

Sources: Raft paper 5.3, 5.4.2 and Figure 2; the issues of PySyncObj and DLedger that are named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.core.log import RaftLog
from mutants.planting import Mutant, patch, replace

if TYPE_CHECKING:
    from dledger.core.model import LogIndex, Span

_ON_APPEND = "dledger.core.replication:on_append"


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

    replace(RaftLog, "find_conflict", blind)


REPLICATION: Final = (
    Mutant(
        name="no-truncate-on-conflict",
        breaks="Entries that differ from the leader's are kept, and said to be the leader's.",
        source="Raft Figure 2, AppendEntries 3.",
        needs="isolate leader_minority halves one_way flap bridge pause",
        plant=no_truncate_on_conflict,
    ),
    Mutant(
        name="equal-tail-deleted",
        breaks="A follower cuts behind prevLogIndex before it appends, although nothing conflicts.",
        source="Raft 5.3 (only if an existing entry conflicts); PySyncObj and raft-rs had it.",
        needs="duplicate replay drop reorder delay",
        plant=patch(
            "dledger.core.log:RaftLog.find_conflict",
            (
                "return None if span.last_index <= self.last_index else self.last_index + 1",
                "return min(span.first_index, self.last_index + 1)",
            ),
        ),
    ),
    Mutant(
        name="no-consistency-check",
        breaks="A follower takes entries behind any entry, whatever that one's term is.",
        source="Raft Figure 2, AppendEntries 2.",
        needs="isolate leader_minority halves one_way flap bridge pause",
        plant=patch(
            _ON_APPEND,
            (
                "if log.term_at(append.prev_index) != append.prev_term:",
                "if log.term_at(append.prev_index) is None:",
            ),
        ),
    ),
    Mutant(
        name="stale-acknowledgement-counted",
        breaks="An acknowledgement that the leader got in an earlier term counts in this one.",
        source="Raft 5.1; the follower may have cut since what it acknowledged then.",
        plant=patch(
            "dledger.core.raft:Raft.step",
            (
                "elif message.term < state.term:",
                "elif message.term < state.term and not isinstance(message, AppendReply):",
            ),
        ),
    ),
    Mutant(
        name="old-term-commit",
        breaks="A leader commits entries of earlier terms by counting replicas.",
        source="Raft 5.4.2 and Figure 8; PySyncObj issue 169.",
        plant=patch(
            "dledger.core.replication:maybe_commit",
            (" and log.term_at(index) == state.term", ""),
        ),
    ),
    Mutant(
        name="one-short-of-a-majority",
        breaks="An entry is committed with one replica less than a majority.",
        source="Raft 5.3; an off-by-one of the median.",
        plant=patch(
            "dledger.core.quorum:majority_index",
            ("(len(matches) - 1) // 2", "min(len(matches) - 1, (len(matches) + 1) // 2)"),
        ),
    ),
    Mutant(
        name="commit-beyond-end",
        breaks="A follower takes the leader's commit index for all it holds, matched or not.",
        source="Raft Figure 2, AppendEntries 5; DLedger issue 316.",
        needs="isolate leader_minority halves one_way flap bridge pause",
        plant=patch(
            _ON_APPEND,
            ("min(append.commit_index, match_index)", "min(append.commit_index, log.last_index)"),
        ),
    ),
    Mutant(
        name="heartbeat-commits-unmatched",
        breaks="A heartbeat carries the leader's commit index to followers that do not match yet.",
        source="Raft Figure 2, AppendEntries 5; etcd raft clamps it to the match index.",
        plant=patch(
            "dledger.core.replication:tick_leader",
            ("min(state.log.commit_index, progress.match_index)", "state.log.commit_index"),
        ),
    ),
    Mutant(
        name="commit-index-overwritten",
        breaks="A follower takes over the leader's commit index, also when that is a step back.",
        source="Raft Figure 2, commitIndex increases monotonically; PySyncObj issue 166.",
        plant=patch(
            "dledger.core.replication:advance_commit",
            ("if commit_index > state.log.commit_index:", "if True:"),
        ),
    ),
)

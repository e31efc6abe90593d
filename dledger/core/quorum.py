"""The arithmetic of majorities."""

from collections.abc import Sequence

from dledger.core.model import LogIndex


def majority(voters: int) -> int:
    """Return how many of ``voters`` make a majority.

    Source: Raft paper 5.2; DLedger MemberState.isQuorum.
    """
    assert voters > 0, voters
    return voters // 2 + 1


def majority_index(matches: Sequence[LogIndex]) -> LogIndex:
    """Return the highest index that a majority has reached, given how far each voter has.

    Whether it may be committed is another question (5.4.2), which the caller asks the log.
    Source: Raft paper 5.3; DLedger QuorumAckChecker.
    """
    assert matches, "no voters"
    return sorted(matches)[(len(matches) - 1) // 2]

"""The logs against each other: A34-A37, append only, and who held an entry when it committed.

Source: paper Figure 3 and 5.3, 5.4; spec/proof.md 3.6.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from dledger.core.model import LEADER
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from sim.oracles.replica import Change, Replica
    from sim.oracles.truth import Truth


class LogMatching:
    """A34: entries of one index and term are the same; a leader only appends (Figure 3)."""

    name = "A34 log matching"
    append_only_name = "A34 leader append-only"

    def __init__(self, truth: Truth, *, keeps_unsynced: bool) -> None:
        self._truth = truth
        self._keeps_unsynced = keeps_unsynced

    def on_boot(self, replica: Replica) -> None:
        """Compare the whole log that was found."""
        if self._keeps_unsynced or replica.is_wiped:
            for place, held in self._truth.holders.items():
                if held & replica.bit:
                    self._truth.holders[place] = held & ~replica.bit
        self._compare(replica, replica.base)

    def on_change(self, replica: Replica, change: Change) -> None:
        """Compare what is new; what was cut is held no more."""
        if change.kept_index < change.old_last:
            self._check_cut(replica, change)
            self._forget(replica, change.kept_index)
        if replica.last_index > change.kept_index:
            self._compare(replica, change.kept_index + 1)

    def _check_cut(self, replica: Replica, change: Change) -> None:
        leads = (LEADER, change.now[1])
        if change.before[:2] == leads == change.now[:2]:
            raise Violation(
                self.append_only_name,
                f"{replica.name} leads term {leads[1]} and cut its log behind {change.kept_index}",
                node=replica.name,
            )
        told = change.before[6]
        if change.kept_index < min(told, change.old_last) and replica.base <= told:
            raise Violation(
                "A35 committed then lost",
                f"{replica.name} had told that {told} is committed, and cut its log behind "
                f"{change.kept_index}",
                node=replica.name,
            )

    def _forget(self, replica: Replica, kept_index: int) -> None:
        holders = self._truth.holders
        for place, held in list(holders.items()):
            if place[0] > kept_index and held & replica.bit:
                holders[place] = held & ~replica.bit

    def _compare(self, replica: Replica, first: int) -> None:
        truth = self._truth
        for index in range(max(first, replica.base), replica.last_index + 1):
            mark = replica.marks[index - replica.base]
            place = (index, mark.term)
            known = truth.marks.get(place)
            if known is None:
                truth.learn(replica, index, mark)
                truth.holders[place] = truth.ever[place] = replica.bit
                continue
            if known != mark:
                raise Violation(
                    self.name,
                    f"index {index} of term {mark.term} is {mark} on {replica.name} "
                    f"and {known} elsewhere",
                    index=index,
                    node=replica.name,
                )
            truth.holders[place] |= replica.bit
            truth.ever[place] |= replica.bit


class Commits:
    """A35 and A37: what is committed is the same everywhere, and was committed as it may be."""

    name = "A35 state machine safety"
    old_term_name = "A37 commit of an old term"
    majority_name = "A38 committed without a majority"

    def __init__(self, truth: Truth, bits: dict[str, int], *, is_sync: bool) -> None:
        self._truth = truth
        self._bits = bits
        self._held = truth.holders if is_sync else truth.ever
        self._seen: dict[str, int] = {}

    def on_boot(self, replica: Replica) -> None:
        """A checkpoint may say what is committed; it must be true."""
        self._seen[replica.name] = replica.base - 1
        self._check(replica, min(replica.read_key()[6], replica.last_index))

    def on_change(self, replica: Replica, change: Change) -> None:
        """Compare what is newly committed here with what is committed elsewhere."""
        if change.before[:2] == change.now[:2] and change.now[0] is LEADER:
            self._check_own_term(replica, change)
        # What is told, not what the core knows: the disk may yet have what the core has cut.
        commit = min(change.now[6], replica.last_index)
        if commit > self._seen[replica.name]:
            self._check(replica, commit, change.kept_index)

    def _check_own_term(self, replica: Replica, change: Change) -> None:
        commit = change.now[2]
        if commit <= change.before[2]:
            return
        term = replica.controller.node._raft.state.log.term_at(commit)
        if term != change.now[1]:
            raise Violation(
                self.old_term_name,
                f"{replica.name} leads term {change.now[1]} and committed up to {commit}, "
                f"an entry of term {term}",
                node=replica.name,
                index=commit,
            )

    def _check(self, replica: Replica, commit: int, kept_index: int | None = None) -> None:
        truth = self._truth
        for index in range(max(self._seen[replica.name] + 1, replica.base), commit + 1):
            mark = replica.marks[index - replica.base]
            if index < len(truth.committed):
                if truth.committed[index] != mark:
                    raise Violation(
                        self.name,
                        f"index {index} is committed as {mark} on {replica.name} and as "
                        f"{truth.committed[index]} before",
                        index=index,
                        node=replica.name,
                    )
            elif index == len(truth.committed):
                self._check_majority(replica, index, kept_index)
                truth.commit(index, mark, replica.read_key()[1])
        self._seen[replica.name] = max(commit, self._seen[replica.name])

    def _check_majority(self, replica: Replica, index: int, kept_index: int | None) -> None:
        """Count who holds an entry; a change of the voters may have come behind it at once."""
        mark = replica.marks[index - replica.base]
        mask = self._held.get((index, mark.term), 0)
        voters = self._truth.voters_of(replica)
        groups = {voters: None, self._truth.voters_of(replica, kept_index): None}
        if not any(self._is_majority(mask, group) for group in groups):
            held = [name for name, bit in self._bits.items() if mask & bit]
            raise Violation(
                self.majority_name,
                f"{replica.name} calls index {index} of term {mark.term} committed, "
                f"held by {held} of voters {list(voters)}",
                node=replica.name,
                index=index,
            )

    def _is_majority(self, mask: int, voters: tuple[str, ...]) -> bool:
        count = sum(bool(mask & self._bits.get(voter, 0)) for voter in voters)
        return 2 * count > len(voters)


class LeaderCompleteness:
    """A36: a leader holds everything that was committed in earlier terms."""

    name = "A36 leader completeness"

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def on_boot(self, replica: Replica) -> None:
        """A process that has just started leads nothing."""

    def on_change(self, replica: Replica, change: Change) -> None:
        """Compare the log of a replica that has just become leader."""
        if change.now[0] is not LEADER or change.before[:2] == change.now[:2]:
            return
        truth = self._truth
        count = bisect_left(truth.commit_terms, change.now[1])
        low = replica.base
        if replica.marks[: count - low] != truth.committed[low:count]:
            index = low
            while index < count and replica.mark(index) == truth.committed[index]:
                index += 1
            raise Violation(
                self.name,
                f"{replica.name} leads term {change.now[1]} without index {index}, committed in "
                f"term {truth.commit_terms[index]}: {truth.committed[index]}; "
                f"it has {replica.mark(index)}",
                node=replica.name,
                index=index,
            )

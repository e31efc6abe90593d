"""The budget once more, when a fault is to be applied: of the logs that the replicas really have.

A replica may lose what it acknowledged only while a majority of the voters, itself and all others
that are damaged not counted, holds everything committed *and* everything that this replica may have
acknowledged to a leader that has not heard of it yet. Then no election can miss an entry: whoever
wins it was voted for by one of that majority.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.faults.target import Target


class Guard:
    """Says which replicas may be damaged now."""

    def __init__(self, target: "Target") -> None:
        self._target = target
        self.corrupt: dict[str, None] = {}
        """Replicas whose disk has corrupt bytes, as far as anybody knows."""

    def voters(self) -> tuple[str, ...]:
        """Return the voters, by the log that is known to be the longest committed."""
        watch = self._target.watch
        leader = self._target.leader()
        if leader is None:
            names = self._target.brokers()
            leader = max(names, key=lambda name: (watch.replicas[name].last_index, name))
        return tuple(watch.truth.voters_of(watch.replicas[leader]))

    def objection_to_power_loss(self, victims: Iterable[str]) -> str:
        """Return why these may not lose what is unsynced; nothing if they may."""
        replicas = self._target.watch.replicas  # a broker outside the group loses what it may
        disks = {name: self._target.disk(name) for name in victims if name in replicas}
        is_sync = self._target.plan.options.is_sync
        losing = [
            name
            for name, disk in disks.items()
            if disk.has_failed_syncs() or (not is_sync and disk.unsynced() != (0, 0))
        ]
        objections = (self._objection(losing, voters) for voters in self._groups(losing))
        return next(filter(None, objections), "") if losing else ""

    def objection_to_loss(self, victims: Iterable[str]) -> str:
        """Return why these may not lose any of their log; nothing if they may."""
        return self._objection(tuple(victims), self.voters())

    def objection_to_wipe(self, victims: Sequence[str]) -> str:
        """Return why these may not begin anew, with nothing; nothing if they may.

        A majority of empty directories is a new group, whatever the others hold: who was removed
        and began empty counts, since it knows no other group than the first.
        """
        replicas, is_recovering = self._target.watch.replicas, self._target.is_recovering
        first = self._target.watch.truth.first_voters
        empty = [
            name
            for name in first
            if name in victims or is_recovering(name) or replicas[name].is_wiped
        ]
        if 2 * len(empty) > len(first):
            return f"{len(empty)} of the first {len(first)} voters would begin with nothing"
        return self.objection_to_loss(victims)

    def _objection(self, lost: Sequence[str], voters: Sequence[str]) -> str:
        holders = [name for name in voters if name not in lost and self._holds_all(name, lost)]
        if 2 * len(holders) > len(voters):
            return ""
        return f"only {len(holders)} of {len(voters)} others hold all of it"

    def _groups(self, victims: Iterable[str]) -> Iterable[tuple[str, ...]]:
        """Return the voters by each configuration that may be in force after a loss of power.

        One that is appended and not committed may be gone with what is lost; then the one before
        counts again, and whoever lost its end goes back to the one that is synced.
        """
        watch = self._target.watch
        groups = {self.voters(): None}
        last = len(watch.truth.committed) - 1
        for name in victims:
            replica = watch.replicas[name]
            for index in (last, self._target.synced_index(name)):
                groups[watch.truth.voters_of(replica, min(index, replica.last_index))] = None
        return groups

    def objection_to(self, voters: Sequence[str]) -> str:
        """Return why these may not be the voters: not enough of them can vote; nothing if so.

        A replica that began empty does not vote before a leader lets it, and no leader comes where
        no majority votes.
        """
        able = [name for name in voters if self._is_sound(name)]
        if 2 * len(able) > len(voters):
            return ""
        return f"only {len(able)} of {len(voters)} voters could vote"

    def _is_sound(self, name: str) -> bool:
        target = self._target
        is_up = target.watch.replicas[name].is_up and target.host(name).alive
        return is_up and name not in self.corrupt and not target.is_recovering(name)

    def _holds_all(self, name: str, lost: Sequence[str]) -> bool:
        target = self._target
        replica = target.watch.replicas[name]
        if not self._is_sound(name) or target.disk(name).has_failed_syncs():
            return False
        committed = target.watch.truth.committed
        if committed and replica.mark(len(committed) - 1) != committed[-1]:
            return False
        return all(self._holds_tail_of(name, victim) for victim in lost)

    def _holds_tail_of(self, name: str, victim: str) -> bool:
        """Whether it holds what ``victim`` may have acknowledged."""
        replicas = self._target.watch.replicas
        theirs, index = replicas[victim], self._last_acknowledged(victim)
        return index < 0 or replicas[name].mark(index) == theirs.mark(index)

    def _last_acknowledged(self, victim: str) -> int:
        """Return the last entry it may have acknowledged to another; -1 if that is committed.

        A leader has made the entries of its own term itself.
        """
        replica = self._target.watch.replicas[victim]
        first = len(self._target.watch.truth.committed)
        index = replica.last_index
        if victim == self._target.leader():
            last = replica.mark(index)
            while index >= first and (mark := replica.mark(index)) is not None:
                if last is None or mark.term != last.term:
                    break
                index -= 1
        return index if index >= first else -1

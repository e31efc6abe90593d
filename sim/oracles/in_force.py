"""The members that a replica counts are those of the last configuration in its log.

Or in the snapshot that it stands on: whoever takes a snapshot takes the configuration in it, too.
Compared while nothing is on its way to the disk, since a configuration is in force from the moment
it is appended. A replica whose log has none yet counts those that it was started with.
Source: dissertation 4.1, 5.1 (the latest configuration is a part of a snapshot).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from dledger.core.model import SnapshotId
    from sim.oracles.replica import Change, Replica
    from sim.oracles.truth import Truth


class InForce:
    """A30, for who is counted."""

    name = "A30 configuration not in force"
    snapshot_name = "A30 configuration of another place"

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._seen: dict[str, SnapshotId] = {}
        """By replica: the snapshot that was judged last."""

    def on_boot(self, replica: Replica) -> None:
        """Look at what a start has found. Errors: `Violation`."""
        self._check(replica)

    def on_change(self, replica: Replica, change: Change) -> None:
        """Look at what was appended, cut or installed. Errors: `Violation`."""
        del change
        self._check(replica)

    def _check(self, replica: Replica) -> None:
        if not self._truth.configurations or replica.is_corrupt:
            return
        self._check_snapshot(replica)
        state = replica.state
        log = state.log
        if log.has_work() or replica.node._in_flight is not None:
            return
        if log.last_index != replica.store.last_index:
            return
        found = self._truth.configuration_of(replica)
        counted = tuple(sorted(state.voters))
        if found is not None and counted != found:
            raise Violation(
                self.name,
                f"{replica.name} counts {counted}, the log up to {log.last_index} says {found}",
                node=replica.name,
            )

    def _check_snapshot(self, replica: Replica) -> None:
        """Compare the configuration in a snapshot with that of its place in the log."""
        meta = replica.store.snapshots.meta
        if meta is None or meta.id == self._seen.get(replica.name):
            return
        self._seen[replica.name] = meta.id
        entry, last_index = meta.configuration, meta.id.last_index
        place, voters = self._truth.committed_configuration(last_index)
        said = tuple(sorted(entry.configuration.voters))
        if entry.index != place or (voters is not None and said != voters):
            raise Violation(
                self.snapshot_name,
                f"{replica.name} has a snapshot up to {last_index} with the voters {said} of entry "
                f"{entry.index}; there it was {voters} of entry {place}",
                node=replica.name,
            )

"""What can be looked at in a replica: its place in the group, and how far its log goes.

Nothing here changes anything. `DLedgerNode` is one; the parts are its own.
"""

from dledger.config import DLedgerConfig
from dledger.core.model import LEADER, LogIndex, NodeId, Role, Term
from dledger.core.progress import Progress
from dledger.core.raft import Raft
from dledger.core.state import RaftState
from dledger.driver import Driver
from dledger.peers.clocks import Clocks
from dledger.replica import Replica
from dledger.storage.log_store import LogStore


class ReplicaView:
    """Where a node stands; whoever inherits opens the parts."""

    config: DLedgerConfig
    clocks: Clocks
    commit_index: LogIndex
    _committed_position: int
    _raft: Raft
    _store: LogStore
    _driver: Driver
    _replica: Replica

    @property
    def self_id(self) -> NodeId:
        """This node."""
        return self.config.self_id

    @property
    def group(self) -> str:
        """Its group."""
        return self.config.group

    @property
    def role(self) -> Role:
        """What it is now."""
        return self._raft.state.role

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it knows."""
        return self._raft.state.role is LEADER

    @property
    def term(self) -> Term:
        """Its term."""
        return self._raft.state.term

    @property
    def leader_id(self) -> NodeId | None:
        """Whom it follows; itself if it leads; None if it knows of no leader."""
        return self._raft.state.leader_id

    @property
    def first_index(self) -> LogIndex:
        """First entry retained."""
        return self._store.first_index

    @property
    def end_index(self) -> LogIndex:
        """Last entry written, -1 for none."""
        return self._store.last_index

    @property
    def first_position(self) -> int:
        """Where the first entry retained lies."""
        return self._store.first_position

    @property
    def end_position(self) -> int:
        """Position behind the last entry written."""
        return self._store.end_position

    @property
    def committed_position(self) -> int:
        """Position behind the last committed entry that the listener was told of."""
        return self._committed_position

    def status(self) -> dict[str, object]:
        """Return what an administrator asks, in JSON types.

        A leader also tells what it knows of each follower.
        """
        state = self._raft.state
        transfer = state.transfer
        return {
            "node": self.self_id,
            "group": self.group,
            "role": state.role.value,
            "term": state.term,
            "leader": state.leader_id,
            "commit": self.commit_index,
            "first_index": self.first_index,
            "snapshot": self._describe_snapshot(),
            "last_index": state.log.last_index,
            "last_term": state.log.last_term,
            "voted_for": state.voted_for,
            "synced_index": self._driver.synced_index,
            "blocked": state.blocked,
            "damaged": len(self._store.corruption.damaged),
            "store_id": self._replica.identity.store_id,
            **describe_membership(state),
            "preferred_leader": state.config.preferred_leader,
            "clocks_ahead_ms": self.clocks.ahead(),
            "transfer": None if transfer is None else transfer.target,
            "election_timeout_ms": self.config.election_ticks_min * self.config.tick_ms,
            "leader_contact_ms": None if self.is_leader else self._since(state.contact_tick),
            "match": {peer: p.match_index for peer, p in state.progress.items()},
            "followers": {
                peer: self._describe_follower(progress) for peer, progress in state.progress.items()
            },
        }

    def is_shut_out(self, node_id: NodeId) -> bool:
        """Tell whether a server was removed from the group, see `Membership.is_shut_out`."""
        state = self._raft.state
        return state.membership.is_shut_out(node_id, state.log.commit_index)

    def _describe_snapshot(self) -> dict[str, object] | None:
        meta = self._store.snapshots.meta
        if meta is None:
            return None
        return {
            "last_index": meta.id.last_index,
            "last_term": meta.id.last_term,
            "state_index": meta.state_index,
            "position": meta.position,
            "bytes": meta.id.size,
        }

    def _describe_follower(self, progress: Progress) -> dict[str, object]:
        """Return how far a follower is, and how long it has said nothing (milliseconds)."""
        contact_ms = self._since(progress.contact_tick)
        silence_ms = self.config.election_ticks_min * self.config.tick_ms
        return {
            "match": progress.match_index,
            "next": progress.next_index,
            "state": progress.pace.value.lower(),
            "inflight_bytes": progress.inflight_bytes,
            "contact_ms": contact_ms,
            "alive": contact_ms is not None and contact_ms < silence_ms,
        }

    def _since(self, tick: int) -> int | None:
        """Return how many milliseconds ago ``tick`` was; None for never."""
        return None if tick < 0 else (self._raft.state.tick - tick) * self.config.tick_ms


def describe_membership(state: RaftState) -> dict[str, object]:
    """Return who belongs to the group, as far as this replica's log says.

    ``fresh``: this replica lost its directory, or is new, and may not vote yet; ``rejoining`` are
    those of whom a leader knows that.
    """
    latest = state.membership.latest
    configuration = latest.configuration
    return {
        "voters": list(configuration.voters),
        "learners": list(configuration.learners),
        "removed": list(configuration.former),
        "addresses": configuration.members,
        "membership_index": latest.index,
        "membership_version": configuration.version,
        "membership_committed": latest.index <= state.log.commit_index,
        "fresh": state.fresh,
        "rejoining": list(state.rejoining),
    }

"""What can be looked at in a replica: its place in the group, and the entries it holds.

Nothing here changes anything. `DLedgerNode` is one; the parts are its own.
"""

from collections.abc import Iterator

from dledger.clocks import Clocks
from dledger.config import ENTRY_HEADER_BYTES, DLedgerConfig
from dledger.core.model import LEADER, LogIndex, NodeId, Role, Term
from dledger.core.progress import Progress
from dledger.core.raft import Raft
from dledger.core.snapshot import SnapshotMeta
from dledger.core.state import RaftState
from dledger.driver import Driver
from dledger.replica import Replica
from dledger.storage.log_store import LogStore
from dledger.storage.recent import HintedSpan
from dledger.storage.walk import Body, walk_bodies


class ReplicaView:
    """The readable side of a node; whoever inherits opens the parts."""

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

    def entry(self, index: LogIndex) -> tuple[int, int, Term]:
        """Return position (of the header), size (with header) and term of an entry."""
        return self._store.entry(index)

    def position_after(self, index: LogIndex) -> int:
        """Return where an entry ends; before the first one, where that starts."""
        return self._store.position_after(index)

    def term_at(self, index: LogIndex) -> Term:
        """Return the term of an entry."""
        return self._store.entry(index)[2]

    def bodies(self, first: LogIndex, last: LogIndex) -> Iterator[Body]:
        """Walk the bodies of entries ``first..last``.

        Errors: `DamagedEntry` for a damaged one, when it is its turn.
        """
        return walk_bodies(self._store, first, last)

    def maybe_hinted(self, index: LogIndex) -> HintedSpan | None:
        """Return the first hint kept about ``index`` or what follows it."""
        return self._store.recent.maybe_hinted(index)

    def release(self, index: LogIndex) -> None:
        """Let go of what is kept in memory of entries before ``index``: nobody will ask again."""
        self._store.recent.forget_below(index)

    def body_view(self, index: LogIndex) -> memoryview:
        """Return the body of an entry, checked and not copied. Errors: `DamagedEntry`."""
        return self._store.body_view(index)

    def last_body(self) -> memoryview | None:
        """Return the body of the last entry, None for an empty log. Errors: `DamagedEntry`."""
        end = self.end_index
        return self._store.body_view(end) if end >= self.first_index else None

    def body_at(self, physical_offset: int, size: int) -> memoryview:
        """Return the body that lies there, checked and not copied.

        Errors: `DamagedEntry`; `LookupError` when no entry has its body there.
        """
        return self._store.body_at(physical_offset, size)

    def read_ahead(self, physical_offset: int, size: int) -> None:
        """Ask for bytes that will be read soon, without waiting; those of one segment."""
        self._store.read_ahead(physical_offset, size)

    def find(self, physical_offset: int) -> LogIndex | None:
        """Return the index of the entry whose body begins there, None if there is none."""
        return self._store.find(physical_offset - ENTRY_HEADER_BYTES)

    def describe(self, physical_offset: int) -> str:
        """Return in words the file that holds a place of the log, and where in it that is."""
        return self._store.corruption.describe(physical_offset)

    def view(self, physical_offset: int, size: int) -> memoryview:
        """Return bytes of the log within one segment, neither checked nor copied."""
        return self._store.view(physical_offset, size)

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

    @property
    def snapshot_meta(self) -> SnapshotMeta | None:
        """What stands for the entries that are in the log no more."""
        return self._store.snapshots.meta

    def snapshot_state(self) -> bytes:
        """Return the state in that snapshot. Errors: `FatalError`: it is damaged."""
        return self._store.snapshots.state()

    def _describe_snapshot(self) -> dict[str, object] | None:
        meta = self.snapshot_meta
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

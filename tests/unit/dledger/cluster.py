"""A cluster of pure cores with the real driver, over memory: a network in a list, disks in lists.

Every input is followed by the driver's work and by all checks: the invariants of each replica, and
the five properties of the Raft paper's Figure 3 over all of them.
"""

import random
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from dledger.codec.configuration import (
    encode_configuration,
    encode_configuration_span,
    read_configuration,
)
from dledger.codec.entry import decode_header, encode_span
from dledger.codec.snapshot import decode_snapshot, encode_snapshot
from dledger.config import FlushDiskType
from dledger.core import invariants, membership
from dledger.core.configuration import KEPT_MAX, Change, ChangeKind, ConfigEntry
from dledger.core.log import RaftLog
from dledger.core.messages import Message
from dledger.core.model import HardState, Role, SnapshotId, Span
from dledger.core.raft import Raft
from dledger.core.snapshot import SnapshotMeta, StageWork
from dledger.core.state import RaftConfig
from dledger.driver import Driver
from dledger.errors import DiskFull, MembershipRefused
from dledger.storage.log_store import DirtyFiles
from dledger.storage.snapshot_files import Staged

Entry = tuple[int, bytes]
"""Term and body."""


def entries_of(span: Span) -> list[Entry]:
    found, offset = [], 0
    while offset < len(span.data):
        header = decode_header(span.data, offset)
        body = bytes(span.data[offset + 48 : offset + header.size])
        found.append((header.term, body))
        offset += header.size
    return found


def is_configuration(body: bytes) -> bool:
    return body.startswith(b'{"voters"')


class MemoryStore:
    """What `LogStore` is to core and driver, with a page cache that a power cut empties."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self.first_index = 0
        self.base_term = 0
        self.snapshot: SnapshotId | None = None
        self.snapshot_data = b""
        self.configuration: ConfigEntry | None = None
        self.part = b""
        self.entries = list(entries)
        self.durable = list(entries)
        self.syncing: list[Entry] = []
        self.dirty = False
        self.is_full = False

    @property
    def last_index(self) -> int:
        return len(self.entries) - 1

    def position_after(self, index: int) -> int:
        return sum(48 + len(body) for _, body in self.entries[: index + 1])

    # Of what is trimmed `entries` keeps a copy, for the properties; the core cannot read it. The
    # state in a snapshot is what was applied: the entries themselves.

    def trim(self, first_index: int, configuration: ConfigEntry) -> None:
        base = first_index - 1
        term = self.entries[base][0]
        state = msgspec.msgpack.encode(self.entries[:first_index])
        last = (base, term, self.position_after(base))
        self._begin(encode_snapshot(last, base, configuration, state))
        for entries in (self.durable, self.syncing):
            entries[:first_index] = self.entries[:first_index]

    def _begin(self, data: bytes) -> SnapshotMeta:
        meta, _ = decode_snapshot(data)
        self.snapshot, self.snapshot_data = meta.id, data
        self.first_index, self.base_term = meta.id.last_index + 1, meta.id.last_term
        self.configuration = meta.configuration
        return meta

    def read_snapshot(self, offset: int, size: int) -> bytes:
        return self.snapshot_data[offset : offset + size]

    def stage(self, work: StageWork) -> Staged:
        if work.offset == 0:
            self.part = b""
        assert len(self.part) == work.offset
        self.part += bytes(work.data)
        if not work.install:
            return Staged(kept=True, installed=None)
        try:
            meta, state = decode_snapshot(self.part)
        except ValueError:
            return Staged(kept=False, installed=None)
        if meta.id != work.id:
            return Staged(kept=False, installed=None)
        self._begin(self.part)
        self.entries = msgspec.msgpack.decode(state, type=list[tuple[int, bytes]])
        self.durable, self.syncing = list(self.entries), list(self.entries)
        return Staged(kept=True, installed=meta)

    def restart(self, meta: SnapshotMeta) -> None:
        assert meta.id == self.snapshot
        assert meta.id.last_index == self.last_index

    def term_runs(self) -> list[tuple[int, int]]:
        runs: list[tuple[int, int]] = []
        for index, (term, _) in enumerate(self.entries):
            if index < self.first_index:
                continue
            if not runs or runs[-1][1] != term:
                runs.append((index, term))
        return runs

    def read(self, first_index: int, last_index: int, bytes_max: int) -> Span:
        assert first_index >= self.first_index, "reads what is trimmed"
        term = self.entries[first_index][0]
        bodies, size = [], 0
        for found_term, body in self.entries[first_index : last_index + 1]:
            size += 48 + len(body)
            if found_term != term or (bodies and size > bytes_max):
                break
            bodies.append(body)
        span = encode_span(first_index, term, self.position_after(first_index - 1), bodies)
        configs = [
            (index, read_configuration(body))
            for index, body in enumerate(bodies, first_index)
            if is_configuration(body)
        ]
        return replace(span, configs=tuple(configs)) if configs else span

    def append(self, spans: Sequence[Span]) -> None:
        if self.is_full:
            raise DiskFull
        for span in spans:
            assert span.first_index == len(self.entries)
            assert span.position == self.position_after(self.last_index)
            self.entries += entries_of(span)
        self.dirty = True

    def truncate(self, index: int) -> None:
        assert self.first_index <= index <= self.last_index
        for entries in (self.entries, self.durable, self.syncing):
            del entries[index:]

    def on_synced(self, index: int) -> None:
        """`sync` saw to it."""

    def take_dirty(self) -> DirtyFiles | None:
        if not self.dirty:
            return None
        self.dirty = False
        self.syncing = list(self.entries)
        return DirtyFiles({}, {}, self.last_index)

    def sync(self, dirty: DirtyFiles) -> None:
        self.durable = list(self.syncing)


class MemoryStateFile:
    """What `HardStateFile` is to the driver."""

    def __init__(self, state: HardState) -> None:
        self.saved = state

    def save(self, state: HardState) -> None:
        self.saved = state


class MemoryMembershipFile:
    """What `MembershipFile` is to the driver; `load` looks into the log as that does."""

    def __init__(self) -> None:
        self.saved: tuple[ConfigEntry, ...] = ()

    def save(self, entries: tuple[ConfigEntry, ...]) -> None:
        self.saved = entries

    def load(self, store: MemoryStore) -> tuple[ConfigEntry, ...]:
        found = tuple(
            entry
            for entry in self.saved
            if entry.index >= store.first_index
            and store.entries[entry.index : entry.index + 1]
            == [(entry.term, encode_configuration(entry.configuration))]
        )
        base = store.configuration
        return found if base is None or base.index < 0 else (base, *found)


class Replica:
    """One replica; ``raft`` is None while it is down."""

    def __init__(self, cluster: "Cluster", node_id: str) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.store = MemoryStore()
        self.state_file = MemoryStateFile(HardState(fresh=cluster.is_new))
        self.membership_file = MemoryMembershipFile()
        self.generation = 0
        self.raft: Raft | None = None
        self.driver: Driver | None = None
        self.events: list = []
        self.applied = -1
        self.commit_floor = -1

    def start(self) -> None:
        cluster = self.cluster
        self.commit_floor = max(self.commit_floor, self.store.first_index - 1)
        self.raft = Raft(
            RaftConfig(
                self_id=self.node_id,
                voters=cluster.first_voters,
                configurations=self.membership_file.load(self.store),
                generation=self.generation,
                **cluster.settings,
            ),
            log=RaftLog(self.store, self.commit_floor),
            hard_state=self.state_file.saved,
            rng=cluster.rng,
            make_noop=lambda index, term, position: encode_span(index, term, position, (b"noop",)),
        )
        self.applied = self.commit_floor
        self.driver = Driver(
            self.raft,
            self.store,
            self.state_file,
            flush_disk_type=cluster.flush_disk_type,
            membership_file=self.membership_file,
            send=cluster.send,
        )

    def work_off(self) -> None:
        raft, driver = self.raft, self.driver
        for _ in range(100):
            is_due = raft.is_due()
            commit_index = raft.take_commit()
            if commit_index is not None:
                self.cluster.apply(self, commit_index)
                continue
            ready = raft.ready()
            if ready is None:
                return
            assert is_due, "nobody would have asked for it"
            self.events += ready.events
            if driver.begin(ready):
                driver.persist_state(ready)
            if driver.complete(ready) and ready.committed is not None:
                self.cluster.apply(self, ready.committed)
            if driver.installed is not None:
                last_index = driver.installed.id.last_index
                prefix = self.store.entries[: last_index + 1]
                assert self.cluster.committed[: last_index + 1] == prefix, "State Machine Safety"
                self.cluster.apply(self, last_index)
                driver.installed = None
        raise AssertionError("the core never comes to rest")


class Cluster:
    """Replicas ``n0 n1 ...``, and what is under way between them."""

    def __init__(
        self,
        size: int,
        *,
        seed: int = 0,
        flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH,
        logs: Sequence[Sequence[int]] = (),
        is_new: bool = False,
        **settings: int,
    ) -> None:
        self.ids = tuple(f"n{number}" for number in range(size))
        self.first_voters = self.ids
        self.is_new = is_new
        self.rng = random.Random(seed)
        self.flush_disk_type = flush_disk_type
        self.settings = settings
        self.network: list[Message] = []
        self.cut: set[tuple[str, str]] = set()
        self.leaders: dict[int, str] = {}
        self.leader_logs: dict[tuple[str, int], list[Entry]] = {}
        self.committed: list[Entry] = []
        self.commit_terms: list[int] = []
        self.proposed = 0
        self.replicas = {node_id: Replica(self, node_id) for node_id in self.ids}
        for replica, terms in zip(self.replicas.values(), logs, strict=False):
            replica.store = MemoryStore([(term, b"%d" % term) for term in terms])
            replica.state_file.saved = HardState(max(terms, default=0))
        for replica in self.replicas.values():
            replica.start()

    def __getitem__(self, node_id: str) -> Raft:
        raft = self.replicas[node_id].raft
        assert raft is not None, f"{node_id} is down"
        return raft

    def log(self, node_id: str) -> list[Entry]:
        return self.replicas[node_id].store.entries

    def terms(self, node_id: str) -> list[int]:
        return [term for term, _ in self.log(node_id)]

    @property
    def up(self) -> list[str]:
        return [node_id for node_id in self.ids if self.replicas[node_id].raft is not None]

    def leader(self) -> str:
        """The leader of the highest term."""
        found = [i for i in self.up if self[i].state.role is Role.LEADER]
        return max(found, key=lambda i: self[i].state.term)

    # Inputs

    def do(self, node_id: str, action: Callable[[Raft], None]) -> None:
        replica = self.replicas[node_id]
        if replica.raft is not None:
            action(replica.raft)
            replica.work_off()
            self.check()

    def trim(self, node_id: str, first_index: int) -> None:
        """Drop what lies before an entry that is committed."""
        store, raft = self.replicas[node_id].store, self[node_id]
        assert first_index - 1 <= raft.state.delivered_index
        if first_index > store.first_index:
            store.trim(first_index, raft.state.membership.at(first_index - 1))

    def tick(self, node_id: str, ticks: int = 1) -> None:
        for _ in range(ticks):
            self.do(node_id, Raft.tick)

    def tick_all(self, ticks: int = 1) -> None:
        for _ in range(ticks):
            for node_id in self.ids:
                self.tick(node_id)

    def campaign(self, node_id: str) -> None:
        self.do(node_id, Raft.campaign)

    def propose(self, node_id: str, *bodies: bytes) -> bool:
        state = self[node_id].state
        if state.role is not Role.LEADER:
            return False
        if not bodies:
            self.proposed += 1
            bodies = (b"p%d" % self.proposed,)
        log = state.log
        span = encode_span(log.last_index + 1, state.term, log.end_position, bodies)
        self.do(node_id, lambda raft: raft.propose(span))
        return True

    def change(self, node_id: str, kind: ChangeKind, target: str) -> str | None:
        """Have a replica change the group; return why it refused."""
        raft = self[node_id]
        try:
            found = membership.plan(raft.state, Change(kind, target, f"{target}:1"))
        except MembershipRefused as error:
            return str(error)
        log = raft.state.log
        span = encode_configuration_span(
            log.last_index + 1, raft.state.term, log.end_position, encode_configuration(found),
            found,
        )  # fmt: skip
        self.do(node_id, lambda raft: raft.propose(span))
        return None

    def join(self, node_id: str) -> None:
        """Start one more replica, which is no member yet."""
        self.ids = (*self.ids, node_id)
        replica = self.replicas[node_id] = Replica(self, node_id)
        replica.state_file.saved = HardState(fresh=True)
        replica.start()

    def wipe(self, node_id: str) -> None:
        """Stop a replica and empty its directory; its connections are gone, too."""
        self.crash(node_id)
        replica = self.replicas[node_id]
        replica.store = MemoryStore()
        replica.state_file.saved = HardState(fresh=True)
        replica.membership_file.saved = ()
        replica.generation += 1
        replica.commit_floor = -1
        self.network = [message for message in self.network if message.receiver != node_id]

    def kept(self, replica: Replica) -> list[Entry]:
        """What a replica holds whatever happens to it here: only SYNC_FLUSH loses power."""
        is_sync = self.flush_disk_type is FlushDiskType.SYNC_FLUSH
        return replica.store.durable if is_sync else replica.store.entries

    def may_wipe(self, node_id: str) -> bool:
        """Tell whether the rule for lost directories covers one more.

        It does when every other server that is a voter for anybody has entries, and a past.
        """
        voters: set[str] = set()
        for replica in self.replicas.values():
            voters |= set(self.first_voters)
            for entry in replica.membership_file.saved:
                voters |= set(entry.configuration.voters)
        others = [self.replicas[voter] for voter in voters if voter != node_id]
        return all(self.kept(one) and not one.state_file.saved.fresh for one in others)

    def send(self, message: Message) -> None:
        if (message.sender, message.receiver) not in self.cut:
            self.network.append(message)

    def deliver(self, number: int = 0) -> Message:
        message = self.network.pop(number)
        self.do(message.receiver, lambda raft: raft.step(message))
        return message

    def step(self, message: Message) -> None:
        self.do(message.receiver, lambda raft: raft.step(message))

    def stabilize(self, *, limit: int = 2000) -> None:
        """Deliver until nothing is under way."""
        for _ in range(limit):
            if not self.network:
                return
            self.deliver()
        raise AssertionError("messages never end")

    def elect(self, node_id: str) -> None:
        """Make a node leader in a quiet network."""
        self.forget_leader()
        self.campaign(node_id)
        self.stabilize()
        assert self[node_id].state.role is Role.LEADER, self[node_id].state.role

    def forget_leader(self) -> None:
        """Let so much time pass that nobody holds on to a leader (but none campaigns)."""
        for node_id in self.up:
            self[node_id].state.contact_tick = -1 << 40

    def begin_sync(self, node_id: str) -> object:
        return self.replicas[node_id].driver.begin_sync()

    def sync(self, node_id: str) -> None:
        replica = self.replicas[node_id]
        if replica.raft is None:
            return
        sync = replica.driver.begin_sync()
        if sync is not None:
            replica.store.sync(sync.dirty)
            replica.driver.end_sync(sync)
            replica.work_off()
            self.check()

    def sync_all(self) -> None:
        for node_id in self.ids:
            self.sync(node_id)

    def crash(self, node_id: str, *, power: bool = False) -> None:
        """Stop a replica; with the power, also lose what was not synced."""
        replica = self.replicas[node_id]
        replica.raft = replica.driver = None
        if power:
            replica.store.entries = list(replica.store.durable)
            replica.store.dirty = False
            replica.commit_floor = min(replica.commit_floor, replica.store.last_index)

    def restart(self, node_id: str) -> None:
        replica = self.replicas[node_id]
        if replica.raft is None:
            replica.start()
            self.check()

    def isolate(self, node_id: str) -> None:
        for other in self.ids:
            self.cut |= {(node_id, other), (other, node_id)}

    def heal(self) -> None:
        self.cut.clear()

    # The properties of Figure 3

    def apply(self, replica: Replica, index: int) -> None:
        """State Machine Safety: no two replicas apply different entries at one index."""
        term = replica.raft.state.term
        for applied in range(replica.applied + 1, index + 1):
            entry = replica.store.entries[applied]
            if applied < len(self.committed):
                assert self.committed[applied] == entry, "State Machine Safety"
            else:
                assert applied == len(self.committed)
                self.committed.append(entry)
                self.commit_terms.append(term)
        replica.applied = max(replica.applied, index)
        replica.commit_floor = min(index, len(replica.store.durable) - 1)

    def check(self) -> None:
        for node_id in self.up:
            raft = self[node_id]
            invariants.check(raft)
            self._check_configurations(node_id)
            state = raft.state
            if state.role is not Role.LEADER:
                continue
            known = self.leaders.setdefault(state.term, node_id)
            assert known == node_id, f"Election Safety: {known}, {node_id} in {state.term}"
            log = self.log(node_id)
            before = self.leader_logs.get((node_id, state.term), [])
            assert log[: len(before)] == before, "Leader Append-Only"
            if len(log) != len(before):
                self.leader_logs[node_id, state.term] = list(log)
            self._check_completeness(state.term, log)
        self._check_matching()

    def _check_configurations(self, node_id: str) -> None:
        """What is in force is in the log, and nothing else is: see `Membership`."""
        log = self.log(node_id)
        found = [
            ConfigEntry(index, term, read_configuration(body))
            for index, (term, body) in enumerate(log)
            if is_configuration(body)
        ]
        known = list(self[node_id].state.membership.entries)
        assert known == found[len(found) - len(known) :], "Configurations of the log"
        assert len(known) == len(found) or len(known) >= KEPT_MAX - 1, "Configurations of the log"

    def _check_completeness(self, term: int, log: list[Entry]) -> None:
        for index, entry in enumerate(self.committed):
            if self.commit_terms[index] < term:
                assert log[index : index + 1] == [entry], "Leader Completeness"

    def _check_matching(self) -> None:
        logs = [self.log(node_id) for node_id in self.up]
        for number, one in enumerate(logs):
            for other in logs[:number]:
                for index in range(min(len(one), len(other)) - 1, -1, -1):
                    if one[index][0] == other[index][0]:
                        assert one[: index + 1] == other[: index + 1], "Log Matching"
                        break

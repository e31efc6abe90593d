"""Snapshots of the log: the rules in the core, the files, and a crash at every step on the way."""

import random
import shutil

import pytest

from dledger.codec.entry import encode_span
from dledger.codec.peer import PeerCodec
from dledger.codec.properties import Checkpoint
from dledger.codec.snapshot import decode_snapshot, encode_snapshot
from dledger.config import FlushDiskType
from dledger.core.configuration import ConfigEntry, Configuration
from dledger.core.log import RaftLog
from dledger.core.messages import (
    Append,
    AppendReply,
    HeartbeatReply,
    InstallSnapshot,
    PreVoteReply,
    PreVoteRequest,
    SnapshotReply,
)
from dledger.core.model import HardState, SnapshotId
from dledger.core.raft import Raft
from dledger.core.snapshot import StageWork
from dledger.core.state import RaftConfig
from dledger.driver import Driver
from dledger.errors import CorruptEntry, DamagedEntry
from dledger.storage.files import open_segments
from dledger.storage.recovery import open_log_store
from dledger.storage.snapshot_files import SnapshotFiles
from ledgermq.remoting.protocol.frame import FrameDecoder
from ledgermq.runtime.disk import NO_SPACE, RealDisk
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.dledger.cluster import Cluster, MemoryStateFile, MemoryStore
from tests.unit.dledger.trouble import TRIMMING, run_trouble

GROUP = ConfigEntry(7, 2, Configuration({"n0": "h:1", "n1": "h:2"}, {"n2": "h:3"}, 4))
SEGMENT = 4096
WRONG = "CRC|bytes|magic"
INDEX_SEGMENT = 32 * 10


def snapshot(last_index=30, term=2, position=SEGMENT * 3, state=b"state" * 100):
    return encode_snapshot((last_index, term, position), last_index + 2, GROUP, state)


# The format


def test_snapshot_reads_back_and_damage_shows():
    data = snapshot()
    meta, state = decode_snapshot(data)
    assert (meta.id.last_index, meta.id.last_term, meta.id.size) == (30, 2, len(data))
    assert (meta.position, meta.state_index, meta.configuration) == (SEGMENT * 3, 32, GROUP)
    assert state == b"state" * 100
    for at in range(len(data)):
        with pytest.raises(ValueError, match=WRONG):
            decode_snapshot(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :])
    for size in (0, 55, 60, len(data) - 1):
        with pytest.raises(ValueError, match=WRONG):
            decode_snapshot(data[:size])
    with pytest.raises(AssertionError, match="does not cover"):
        encode_snapshot((30, 2, 0), 29, GROUP, b"")


def test_messages_survive_the_wire_and_damage_shows():
    one, other = PeerCodec("g", "n0", ("n1",)), PeerCodec("g", "n1", ("n0",))
    name = SnapshotId(30, 2, 1000, 0xFFFFFFFF)
    for message in (
        InstallSnapshot("n0", "n1", 3, name, 600, b"x" * 400),
        InstallSnapshot("n0", "n1", 3, name, 0, b""),
        SnapshotReply("n0", "n1", 3, name, 1000),
    ):
        data = b"".join(one.encode(message))
        (frame,) = FrameDecoder().feed(data)
        found = other.decode(frame)
        assert found == message or bytes(found.data) == message.data
        for at in (60, 80, len(data) - 1):
            (frame,) = FrameDecoder().feed(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :])
            with pytest.raises(CorruptEntry):
                other.decode(frame)
    (frame,) = FrameDecoder().feed(
        b"".join(one.encode(InstallSnapshot("n0", "n1", 3, name, 601, b"x" * 400)))
    )
    with pytest.raises(CorruptEntry, match="601"):
        other.decode(frame)


# The rules


@pytest.fixture
def late():
    """A leader n0 that has trimmed, and n2, which comes too late."""
    cluster = Cluster(3, snapshot_chunk_bytes=50)
    cluster.elect("n0")
    cluster.isolate("n2")
    for _ in range(5):
        cluster.propose("n0")
    cluster.stabilize()
    cluster.trim("n0", 5)
    cluster.network.clear()
    cluster.heal()
    return cluster


def offer(cluster, **other):
    """The first chunk of the leader's snapshot, or something like it, to n2."""
    store = cluster.replicas["n0"].store
    fields = {
        "sender": "n0", "receiver": "n2", "term": 1, "id": store.snapshot, "offset": 0,
        "data": store.snapshot_data, **other,
    }  # fmt: skip
    return InstallSnapshot(**fields)


def snapshot_events(cluster, node_id):
    return [e.extra for e in cluster.replicas[node_id].events if e.kind.value == "snapshot"]


def test_late_replica_is_brought_up(late):
    late.tick("n0", 8)
    late.stabilize()
    assert late.log("n2") == late.log("n0")
    assert late.replicas["n2"].store.first_index == 5
    assert snapshot_events(late, "n2") == ["snapshot=receiving", "snapshot=installed"]


def test_one_chunk_is_under_way_and_heartbeats_go_on(late):
    late.tick("n0", 8)
    most = 0
    for _ in range(400):
        chunks = [m for m in late.network if isinstance(m, InstallSnapshot) and m.data]
        most = max(most, len(chunks))
        assert all(len(m.data) <= 50 for m in chunks)
        if not late.network:
            break
        late.deliver()
    assert most == 1
    assert late.log("n2") == late.log("n0")


def test_heartbeats_keep_a_follower_quiet_while_chunks_wait(late):
    late.tick("n0", 8)
    while not any(isinstance(m, InstallSnapshot) for m in late.network):
        late.deliver()
    late.network = [m for m in late.network if not isinstance(m, InstallSnapshot)]
    late.tick("n0", 7)
    late.stabilize()
    assert late["n0"].state.progress["n2"].pace.value == "SNAPSHOT"
    assert late["n2"].state.leader_id == "n0"


def test_transfer_goes_on_under_another_leader_with_the_same_snapshot(late):
    late.tick("n0", 8)
    while not any(isinstance(m, InstallSnapshot) and m.offset == 50 for m in late.network):
        late.deliver()
    late.network.clear()
    one, other = late.replicas["n0"].store, late.replicas["n1"].store
    late.tick("n0", 4)
    late.network = [m for m in late.network if m.receiver == "n1"]
    late.stabilize()
    late.trim("n1", 5)
    assert other.snapshot == one.snapshot
    late.isolate("n0")
    late.forget_leader()
    late.campaign("n1")
    offsets = []
    while late.network:
        message = late.deliver()
        if isinstance(message, InstallSnapshot):
            offsets.append(message.offset)
    assert offsets[:2] == [0, 50], "asked once, then went on"
    assert late.log("n2") == late.log("n1")


def test_snapshot_of_an_older_term_is_refused(late):
    late.forget_leader()
    late.do("n2", lambda raft: raft.state.become_follower(9, None))
    late.step(offer(late))
    assert late.log("n2") == late.log("n0")[:1]
    assert late.network[-1] == HeartbeatReply("n2", "n0", 9, 0)


def test_stale_snapshot_is_answered_with_what_is_committed(late):
    late.tick("n0", 8)
    late.stabilize()
    late.propose("n0")
    late.stabilize()
    late.step(offer(late))
    assert late.network.pop().match_index >= 5
    assert len(snapshot_events(late, "n2")) == 2
    assert late.log("n2") == late.log("n0")


@pytest.mark.parametrize("term", [0, 2])
def test_snapshot_with_an_impossible_last_term_is_refused(late, term):
    wrong = SnapshotId(4, term, 100, 0)
    late.step(offer(late, id=wrong, data=b"x" * 50))
    assert snapshot_events(late, "n2") == ["snapshot=refused"]
    assert late["n2"].state.staging is None


def test_damaged_snapshot_is_dropped_and_sent_again(late):
    store = late.replicas["n0"].store
    damaged = bytearray(store.snapshot_data)
    damaged[60] ^= 1
    late.step(offer(late, data=bytes(damaged)))
    assert snapshot_events(late, "n2")[-1] == "snapshot=failed"
    assert late.log("n2") == late.log("n0")[:1]
    late.tick("n0", 16)
    late.stabilize()
    assert late.log("n2") == late.log("n0")


def test_snapshot_whose_last_entry_is_there_is_not_taken(late):
    late.replicas["n2"].store = MemoryStore(late.log("n1"))
    late.crash("n2")
    late.restart("n2")
    late.step(offer(late))
    assert snapshot_events(late, "n2") == []
    assert late["n2"].state.log.commit_index == 4


def test_entries_wait_while_the_last_chunk_is_installed(late):
    raft = late["n2"]
    raft.step(offer(late))
    ready = raft.ready()
    assert ready.snapshot.install
    log = late.replicas["n0"].store
    span = log.read(5, 5, 1000)
    before = raft.state.log.last_index
    raft.step(offer(late))  # again: one is under way
    raft.step(Append("n0", "n2", 1, 0, 1, 0, None))
    raft.step(Append("n0", "n2", 1, 4, 1, 5, span))
    assert raft.state.log.last_index == before
    assert raft.state.ack_index is None


def test_random_trouble_with_trimming():
    kinds = set()
    for seed in range(40):
        cluster = run_trouble(seed, 500, TRIMMING, snapshot_chunk_bytes=64)
        for replica in cluster.replicas.values():
            kinds |= {e.extra for e in replica.events if e.kind.value == "snapshot"}
    assert "snapshot=installed" in kinds


def find_trouble(seeds=range(60)):
    for seed in seeds:
        try:
            run_trouble(seed, 600, TRIMMING, snapshot_chunk_bytes=64)
        except (AssertionError, ValueError, IndexError) as error:
            return seed, str(error)
    return None


def wrong_term(store, first_index, configuration, real=MemoryStore.trim):
    real(store, first_index, configuration)
    if store.snapshot.last_term > 1:
        meta, state = decode_snapshot(store.snapshot_data)
        last = (meta.id.last_index, meta.id.last_term - 1, meta.position)
        store._begin(encode_snapshot(last, meta.state_index, configuration, state))


def test_planted_snapshot_with_wrong_last_term_is_caught(monkeypatch):
    monkeypatch.setattr(MemoryStore, "trim", wrong_term)
    found = find_trouble()
    assert found is not None
    monkeypatch.undo()
    run_trouble(found[0], 600, TRIMMING, snapshot_chunk_bytes=64)


# On disk: a crash at every step


class Crash(BaseException):
    """The process ended."""


class CrashingDisk(RealDisk):
    """Counts what changes the disk, and ends the process before step ``at``."""

    __slots__ = ("at", "steps")

    def __init__(self, at=None):
        super().__init__()
        self.at = at
        self.steps = 0

    def step(self):
        if self.steps == self.at:
            raise Crash
        self.steps += 1

    def open(self, path, *, size):
        if self.size(path) is None:
            self.step()
        return CrashingFile(self, super().open(path, size=size))

    def replace(self, path, data):
        self.step()
        super().replace(path, data)
        self.step()

    def remove(self, path):
        if self.size(path) is not None:
            self.step()
        super().remove(path)


class CrashingFile:
    def __init__(self, disk, file):
        self.disk = disk
        self.file = file

    def pwrite(self, offset, buffers):
        self.disk.step()
        data = b"".join(buffers)
        self.file.pwrite(offset, (data[: len(data) // 2],))
        self.disk.step()
        self.file.pwrite(offset, (data,))

    def __getattr__(self, name):
        if name in {"zero_from", "fdatasync"}:
            self.disk.step()
        return getattr(self.file, name)


def open_store(path, disk, checkpoint):
    snapshots = SnapshotFiles(disk, str(path))
    snapshots.load()
    data = open_segments(disk, f"{path}/data", SEGMENT)
    index = open_segments(disk, f"{path}/index", INDEX_SEGMENT)
    return open_log_store(data, index, checkpoint, 9, 1 << 20, snapshots)


def make_log(path, count=60):
    """A log of several segments; a copy of one that was made before, where there is one."""
    template = path.parent / f"template-{count}"
    if not template.exists():
        fill(template, count).close()
    shutil.copytree(template, path)
    return open_store(path, RealDisk(), Checkpoint(count - 1, -1))


def fill(path, count):
    path.mkdir()
    store = open_store(path, RealDisk(), Checkpoint())
    for index in range(count):
        body = b"%d " % index * 60
        position = store.place(store.end_position, 48 + len(body))
        store.append([encode_span(index, 1 + index // 25, position, [body])])
    return store


def contents(store):
    return [
        (index, *store.entry(index), bytes(store.body_view(index)))
        for index in range(store.first_index, store.last_index + 1)
    ]


def survive(path, act, checkpoint):
    """Run ``act`` to its end with a crash before every step; return what each restart found."""
    found = []
    for at in range(1000):
        disk = CrashingDisk(at)
        try:
            act(path(at), disk)
        except Crash:
            store = open_store(path(at), RealDisk(), checkpoint)
        else:
            return found
        found.append((store.first_index, store.base_term, store.first_position, contents(store)))
        assert store.snapshots.meta is None or (
            store.snapshots.meta.id.last_index == store.first_index - 1
        )
        assert sorted(p.name for p in path(at).glob("snapshot*")) in ([], ["snapshot"])
        # And it goes on from there.
        body = b"next"
        position = store.place(store.end_position, 48 + len(body))
        store.append([encode_span(store.last_index + 1, 9, position, [body])])
        store.close()
        again = open_store(path(at), RealDisk(), checkpoint)
        assert bytes(again.body_view(again.last_index)) == body
        again.close()
    raise AssertionError("it never ends")


def test_trim_survives_a_crash_at_every_step(tmp_path):
    def path(at):
        return tmp_path / str(at)

    def act(where, disk):
        make_log(where).close()
        store = open_store(where, disk, Checkpoint(59, 59))
        plan = store.plan_trim(40)
        assert plan.first_index > 20
        last = (plan.first_index - 1, plan.base_term, plan.position)
        store.snapshots.save(encode_snapshot(last, 59, GROUP, b"state"))
        for step in store.trim(plan):
            step()
        store.close()

    before = contents(make_log(tmp_path / "whole"))
    found = survive(path, act, Checkpoint(59, 59))
    begins = {first for first, _, _, _ in found}
    assert len(begins) == 2, "before, or after"
    for first, base_term, position, entries in found:
        assert entries == before[first:]
        assert base_term == (0 if first == 0 else 1 + (first - 1) // 25)
        assert position == before[first][1]


def conflicting(path):
    """A snapshot behind which the old log has entries of another history, at the same place."""
    plan = make_log(path).plan_trim(59)
    assert plan.base_term == 3
    return plan, snapshot(plan.first_index - 1, 2, plan.position)


def do_install(where, disk, data):
    """What a follower does with a log up to entry 59, of which it committed 9."""
    make_log(where).close()
    store = open_store(where, disk, Checkpoint(9, 9))
    meta, _ = decode_snapshot(data)
    half = len(data) // 2
    assert store.stage(StageWork(meta.id, 0, data[:half], install=False)).kept
    staged = store.stage(StageWork(meta.id, half, data[half:], install=True))
    assert staged.installed == meta
    store.restart(meta)
    return store


def test_install_survives_a_crash_at_every_step(tmp_path):
    def path(at):
        return tmp_path / str(at)

    plan, data = conflicting(tmp_path / "old")
    begin = plan.first_index
    old = contents(open_store(tmp_path / "old", RealDisk(), Checkpoint(9, 9)))
    found = survive(
        path, lambda where, disk: do_install(where, disk, data).close(), Checkpoint(9, 9)
    )
    assert {(first, len(entries)) for first, _, _, entries in found} == {(0, 60), (begin, 0)}
    for first, base_term, position, entries in found:
        assert entries == (old if first == 0 else [])
        assert (base_term, position) == ((0, 0) if first == 0 else (2, plan.position))
    # Once it counts, it counts for ever.
    order = [first for first, *_ in found]
    assert order == sorted(order)


def test_installed_log_goes_on_and_is_opened_again(tmp_path):
    store = do_install(tmp_path / "n", RealDisk(), snapshot())
    assert (store.first_index, store.last_index, store.end_position) == (31, 30, SEGMENT * 3)
    store.append([encode_span(31, 3, SEGMENT * 3, [b"one", b"two"])])
    assert store.snapshot.last_index == 30
    store.close()
    store = open_store(tmp_path / "n", RealDisk(), Checkpoint(32, 30))
    assert [body for *_, body in contents(store)] == [b"one", b"two"]
    assert store.term_runs() == [(31, 3)]
    store.close()


@pytest.mark.parametrize("marker_first", [True, False])
def test_planted_install_that_is_not_atomic_is_caught(tmp_path, monkeypatch, marker_first):
    """The log removed before the snapshot counts, or without the marker that says it is void."""

    def without_marker(self, snapshot_id):
        self._part.fdatasync()
        data = self._part.pread(0, snapshot_id.size)
        self.meta, _ = decode_snapshot(data)
        if marker_first:
            self._disk.remove(f"{self._path[: -len('snapshot')]}data/{0:020}")
        self._disk.replace(self._path, data)
        return self.meta

    monkeypatch.setattr(SnapshotFiles, "install", without_marker)
    with pytest.raises((AssertionError, FatalError, DamagedEntry)):
        test_install_survives_a_crash_at_every_step(tmp_path)


def test_wrong_snapshot_is_not_installed(tmp_path):
    data = snapshot()
    meta, _ = decode_snapshot(data)
    make_log(tmp_path / "n", 20).close()
    store = open_store(tmp_path / "n", RealDisk(), Checkpoint(9, 9))
    damaged = data[:-1] + b"!"
    other = SnapshotId(meta.id.last_index, 1, meta.id.size, meta.id.crc)
    for name, sent in ((meta.id, damaged), (other, data)):
        staged = store.stage(StageWork(name, 0, sent, install=True))
        assert not staged.kept
    assert (store.first_index, store.last_index) == (0, 19)
    assert not list((tmp_path / "n").glob("snapshot*"))
    store.close()


def test_full_disk_refuses_a_chunk_and_keeps_the_log(tmp_path):
    class FullDisk(RealDisk):
        def open(self, path, *, size):
            if path.endswith(".part"):
                raise OSError(next(iter(NO_SPACE)), "full")
            return super().open(path, size=size)

    make_log(tmp_path / "n", 20).close()
    store = open_store(tmp_path / "n", FullDisk(), Checkpoint(9, 9))
    data = snapshot()
    work = StageWork(decode_snapshot(data)[0].id, 0, data, install=True)
    assert not store.stage(work).kept
    assert store.last_index == 19
    store.close()


def end_after_a_trim_with_what_found_no_space(path):
    """Return where a log ends that has trimmed with a snapshot whose install had found no space.

    The leader that sent it went, and another one had the entries still.
    """

    refused = ["snapshot"]

    class FullDisk(RealDisk):
        def replace(self, name, data):
            if name.endswith("/snapshot") and refused:
                raise OSError(next(iter(NO_SPACE)), refused.pop())
            super().replace(name, data)

    make_log(path).close()
    store = open_store(path, FullDisk(), Checkpoint(59, 59))
    plan = store.plan_trim(40)
    last_index = plan.first_index - 1
    data = encode_snapshot((last_index, plan.base_term, plan.position), 41, GROUP, b"state")
    announced = decode_snapshot(data)[0].id
    assert not store.stage(StageWork(announced, 0, data, install=True)).kept
    assert store.snapshots.save(data)
    for step in store.trim(plan):
        step()
    store.close()
    again = open_store(path, RealDisk(), Checkpoint())
    again.close()
    return again.last_index


def test_an_install_that_found_no_space_leaves_nothing_that_voids_the_log(tmp_path):
    assert end_after_a_trim_with_what_found_no_space(tmp_path / "n") == 59
    with planted(BY_TESTS["install-leaves-its-marker"]):
        assert end_after_a_trim_with_what_found_no_space(tmp_path / "m") < 59


def test_damaged_snapshot_file_stops_the_start(tmp_path):
    do_install(tmp_path / "n", RealDisk(), snapshot()).close()
    path = tmp_path / "n" / "snapshot"
    data = bytearray(path.read_bytes())
    data[random.Random(1).randrange(len(data))] ^= 4
    path.write_bytes(data)
    with pytest.raises(FatalError, match="where the log begins is unknown"):
        open_store(tmp_path / "n", RealDisk(), Checkpoint())


def test_older_snapshot_never_replaces_a_newer_one(tmp_path):
    store = do_install(tmp_path / "n", RealDisk(), snapshot())
    assert not store.snapshots.save(snapshot(last_index=29))
    assert not store.snapshots.save(snapshot(state=b"other"))
    assert store.snapshots.save(snapshot(last_index=31))
    store.close()


def reads_of_an_installed_state(path):
    """Return how often the file is read for the state, the first time and the second."""
    reads = []

    class Reads(RealDisk):
        def read(self, name):
            reads.append(name)
            return super().read(name)

    data = snapshot()
    store = do_install(path, Reads(), data)
    counts = []
    for _ in range(2):
        reads.clear()
        assert store.snapshots.state() == decode_snapshot(data)[1]
        counts.append(len(reads))
    store.close()
    return counts


def test_the_state_that_was_installed_is_at_hand_once(tmp_path):
    assert reads_of_an_installed_state(tmp_path / "a") == [0, 1]
    with planted(BY_TESTS["installed-state-read-again"]):
        assert reads_of_an_installed_state(tmp_path / "b") == [1, 1]


class SyncedFollower:
    """A follower with SYNC_FLUSH whose syncs return when the test says so."""

    def __init__(self, path):
        path.mkdir()
        self.store = open_store(path, RealDisk(), Checkpoint())
        self.raft = Raft(
            RaftConfig(self_id="n2", voters=("n0", "n1", "n2")),
            log=RaftLog(self.store, -1),
            hard_state=HardState(2),
            rng=random.Random(1),
            make_noop=lambda *_: pytest.fail("it never leads"),
        )
        self.sent = []
        self.driver = Driver(
            self.raft, self.store, MemoryStateFile(HardState(2)),
            flush_disk_type=FlushDiskType.SYNC_FLUSH, send=self.sent.append,
        )  # fmt: skip

    def take(self, message, meanwhile=lambda: None):
        """Step a message and work it off; ``meanwhile`` runs while the disk is at work."""
        self.raft.step(message)
        while (ready := self.raft.ready()) is not None:
            if self.driver.begin(ready):
                meanwhile()
                self.driver.persist_state(ready)
            self.driver.complete(ready)

    def end(self, sync):
        self.store.sync(sync.dirty)
        self.driver.end_sync(sync)

    def sync_all(self):
        while (sync := self.driver.begin_sync()) is not None:
            self.end(sync)


def test_an_install_leaves_no_answer_waiting_for_entries_that_are_gone(tmp_path):
    """What was written and not synced went with the log, and no sync would ever cover it.

    The answers behind it waited for that for ever: to the snapshot, and to who asks for a vote.
    """
    follower = SyncedFollower(tmp_path / "n2")
    follower.take(Append("n0", "n2", 2, -1, 0, -1, encode_span(0, 1, 0, [b"a"])))
    under_way = [follower.driver.begin_sync()]
    follower.take(Append("n0", "n2", 2, 0, 1, -1, encode_span(1, 1, 49, [b"b"])))
    data = snapshot()
    announced = decode_snapshot(data)[0].id
    install = InstallSnapshot("n0", "n2", 2, announced, 0, data)
    follower.take(install, meanwhile=lambda: under_way and follower.end(under_way.pop()))
    follower.sync_all()
    assert AppendReply("n2", "n0", 2, announced.last_index) in follower.sent
    follower.raft.state.contact_tick = -1 << 40  # the leader is gone
    follower.take(PreVoteRequest("n1", "n2", 3, announced.last_index, 2))
    follower.sync_all()
    assert PreVoteReply("n2", "n1", 3, granted=True) in follower.sent
    span = encode_span(announced.last_index + 1, 2, SEGMENT * 3, [b"c"])
    follower.take(Append("n0", "n2", 2, announced.last_index, 2, -1, span))
    reply = AppendReply("n2", "n0", 2, announced.last_index + 1)
    assert reply not in follower.sent, "it is not synced yet"
    follower.sync_all()
    assert reply in follower.sent
    follower.store.close()


def test_without_that_they_wait_for_ever(tmp_path):
    with planted(BY_TESTS["install-leaves-writes-unsynced"]), pytest.raises(AssertionError):
        test_an_install_leaves_no_answer_waiting_for_entries_that_are_gone(tmp_path)

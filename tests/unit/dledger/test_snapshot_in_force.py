"""A leader trims its log while a follower is sent the snapshot that stands for what went before.

The file is replaced in a thread, and the log begins anew some passes of the loop later. In between
the follower may ask for the next chunk.
"""

import asyncio
import errno
import random

import pytest

from dledger import trimming
from dledger.codec.entry import encode_span
from dledger.codec.properties import Checkpoint
from dledger.codec.snapshot import decode_snapshot
from dledger.config import DLedgerConfig, FlushDiskType
from dledger.core.configuration import KEPT_MAX, ConfigEntry, Configuration
from dledger.core.log import RaftLog
from dledger.core.messages import (
    AppendReject,
    AppendReply,
    InstallSnapshot,
    PreVoteReply,
    SnapshotReply,
    VoteReply,
)
from dledger.core.model import HardState
from dledger.core.progress import RETRY_TICKS
from dledger.core.raft import Raft
from dledger.core.state import RaftConfig
from dledger.driver import Driver
from dledger.listener import DLedgerListener
from dledger.trimming import Trimmer
from ledgermq.runtime.disk import RealDisk
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.dledger.cluster import MemoryStateFile
from tests.unit.dledger.test_snapshot import make_log, open_store

CHUNK = 300


class Worker:
    """Does the work at once; the loop hears of it when the test says so."""

    def __init__(self):
        self.ended = []
        self.others = []

    def beside(self, name):
        self.others.append(SlowWorker(name))
        return self.others[-1]

    def submit(self, work, then):
        work()
        self.ended.append(then)

    def tell(self):
        while self.ended:
            self.ended.pop(0)()


class SlowWorker:
    """Does the work when it is waited for."""

    def __init__(self, name):
        self.name, self.due, self.is_closed = name, [], False

    def submit(self, work, then):
        self.due.append((work, then))

    async def drain(self):
        while self.due:
            work, then = self.due.pop(0)
            work()
            then()

    def close(self):
        self.is_closed = True


class Leader:
    """n0 leads n1, which has everything, and n2, which has nothing; it has trimmed its log once."""

    def __init__(self, path, disk):
        make_log(path).close()
        self.path = path / "snapshot"
        self.store = open_store(path, disk, Checkpoint(59, 59))
        config = RaftConfig(self_id="n0", voters=("n0", "n1", "n2"), snapshot_chunk_bytes=CHUNK)
        self.raft = Raft(
            config, log=RaftLog(self.store, 59), hard_state=HardState(3), rng=random.Random(1),
            make_noop=self.make_noop,
        )  # fmt: skip
        self.sent = []
        self.driver = Driver(
            self.raft, self.store, MemoryStateFile(HardState(3)),
            flush_disk_type=FlushDiskType.ASYNC_FLUSH, send=self.sent.append,
        )  # fmt: skip
        self.worker = Worker()
        peers = dict.fromkeys(config.voters, "127.0.0.1:1")
        settings = DLedgerConfig(group="g", self_id="n0", peers=peers, directory=str(path))
        self.trimmer = Trimmer(settings, self.raft, self.store)
        self.trimmer.start(self.worker, lambda work: work(), DLedgerListener(), lambda _event: None)

    def make_noop(self, index, term, end_position):
        return encode_span(index, term, self.store.place(end_position, 52), (b"noop",))

    def take(self, *messages):
        """Step messages and return what is sent to n2 then."""
        for message in messages:
            self.raft.step(message)
        self.sent.clear()
        while (ready := self.raft.ready()) is not None:
            if self.driver.begin(ready):
                self.driver.persist_state(ready)
            self.driver.complete(ready)
        return [one for one in self.sent if one.receiver == "n2"]

    def lead(self):
        self.raft.campaign()
        self.take(PreVoteReply("n1", "n0", 4, granted=True))
        self.take(VoteReply("n1", "n0", 4, granted=True))
        self.take(AppendReply("n1", "n0", 4, 60))
        self.raft.state.progress["n2"].contact_tick = -1 << 40

    async def trim(self, limit, plan=None):
        plan = plan or self.trimmer.plan(limit)
        trimming = asyncio.ensure_future(
            self.trimmer.trim(plan, limit + 1, b"state %d" % limit * 100)
        )
        await asyncio.sleep(0)
        return trimming


async def chunks_of_a_trim_meanwhile(path, disk, *, is_read):
    """Return (data, offset, of the first snapshot) sent around a trim, and the snapshots' files."""
    leader = Leader(path, disk)
    leader.lead()
    first = await leader.trim(20)
    leader.worker.tell()
    leader.worker.tell()
    assert await first
    files = [leader.path.read_bytes()]
    announced = decode_snapshot(files[0])[0].id
    plan = leader.trimmer.plan(40)  # before n2 comes, or it would hold the log
    leader.take(AppendReject("n2", "n0", 4, 59, -1, 0, -1))
    found = []
    if is_read:
        found += leader.take(SnapshotReply("n2", "n0", 4, announced, 0))
    trimming = await leader.trim(40, plan)
    files.append(leader.path.read_bytes())
    assert files[0] != files[1]
    found += leader.take(SnapshotReply("n2", "n0", 4, announced, CHUNK if is_read else 0))
    leader.worker.tell()
    leader.worker.tell()
    assert await trimming
    found += leader.take(SnapshotReply("n2", "n0", 4, announced, CHUNK))
    leader.store.close()
    assert all(isinstance(one, InstallSnapshot) for one in found)
    return [(bytes(one.data), one.offset, one.id == announced) for one in found], files


def test_a_trim_meanwhile_changes_nothing_of_the_snapshot_under_way(tmp_path):
    run = chunks_of_a_trim_meanwhile(tmp_path / "n0", RealDisk(), is_read=True)
    found, files = asyncio.run(run)
    assert found == [
        (files[0][:CHUNK], 0, True),
        (files[0][CHUNK : 2 * CHUNK], CHUNK, True),
        (b"", 0, False),  # the log begins later now: the follower is asked what it has of that
    ]


def test_without_that_the_leader_ends(tmp_path):
    with planted(BY_TESTS["written-snapshot-counts-at-once"]), pytest.raises(AssertionError):
        asyncio.run(chunks_of_a_trim_meanwhile(tmp_path / "n0", RealDisk(), is_read=True))


def test_a_snapshot_that_was_not_opened_before_is_asked_for_again(tmp_path):
    """Its file is gone; the other one has another size, and is not taken for it."""
    run = chunks_of_a_trim_meanwhile(tmp_path / "n0", RealDisk(), is_read=False)
    found, _ = asyncio.run(run)
    assert found == [(b"", 0, False)]  # once there is something to send


async def questions_of_a_slow_write(path, rounds):
    """Return how often n2 is asked what it has while another snapshot is being written."""
    leader = Leader(path, RealDisk())
    leader.lead()
    first = await leader.trim(20)
    leader.worker.tell()
    leader.worker.tell()
    assert await first
    announced = decode_snapshot(leader.path.read_bytes())[0].id
    plan = leader.trimmer.plan(40)
    found = leader.take(AppendReject("n2", "n0", 4, 59, -1, 0, -1))
    trimming = await leader.trim(40, plan)
    for _ in range(rounds):  # it answers each question at once
        if found and isinstance(found[-1], InstallSnapshot):
            found += leader.take(SnapshotReply("n2", "n0", 4, announced, 0)) or [None]
    asked = sum(one is not None for one in found)
    for _ in range(RETRY_TICKS):
        leader.raft.tick()
    late = [one for one in leader.take() if isinstance(one, InstallSnapshot)]
    trimming.cancel()
    leader.store.close()
    return asked, len(late)


def test_nobody_is_asked_in_haste_while_another_snapshot_is_written(tmp_path):
    assert asyncio.run(questions_of_a_slow_write(tmp_path / "n0", 100)) == (1, 1)


def test_with_the_planted_bug_both_talk_without_a_pause(tmp_path):
    with planted(BY_TESTS["snapshot-asked-for-in-haste"]):
        assert asyncio.run(questions_of_a_slow_write(tmp_path / "n0", 100)) == (101, 1)


@pytest.mark.parametrize("is_sound", [True, False])
def test_what_a_peer_sends_meanwhile_does_not_change_what_was_written(tmp_path, is_sound):
    """A peer's snapshot was refused in the thread, and the one of the trim passed for it.

    Then its file stood for a beginning that the log did not have, until the next trim.
    """

    async def run():
        leader = Leader(tmp_path / "n0", RealDisk())
        leader.lead()
        store = leader.store
        trimming = await leader.trim(40)
        data = leader.path.read_bytes()
        announced = decode_snapshot(data)[0].id
        adopted = []
        leader.trimmer.adopt(announced, data if is_sound else b"", adopted.append)
        leader.worker.tell()
        leader.worker.tell()
        trimmed = await trimming
        found = (trimmed, adopted, store.first_index - 1, store.snapshots.meta.id == announced)
        assert found == (True, [], announced.last_index, True)
        store.close()

    asyncio.run(run())


def test_a_snapshot_that_found_no_space_leaves_the_one_in_force(tmp_path):
    class Disk(RealDisk):
        is_full = False

        def replace(self, path, data):
            if self.is_full:
                raise OSError(errno.ENOSPC, "full", path)
            super().replace(path, data)

    async def run(disk):
        leader = Leader(tmp_path / "n0", disk)
        leader.lead()
        first = await leader.trim(20)
        leader.worker.tell()
        leader.worker.tell()
        assert await first
        disk.is_full = True
        second = await leader.trim(40)
        leader.worker.tell()
        assert not await second
        leader.take(AppendReject("n2", "n0", 4, 59, -1, 0, -1))
        announced = decode_snapshot(leader.path.read_bytes())[0].id
        (chunk,) = leader.take(SnapshotReply("n2", "n0", 4, announced, 0))
        leader.store.close()
        return bytes(chunk.data)

    assert asyncio.run(run(Disk())) == (tmp_path / "n0" / "snapshot").read_bytes()[:CHUNK]


async def members_in_a_snapshot(path, changes):
    """Return the plan of a trim of a log with so many changes of members behind what goes."""
    leader = Leader(path, RealDisk())
    leader.lead()
    membership = leader.raft.state.membership
    for version in range(1, changes + 1):
        members = Configuration({"n0": "127.0.0.1:1"}, version=version)
        membership.add(ConfigEntry(100 + version, 4, members))
    plan = leader.trimmer.plan(20)
    leader.store.close()
    return plan


def test_a_log_is_not_trimmed_where_its_members_are_not_remembered(tmp_path):
    assert asyncio.run(members_in_a_snapshot(tmp_path / "few", KEPT_MAX - 1)) is not None
    assert asyncio.run(members_in_a_snapshot(tmp_path / "many", KEPT_MAX)) is None


async def threads_of_a_large_snapshot(path, *, is_stopped):
    """Return what the thread of votes has to do meanwhile, and the first index afterwards."""
    leader = Leader(path, RealDisk())
    leader.lead()
    trimming = await leader.trim(20)
    busy = len(leader.worker.ended)
    if busy:
        return busy, None
    (own,) = leader.worker.others
    assert not leader.path.exists()
    if is_stopped:
        await leader.trimmer.stop()  # it is written all the same
        assert own.is_closed
        assert not await trimming
    else:
        await own.drain()
        leader.worker.tell()
        assert await trimming
        again = await leader.trim(40)
        await own.drain()
        leader.worker.tell()
        assert await again
        assert leader.worker.others == [own]
    leader.store.close()
    return busy, decode_snapshot(leader.path.read_bytes())[0].id.last_index


def test_votes_do_not_wait_for_a_large_snapshot(tmp_path, monkeypatch):
    monkeypatch.setattr(trimming, "LARGE_BYTES", 100)
    busy, stopped_at = asyncio.run(threads_of_a_large_snapshot(tmp_path / "n", is_stopped=True))
    assert (busy, stopped_at > 0) == (0, True)
    _, trimmed_at = asyncio.run(threads_of_a_large_snapshot(tmp_path / "m", is_stopped=False))
    assert trimmed_at > stopped_at
    with planted(BY_TESTS["large-snapshot-before-votes"]):
        found = asyncio.run(threads_of_a_large_snapshot(tmp_path / "o", is_stopped=True))
    assert found == (1, None)

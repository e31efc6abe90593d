"""Real nodes whose disks hang, are slow, full, broken or corrupt.

At the end are the planted bugs that the same scenarios catch.
"""

import asyncio
import contextlib
import errno
import shutil

import pytest

from dledger.config import FlushDiskType
from dledger.core.configuration import Change, ChangeKind
from dledger.core.model import Role
from dledger.disk.watch import DiskWatch
from dledger.errors import DamagedEntry, DiskFull, MembershipRefused
from dledger.storage.corruption import CorruptionGuard
from dledger.storage.log_store import LogStore
from dledger.storage.state_files import HardStateFile
from ledgermq.runtime.errors import EXIT_ENVIRONMENT
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.dledger_group import SEGMENT, Group, run
from tests.integration.faulty_disk import FaultyDisk, flip

SYNC = FlushDiskType.SYNC_FLUSH


@contextlib.asynccontextmanager
async def group_of(path, size=3, **settings):
    disks = {f"n{number}": FaultyDisk() for number in range(size)}
    defaults = {"disk_full_retry_ms": 50, "disk_hang_ms": 10_000}
    group = Group(path, size, disks=disks, **(defaults | settings))
    try:
        yield group
    finally:
        for disk in disks.values():
            disk.heal()
        await group.stop()


def others(group, node):
    return [i for i in group.ids if i != node.self_id]


HANG_MS = 500


def watch_closely(node):
    """Have one disk hang soon: the other ones may take their time, they are real."""
    node._disk_watch._hang_ms = HANG_MS


def watch_as_before(node):
    node._disk_watch._hang_ms = node.config.disk_hang_ms


async def soon(condition, seconds=6.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


# A disk that hangs


async def hung_leader_is_replaced(path, flush=SYNC):
    async with group_of(path, flush_disk_type=flush, flush_interval_ms=20) as group:
        await group.start()
        old = await group.append(20)
        await group.settle()
        disk = group.disks[old.self_id]
        disk.hang("sync *")
        old.reserve(5)
        index = old.append((b"after",), 5)
        await soon(lambda: disk.held)  # what was under way before has returned
        watch_closely(old)
        await soon(lambda: old._raft.state.blocked == "disk_hung")
        assert group.listeners[old.self_id].roles[-1][0] is not Role.LEADER, "pending: unknown"
        await soon(lambda: any(group.nodes[i].is_leader for i in others(group, old)))
        await asyncio.sleep(0.6)
        assert old.role is Role.FOLLOWER, "it does not campaign while its disk hangs"
        disk.heal()
        await soon(lambda: old._raft.state.blocked is None)
        watch_as_before(old)
        await group.append(20)
        await group.settle()
        assert old.end_index > index
        assert not group.fatal


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_leader_whose_disk_hangs_gives_up_leadership_until_it_is_back(tmp_path, flush, caplog):
    run(hung_leader_is_replaced(tmp_path, flush))
    assert caplog.text.count("event=disk_hung") == 1
    assert caplog.text.count("event=disk_back") == 1


def test_follower_whose_disk_hangs_costs_nothing(tmp_path):
    async def main():
        async with group_of(tmp_path, flush_disk_type=SYNC) as group:
            await group.start()
            leader = await group.append(10)
            follower = others(group, leader)[0]
            group.disks[follower].hang("sync *", "replace *")
            watch_closely(group.nodes[follower])
            await group.append(50)
            await soon(lambda: group.nodes[follower]._raft.state.blocked)
            assert await group.append(50) is leader
            group.disks[follower].heal()
            await group.settle()

    run(main())


def test_vote_that_hangs_does_not_leave_and_nothing_piles_up(tmp_path):
    async def main():
        async with group_of(tmp_path) as group:
            await group.start()
            leader = await group.append(10)
            await group.settle()
            for voter in others(group, leader):
                group.disks[voter].hang("replace *currterm")
                watch_closely(group.nodes[voter])
            await group.stop(leader.self_id)
            await asyncio.sleep(1.0)
            assert not any(node.is_leader for node in group.nodes.values())
            for node in group.nodes.values():
                assert len(node._raft.state.messages) + len(node._raft.state.replies) < 50
            for disk in group.disks.values():
                disk.heal()
            await group.append(10)
            await group.settle()

    run(main())


async def slow_write_ends_a_leadership(path):
    async with group_of(path) as group:
        await group.start()
        leader = await group.append(10)
        await group.settle()
        group.mind_slow_writes()
        listener = group.listeners[leader.self_id]
        known = len(listener.roles)
        group.disks[leader.self_id].stall(0.4, "write *data*")
        leader.reserve(5)
        leader.append((b"slow!",), 5)
        await soon(lambda: len(listener.roles) > known)
        assert listener.roles[known][0] is Role.FOLLOWER
        await group.append(10)
        await group.settle()


def test_leader_that_a_write_held_for_an_election_timeout_gives_up_leadership(tmp_path, caplog):
    run(slow_write_ends_a_leadership(tmp_path))
    assert "event=slow_write" in caplog.text


def test_what_was_collected_behind_a_slow_write_is_not_proposed_by_who_gave_up_leadership(
    tmp_path, caplog
):
    """Found by the simulator: a change of members was being made durable meanwhile."""

    async def main():
        async with group_of(tmp_path) as group:
            await group.start()
            leader = await group.append(10)
            await group.settle()
            group.mind_slow_writes()
            listener, disk = group.listeners[leader.self_id], group.disks[leader.self_id]
            known = len(listener.roles)
            disk.hang("replace *membership")
            change = Change(ChangeKind.ADD_LEARNER, "n9", "127.0.0.1:9")
            changing = asyncio.create_task(leader.operations.change_membership(change))
            await soon(lambda: leader._in_flight is not None)
            leader.reserve(5)
            leader.append((b"later",), 5)
            disk.stall(0.4, "write *data*")
            disk.heal()
            await soon(lambda: len(listener.roles) > known)
            assert listener.roles[known][0] is Role.FOLLOWER
            await asyncio.gather(changing, return_exceptions=True)
            await group.append(10)

    run(main())
    assert "event=slow_write" in caplog.text
    assert "event=bug" not in caplog.text


# Corruption


def place(group, node, index):
    """The file and the offset in it of an entry."""
    position = node.reader.entry(index)[0]
    base = position - position % SEGMENT
    return group.path / node.self_id / "data" / f"{base:020}", position - base


def entries(node):
    return [bytes(node.reader.body_view(i)) for i in range(node.first_index, node.end_index + 1)]


def is_whole(node):
    with contextlib.suppress(DamagedEntry):
        entries(node)
    return not node._store.corruption.damaged


async def follower_repairs_what_it_reads(path, offsets=(0, 4, 10, 20, 30, 41, 44, 60, 140)):
    async with group_of(path, recovery_bytes=0) as group:
        await group.start()
        leader = await group.append(60)
        await group.settle()
        node = group.nodes[others(group, leader)[0]]
        before = group.files(node.self_id, "data")
        for number, offset in enumerate(offsets):
            file, at = place(group, node, 5 + 3 * number)
            flip(file, at + offset)
        assert group.files(node.self_id, "data") != before
        with pytest.raises(DamagedEntry):
            node.reader.body_view(5)
        await soon(lambda: is_whole(node))
        assert entries(node) == entries(leader)
        assert group.files(node.self_id, "data") == before
        assert not group.fatal


def test_corruption_is_found_by_reading_and_repaired_from_a_peer(tmp_path, caplog):
    run(follower_repairs_what_it_reads(tmp_path))
    assert caplog.text.count("event=corruption ") == 9
    assert caplog.text.count("event=repaired ") == 9


def test_index_unit_is_derived_and_written_anew(tmp_path, caplog):
    async def main():
        async with group_of(tmp_path) as group:
            await group.start()
            leader = await group.append(60)
            await group.settle()
            node = group.nodes[others(group, leader)[0]]
            before = group.files(node.self_id, "index")
            file = group.path / node.self_id / "index" / f"{0:020}"
            for index, offset in enumerate((0, 5, 11, 13, 15, 22, 30), 10):
                flip(file, 32 * index + offset)
            assert entries(node) == entries(leader)
            unit = 32 * 10
            found = file.read_bytes()
            assert found[unit + 4 :] == before[file.name][unit + 4 :], "the magic is not looked at"
            assert not node._store.corruption.damaged

    run(main())
    assert "event=index_repaired" in caplog.text


def test_entry_and_unit_both_corrupt_are_told_by_their_neighbours(tmp_path):
    async def main():
        async with group_of(tmp_path) as group:
            await group.start()
            leader = await group.append(60)
            await group.settle()
            node = group.nodes[others(group, leader)[0]]
            data, index = (group.files(node.self_id, kind) for kind in ("data", "index"))
            file, at = place(group, node, 20)
            flip(file, at + 4)
            flip(group.path / node.self_id / "index" / f"{0:020}", 32 * 20 + 11)
            await soon(lambda: is_whole(node))
            assert group.files(node.self_id, "data") == data
            assert group.files(node.self_id, "index") == index

    run(main())


async def leader_sends_no_corruption(path):
    async with group_of(path) as group:
        await group.start()
        leader = await group.append(60)
        await group.settle()
        behind, other = others(group, leader)
        await group.stop(behind)
        shutil.rmtree(group.path / behind / "data")
        shutil.rmtree(group.path / behind / "index")
        (group.path / behind / "checkpoint").unlink()
        (group.path / behind / "synced").unlink()
        for index in (10, 11, 12, 30):
            file, at = place(group, leader, index)
            flip(file, at + 100)
        await group.start(behind)
        await group.settle()
        assert entries(group.nodes[behind]) == entries(group.nodes[other]) == entries(leader)
        assert leader.is_leader, "it needs not give up leadership for that"
        assert not group.fatal


def test_leader_repairs_corruption_before_it_sends_it_to_a_follower(tmp_path):
    run(leader_sends_no_corruption(tmp_path))


async def corrupt_everywhere(path):
    async with group_of(path) as group:
        await group.start()
        leader = await group.append(30)
        await group.settle()
        for node in group.nodes.values():
            file, at = place(group, node, 7)
            flip(file, at + 60)
        for _ in range(30):
            for node in group.nodes.values():
                with pytest.raises(DamagedEntry):
                    node.reader.body_view(7)
            await asyncio.sleep(0.05)
        assert await group.append(10) is leader, "what does not need it goes on"


def test_what_is_corrupt_everywhere_is_refused_and_told(tmp_path, caplog):
    run(corrupt_everywhere(tmp_path))
    (line, *_) = [r.getMessage() for r in caplog.records if "event=unrepaired" in r.getMessage()]
    assert "offset=" in line
    assert "/data/00000000000000000000" in line


def test_replica_with_corruption_that_is_not_committed_does_not_lead(tmp_path):
    async def main():
        async with group_of(tmp_path) as group:
            await group.start()
            leader = await group.append(10)
            await group.settle()
            for other in others(group, leader):
                await group.stop(other)
            leader.reserve(5)
            index = leader.append((b"alone",), 5)
            await soon(lambda: leader._store.last_index == index)
            file, at = place(group, leader, index)
            flip(file, at + 50)
            with pytest.raises(DamagedEntry):
                leader.reader.body_view(index)
            await soon(lambda: leader._raft.state.blocked == "uncommitted_corruption")
            await group.start(*others(group, leader))
            await soon(lambda: any(group.nodes[i].is_leader for i in others(group, leader)))
            await group.append(10)
            await group.settle()
            # The new leader had another entry there; a follower looks at its disk when it wakes up.
            await soon(lambda: leader._raft.state.blocked is None)
            assert entries(leader) == entries(group.nodes[others(group, leader)[0]])

    run(main())


# Full and broken disks

WRITES = ("*data/*", "*index/*", "*currterm", "*checkpoint")


@pytest.mark.parametrize("glob", WRITES)
@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_full_disk_refuses_and_recovers_at_every_write(tmp_path, glob, flush):
    async def main():
        settings = {"flush_disk_type": flush, "flush_interval_ms": 20, "checkpoint_interval_ms": 20}
        async with group_of(tmp_path, 1, **settings) as group:
            await group.start()
            node = await group.append(300)
            group.disks["n0"].fill(glob)
            acknowledged = entries(node)
            if glob == "*currterm":
                await group.stop()
                group.disks["n0"].fill(glob)
                await group.start()
                node = group.nodes["n0"]
                await soon(lambda: node._persister.is_blocked and not node._appender.accepting)
                with pytest.raises(DiskFull):
                    node.reserve(10)
            elif glob != "*checkpoint":
                node.reserve(10)
                node.append((b"0123456789",), 10)
                await soon(lambda: group.listeners["n0"].rolled_back)
                with pytest.raises(DiskFull):
                    node.reserve(10)
            assert entries(node)[: len(acknowledged)] == acknowledged, "reads are served"
            group.disks["n0"].heal()
            await soon(lambda: node._appender.accepting)
            await group.append(10)
            assert entries(node)[: len(acknowledged)] == acknowledged
            assert not group.fatal
            await group.stop()
            await group.start()
            assert entries(group.nodes["n0"])[: len(acknowledged)] == acknowledged

    run(main())


async def change_that_was_not_written_is_refused(path):
    async with group_of(path) as group:
        await group.start()
        leader = await group.append(5)
        await group.settle()
        members = leader.status()["voters"]
        gone = others(group, leader)[0]
        group.disks[leader.self_id].fill("*data/*")
        asked = asyncio.create_task(
            leader.operations.change_membership(Change(ChangeKind.REMOVE, gone))
        )
        await soon(lambda: group.listeners[leader.self_id].rolled_back)
        # Before whoever waits looks again, the next entries take its index, in the same term.
        group.disks[leader.self_id].heal()
        leader._disk_full.pass_time(leader._clock.monotonic_ms() + 60_000)
        leader._appender.accepting = True
        await group.append(5)
        with pytest.raises(MembershipRefused, match="disk is full") as refusal:
            await asked
        assert refusal.value.may_retry
        assert leader.status()["voters"] == members
        await group.settle()
        await leader.operations.change_membership(Change(ChangeKind.REMOVE, gone))
        assert gone not in leader.status()["voters"]
        assert not group.fatal


def test_a_change_of_members_that_a_full_disk_rolled_back_is_refused(tmp_path):
    run(change_that_was_not_written_is_refused(tmp_path))


def test_planted_the_next_entry_stands_in_for_a_lost_change(tmp_path):
    bug = planted(BY_TESTS["lost-change-told-committed"])
    with bug, pytest.raises(pytest.fail.Exception):
        run(change_that_was_not_written_is_refused(tmp_path))


@pytest.mark.parametrize(
    "fault",
    ["write *data/*", "write *index/*", "sync *data/*", "sync *index/*", "replace *checkpoint"],
)
@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_broken_disk_is_fatal_with_one_line(tmp_path, fault, flush):
    async def main():
        settings = {"flush_disk_type": flush, "flush_interval_ms": 20, "checkpoint_interval_ms": 20}
        async with group_of(tmp_path, 1, **settings) as group:
            await group.start()
            node = await group.append(5)
            group.disks["n0"].fail(errno.EIO, fault)
            node.reserve(3)
            node.append((b"abc",), 3)
            await soon(lambda: group.fatal)
            await asyncio.sleep(0.1)
            (error,) = group.fatal
            assert error.exit_code == EXIT_ENVIRONMENT
            assert "\n" not in error.message

    run(main())


def test_vote_that_meets_a_broken_disk_is_fatal(tmp_path):
    async def main():
        async with group_of(tmp_path, 1) as group:
            group.disks["n0"].fail(errno.EIO, "replace *currterm")
            await group.start()
            await soon(lambda: group.fatal)
            assert group.fatal[0].exit_code == EXIT_ENVIRONMENT
            assert not group.nodes["n0"]._raft.state.saved.term

    run(main())


async def unwritten_vote_elects_nobody(path, campaigns):
    """Look while the only one that can write its vote down campaigns so often, by its own ticks."""
    async with group_of(path) as group:
        for voter in ("n1", "n2"):
            group.disks[voter].fill("*currterm")
        await group.start()
        state = group.nodes["n0"]._raft.state
        enough = campaigns * state.config.election_ticks_max

        def leads():
            return any(node.is_leader for node in group.nodes.values())

        await group.until(lambda: leads() or state.tick >= enough)
        assert not leads()
        assert all(node.commit_index == -1 for node in group.nodes.values())
        for disk in group.disks.values():
            disk.heal()
        await group.append(10)
        await group.settle()
        assert not group.fatal


def test_vote_that_finds_no_space_does_not_leave_and_is_given_later(tmp_path):
    run(unwritten_vote_elects_nobody(tmp_path, campaigns=3))


# Planted bugs


def test_a_node_that_never_sees_its_disk_hang_is_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(DiskWatch, "look", lambda self: False)
    with pytest.raises(TimeoutError):
        run(hung_leader_is_replaced(tmp_path))


def test_a_vote_that_leaves_unwritten_is_caught(tmp_path, monkeypatch):
    save = HardStateFile.save

    def hopeful(self, state):
        with contextlib.suppress(DiskFull):
            save(self, state)

    monkeypatch.setattr(HardStateFile, "save", hopeful)
    with pytest.raises(AssertionError):
        run(unwritten_vote_elects_nobody(tmp_path, campaigns=float("inf")))


def test_a_read_without_its_crc_is_caught(tmp_path, monkeypatch):
    def unchecked(self, index):
        position, size, _ = self.entry(index)
        return self.view(position + 48, size - 48)

    monkeypatch.setattr(LogStore, "body_view", unchecked)
    with pytest.raises(pytest.fail.Exception):
        run(corrupt_everywhere(tmp_path))


def test_a_repair_that_takes_any_copy_is_caught(tmp_path, monkeypatch):
    """Two replicas corrupt at the same entry: what the one sends, the other must not take."""

    def restore(self, span):
        for index in range(span.first_index, span.last_index + 1):
            self.damaged.pop(index, None)
        return [span.first_index]

    monkeypatch.setattr(CorruptionGuard, "restore", restore)
    with pytest.raises((AssertionError, TimeoutError)):
        run(follower_repairs_what_it_reads(tmp_path))

"""Real nodes with full, failing disks and with peers that hang."""

import asyncio
import errno

import pytest

from dledger.config import FlushDiskType
from dledger.core.configuration import Change, ChangeKind
from dledger.errors import DiskFull, MembershipRefused, NotLeader
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import EXIT_ENVIRONMENT
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.dledger_group import Group, run


class FaultyDisk(RealDisk):
    """A disk whose data files fail on demand."""

    def __init__(self):
        super().__init__()
        self.write_error = None
        self.sync_error = None

    def open(self, path, *, size):
        file = super().open(path, size=size)
        return FaultyFile(file, self) if "/data/" in path else file


class FaultyFile:
    def __init__(self, file, disk):
        self._file, self._disk = file, disk

    def __getattr__(self, name):
        return getattr(self._file, name)

    def pwrite(self, offset, buffers):
        if self._disk.write_error:
            raise OSError(self._disk.write_error, "planted")
        self._file.pwrite(offset, buffers)

    def fdatasync(self):
        if self._disk.sync_error:
            raise OSError(self._disk.sync_error, "planted")
        self._file.fdatasync()


def test_full_disk_of_the_leader_refuses_and_recovers(tmp_path):
    async def main():
        disks = {f"n{number}": FaultyDisk() for number in range(3)}
        group = Group(tmp_path, disks=disks, disk_full_retry_ms=2_000)
        await group.start()
        leader = await group.append(10)
        await group.settle()
        listener = group.listeners[leader.self_id]
        disks[leader.self_id].write_error = errno.ENOSPC
        end = leader.end_index
        for _ in range(3):
            leader.reserve(10)
            leader.append((b"0123456789",), 10)
        await group.until(lambda: listener.rolled_back)
        assert listener.rolled_back == [end + 1]
        with pytest.raises(DiskFull):
            leader.reserve(10)
        assert leader.reader.body_view(end)[:2] == b"9 ", "it still serves reads"
        disks[leader.self_id].write_error = None
        await group.until(lambda: leader._appender.accepting)
        again = await group.append(10)
        assert again is leader
        await group.settle()
        assert leader.end_index == end + 10
        await group.stop()

    run(main())


def test_full_disk_of_a_follower_is_caught_up_later(tmp_path):
    async def main():
        disks = {f"n{number}": FaultyDisk() for number in range(3)}
        group = Group(tmp_path, disks=disks, disk_full_retry_ms=50)
        await group.start()
        leader = await group.append(10)
        await group.settle()
        follower = next(i for i in group.ids if i != leader.self_id)
        disks[follower].write_error = errno.ENOSPC
        await group.append(100)
        assert group.nodes[follower].commit_index < leader.commit_index
        disks[follower].write_error = None
        await group.settle()
        await group.stop()

    run(main())


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_failed_sync_is_fatal(tmp_path, flush):
    async def main():
        disks = {"n0": FaultyDisk()}
        group = Group(tmp_path, 1, disks=disks, flush_disk_type=flush, flush_interval_ms=20)
        await group.start()
        leader = await group.append(5)
        disks["n0"].sync_error = errno.EIO
        leader.reserve(3)
        leader.append((b"abc",), 3)
        await group.until(lambda: group.fatal)
        assert [error.exit_code for error in group.fatal] == [EXIT_ENVIRONMENT]
        with pytest.raises(NotLeader):
            leader.reserve(3)
        disks["n0"].sync_error = None
        await group.stop()

    run(main())


def test_peer_that_never_reads_costs_bounded_memory(tmp_path):
    async def main():
        group = Group(tmp_path, data_segment_bytes=1 << 24, inflight_bytes_max=1 << 20)
        held = []
        host, port = group.peers["n2"].split(":")
        server = await asyncio.start_server(
            lambda reader, writer: held.append(writer) or writer.transport.pause_reading(),
            host,
            int(port),
        )
        await group.start("n0", "n1")
        leader = await group.leader()
        for _ in range(20):
            await group.append(200, size=10_000)
        link = leader._transport._links["n2"]
        assert link._transport.get_write_buffer_size() < 3 << 20
        assert leader.is_leader
        await group.stop()
        for writer in held:
            writer.transport.abort()
        server.close()
        await server.wait_closed()

    run(main())


def test_follower_far_behind_catches_up_under_load(tmp_path):
    async def main():
        group = Group(tmp_path, span_bytes_max=20_000)
        await group.start()
        leader = await group.append(10)
        await group.settle()
        behind = next(i for i in group.ids if i != leader.self_id)
        await group.stop(behind)
        await group.append(3000, size=300)
        await group.start(behind)
        await group.append(500, size=300)
        await group.settle()
        assert group.files("n0", "data") == group.files("n1", "data") == group.files("n2", "data")
        await group.stop()

    run(main())


def test_full_disk_at_the_start_of_a_term_gives_up_leadership(tmp_path):
    async def main():
        disks = {"n0": FaultyDisk()}
        disks["n0"].write_error = errno.ENOSPC
        group = Group(tmp_path, 1, disks=disks, disk_full_retry_ms=50)
        await group.start()
        await group.until(lambda: len(group.listeners["n0"].roles) >= 2)
        disks["n0"].write_error = None
        await group.append(10)
        assert not group.fatal
        await group.stop()

    run(main())


async def changed_on_a_full_disk(path):
    """Add a member while the disk is full, and append once it is not; return who is one then."""
    disk = FaultyDisk()
    group = Group(path, 1, disks={"n0": disk}, disk_full_retry_ms=50)
    await group.start()
    leader = await group.append(3)
    disk.write_error = errno.ENOSPC
    change = Change(ChangeKind.ADD_LEARNER, "n1", "127.0.0.1:1")
    asking = asyncio.create_task(leader.operations.change_membership(change))
    try:
        await group.until(lambda: group.listeners["n0"].rolled_back)
        disk.write_error = None
        await group.until(lambda: leader._appender.accepting)
        await group.append(1)  # in the place, and the term, of the change
        await asking
        return sorted(leader._raft.state.membership.latest.configuration.members)
    finally:
        disk.write_error = None
        await group.stop()


def test_a_change_that_a_full_disk_kept_out_is_refused(tmp_path):
    with pytest.raises(MembershipRefused, match="the disk is full"):
        run(changed_on_a_full_disk(tmp_path / "refused"))


def test_a_planted_answer_to_a_change_that_is_not_in_the_log_is_found(tmp_path):
    done = []

    async def main():
        done.extend(await changed_on_a_full_disk(tmp_path))

    with planted(BY_TESTS["refused-change-is-done"]):
        run(main())
    assert done == ["n0"], "told to be done"

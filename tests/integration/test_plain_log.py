"""The log in a loop: what its listener hears, and when; a store over it; the disk that fails."""

import asyncio
import errno
import shutil

import pytest

from dledger.config import FlushDiskType
from dledger.core.model import Role
from dledger.errors import DiskFull, NotLeader
from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from store.config import StoreConfig
from store.dispatch.anomalies import Unreplicated
from store.message_store import MessageStore
from store.plain import PlainLog, PlainLogConfig
from store.results import GetStatus, PutStatus
from tests.integration.faulty_disk import FaultyDisk, flip
from tests.unit.store.fakes import Listener, message
from tests.unit.store.plain.records import SEGMENT, T0, record, size_of

LIMIT_S = 60


class Ear:
    def __init__(self):
        self.heard = []
        self.is_new = asyncio.Event()

    def on_committed(self, position):
        self.heard.append(("committed", position))
        self.is_new.set()

    def on_role(self, role, term, leader_id):
        self.heard.append((role, term, leader_id))
        self.is_new.set()

    def on_rolled_back(self, position):
        self.heard.append(("rolled back", position))
        self.is_new.set()

    async def hears(self, *event):
        async with asyncio.timeout(LIMIT_S):
            while event not in self.heard:
                self.is_new.clear()
                await self.is_new.wait()


class World:
    def __init__(self, root, disk=None, **config):
        self.ear = Ear()
        self.fatal = []
        self.disk = disk or FaultyDisk()
        self.log = PlainLog(
            PlainLogConfig(
                **{
                    "directory": f"{root}/commitlog",
                    "name": "b",
                    "segment_bytes": SEGMENT,
                    **config,
                }
            ),
            disk=self.disk,
            on_fatal=self._on_fatal,
        )

    def _on_fatal(self, error):
        self.fatal.append(error)
        self.ear.is_new.set()

    async def __aenter__(self):
        await self.log.start(self.ear)
        await self.ear.hears(Role.LEADER, 1, "b")
        return self

    async def __aexit__(self, *_):
        await self.log.stop()

    def put(self, **fields):
        size = size_of(**fields)
        position = self.log.reserve(size)
        self.log.append((record(position, **fields),), size)
        return position + size

    async def has_failed(self):
        async with asyncio.timeout(LIMIT_S):
            while not self.fatal:
                self.ear.is_new.clear()
                await self.ear.is_new.wait()
        return self.fatal[0]


def run(main):
    asyncio.run(main())


ASYNC, SYNC = FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH


@pytest.mark.parametrize("flush", [ASYNC, SYNC])
def test_what_is_appended_in_one_turn_is_written_and_told_at_once(tmp_path, flush):
    async def main():
        async with World(tmp_path, flush_disk_type=flush) as world:
            writes = world.disk.counts.get("write", 0)
            ends = [world.put() for _ in range(9)]
            assert world.log.committed_position == 0
            await world.ear.hears("committed", ends[-1])
            assert world.ear.heard == [(Role.LEADER, 1, "b"), ("committed", ends[-1])]
            assert world.disk.counts["write"] - writes == 1
            assert world.log.committed_position == ends[-1]
            assert world.log.role is Role.LEADER
            assert world.log.status()["commit"] == ends[-1] - 1
        assert world.ear.heard[-1] == (Role.FOLLOWER, 1, None)
        assert world.log.role is Role.FOLLOWER
        assert world.fatal == []

    run(main)


def test_nothing_is_taken_before_the_start_and_after_the_stop(tmp_path):
    async def main():
        world = World(tmp_path)
        reserve = world.log.reserve
        with pytest.raises(NotLeader):
            reserve(1)
        world.log.open()
        with pytest.raises(NotLeader):
            reserve(1)
        async with world:
            assert reserve(1) == 0
        with pytest.raises(NotLeader):
            reserve(1)
        await world.log.stop()

    run(main)


def test_sync_flush_commits_what_is_synced_and_shares_syncs(tmp_path):
    async def main():
        disk = FaultyDisk()
        async with World(tmp_path, disk, flush_disk_type=SYNC) as world:
            disk.hang("sync *")
            first = world.put()
            for _ in range(5):
                await asyncio.sleep(0)
                last = world.put()
            await asyncio.sleep(0)
            assert world.log.end_position == last
            assert (world.log.committed_position, world.log.synced_position) == (0, 0)
            syncs = disk.counts.get("sync", 0)
            disk.heal()
            await world.ear.hears("committed", last)
            assert world.log.synced_position == last
            assert world.log.synced_timestamp == T0
            assert disk.counts["sync"] - syncs <= 2
            assert first < last

    run(main)


def test_disk_that_hangs_is_told(tmp_path, caplog):
    async def main():
        disk = FaultyDisk()
        options = {"flush_disk_type": SYNC, "disk_hang_ms": 20, "flush_interval_ms": 5}
        async with World(tmp_path, disk, **options) as world:
            disk.hang("sync *")
            last = world.put()
            async with asyncio.timeout(LIMIT_S):
                while not world.log.status()["disk_hung"]:
                    await asyncio.sleep(0.005)
            disk.heal()
            await world.ear.hears("committed", last)
        assert "event=disk_hung node=b" in caplog.text

    run(main)


def test_async_flush_syncs_when_there_is_enough_or_it_is_old(tmp_path):
    async def main():
        disk = FaultyDisk()
        options = {"flush_interval_ms": 5, "segment_bytes": 1 << 20}
        async with World(tmp_path / "a", disk, flush_thorough_ms=1 << 40, **options) as world:
            syncs = disk.counts.get("sync", 0)
            last = world.put()
            await asyncio.sleep(0.05)
            assert disk.counts.get("sync", 0) == syncs
            for _ in range(40):
                last = world.put(body=b"x" * 1000)
            await synced(world.log, last)
        async with World(tmp_path / "b", disk, flush_thorough_ms=10, **options) as world:
            await synced(world.log, world.put())

    run(main)


async def synced(log, position):
    async with asyncio.timeout(LIMIT_S):
        while log.synced_position < position:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("flush", [ASYNC, SYNC])
def test_failed_sync_is_the_end(tmp_path, flush):
    async def main():
        disk = FaultyDisk()
        async with World(tmp_path, disk, flush_disk_type=flush, flush_interval_ms=5) as world:
            disk.fail(errno.EIO, "sync *")
            for _ in range(40):
                world.put(body=b"x" * 1000)
            error = await world.has_failed()
            assert isinstance(error, FatalError)
            assert error.exit_code == 3
            assert world.log.role is Role.FOLLOWER
            with pytest.raises(NotLeader):
                world.put()

    run(main)


def test_segment_that_cannot_be_made_ahead_is_the_end_unless_the_disk_is_full(tmp_path):
    async def main():
        disk = FaultyDisk()
        async with World(tmp_path, disk) as world:
            disk.fail(errno.ENOSPC, f"open *{SEGMENT}")
            await world.ear.hears("committed", world.put(body=b"x" * 2900))
            await world.log._worker.drain()
            assert world.fatal == []
            disk.fail(errno.EIO, f"open *{2 * SEGMENT}")
            world.put(body=b"x" * 3900)
            assert f"{2 * SEGMENT:020} cannot be made" in (await world.has_failed()).message

    run(main)


def test_failed_write_is_the_end(tmp_path):
    async def main():
        disk = FaultyDisk()
        async with World(tmp_path, disk) as world:
            disk.fail(errno.EIO, "write *")
            world.put()
            assert (await world.has_failed()).exit_code == 3

    run(main)


def test_full_disk_refuses_and_recovers_by_itself(tmp_path):
    async def main():
        disk = FaultyDisk()
        async with World(tmp_path, disk, disk_full_retry_ms=5) as world:
            kept = world.put(body=b"kept")
            await world.ear.hears("committed", kept)
            disk.fail(errno.ENOSPC, f"open *{SEGMENT}")
            old = world.put(body=b"x" * 1900)
            lost = world.put(body=b"x" * 2900)
            await world.ear.hears("rolled back", SEGMENT)
            assert ("committed", old) in world.ear.heard
            assert world.log.end_position == old < SEGMENT < lost
            with pytest.raises(DiskFull):
                world.put()
            assert bytes(world.log.body_at(0, size_of(body=b"kept"))) == record(0, body=b"kept")
            disk.heal()
            async with asyncio.timeout(LIMIT_S):
                while True:
                    try:
                        again = world.put(body=b"again")
                        break
                    except DiskFull:
                        await asyncio.sleep(0.005)
            await world.ear.hears("committed", again)
            assert world.fatal == []
        reopened = World(tmp_path).log
        reopened.open(clean=True)
        bodies = [size for *_, size in reopened.walk(0, reopened.end_position, 9)]
        assert bodies == [size_of(body=body) for body in (b"kept", b"x" * 1900, b"again")]
        await reopened.stop()

    run(main)


def test_next_segment_is_made_ahead_and_a_start_takes_it_for_that(tmp_path):
    async def main():
        disk = FaultyDisk()
        async with World(tmp_path, disk) as world:
            last = world.put(body=b"x" * 1900)
            await world.ear.hears("committed", last)
            assert not (tmp_path / "commitlog" / f"{SEGMENT:020}").exists()
            last = world.put(body=b"x" * 900)
            await world.ear.hears("committed", last)
        assert (tmp_path / "commitlog" / f"{SEGMENT:020}").stat().st_size == SEGMENT
        for clean in (True, False):
            again = World(tmp_path).log
            again.open(clean=clean)
            assert again.end_position == last
            await again.stop()

    run(main)


def test_stop_keeps_what_was_appended_in_its_turn(tmp_path):
    async def main():
        for flush in (ASYNC, SYNC):
            world = World(tmp_path / flush.value, flush_disk_type=flush)
            async with world:
                last = world.put()
            assert ("committed", last) in world.ear.heard
            again = World(tmp_path / flush.value).log
            again.open(clean=True)
            assert again.end_position == last
            await again.stop()

    run(main)


def test_bug_of_the_listener_is_the_end(tmp_path):
    async def main():
        async with World(tmp_path) as world:
            world.ear.on_committed = None
            world.put()
            assert "a bug in" in (await world.has_failed()).message

    run(main)


def test_segments_are_dropped_while_they_are_read(tmp_path):
    async def main():
        async with World(tmp_path) as world:
            big = b"x" * 3900
            for _ in range(4):
                last = world.put(body=big)
            await world.ear.hears("committed", last)
            view = world.log.body_at(0, size_of(body=big))
            assert world.log.drop_before(1 << 40) == 3 * SEGMENT
            assert world.log.drop_before(1 << 40) == 0
            assert bytes(view) == record(0, body=big)
            assert world.log.first_position == 3 * SEGMENT
        kept = sorted(int(path.name) for path in (tmp_path / "commitlog").iterdir())
        assert kept == [3 * SEGMENT, 4 * SEGMENT]  # and one that was made ahead

    run(main)


def test_directory_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "commitlog").write_bytes(b"")
    with pytest.raises(FatalError, match="commitlog") as caught:
        World(tmp_path).log.open()
    assert caught.value.exit_code == 2


# A store over it


def make_store(root, flush=ASYNC, disk=None, fatal=None, **config):
    log = PlainLog(
        PlainLogConfig(directory=f"{root}/commitlog", segment_bytes=1 << 14, flush_disk_type=flush),
        disk=disk,
    )
    store = MessageStore(
        StoreConfig(
            directory=str(root),
            store_host=pack_host("127.0.0.1", 10911),
            late_status=PutStatus.FLUSH_TIMEOUT,
            is_replicated=False,
            **config,
        ),
        RealDisk(),
        SystemClock(),
        Listener(),
        **({} if fatal is None else {"on_fatal": fatal.append}),
    )
    store.attach(log, anomalies=Unreplicated)
    store.load()
    return log, store


async def writable(store):
    async with asyncio.timeout(LIMIT_S):
        while not store.writer.writable:
            await asyncio.sleep(0.001)


async def put_all(store, bodies):
    """Put messages, some in a turn; return the answers in order."""
    answers = asyncio.Queue()
    for number, body in enumerate(bodies):
        store.writer.put(message(body=body), lambda *answer: answers.put_nowait(answer))
        if number % 50 == 0:
            await asyncio.sleep(0)
    async with asyncio.timeout(LIMIT_S):
        return [await answers.get() for _ in bodies]


@pytest.mark.parametrize("flush", [ASYNC, SYNC])
def test_store_puts_and_gets_over_a_plain_log(tmp_path, flush):
    async def main():
        for life in range(3):
            log, store = make_store(tmp_path, flush)
            log.open(clean=life != 1)
            await log.start(store.log_user)
            store.start()
            await writable(store)
            found = await put_all(store, [b"%d/%d." % (life, n) * 90 for n in range(200)])
            assert [status for status, *_ in found] == [PutStatus.OK] * 200
            assert [offset for _, offset, _ in found] == list(range(200 * life, 200 * life + 200))
            assert store.reader.max_offset("t", 0) == 200 * (life + 1)
            result = store.reader.get("t", 0, 200 * life, 32, 1 << 20, None)
            assert result.status is GetStatus.FOUND
            assert b"%d/0." % life in bytes(result.buffers[0])
            if life != 1:  # otherwise the queues are made again from the log
                await store.stop()
            else:
                store._life._timer.cancel()
            await log.stop()

    run(main)


def test_put_that_is_not_flushed_in_time_is_told_and_stored_all_the_same(tmp_path):
    async def main():
        disk = FaultyDisk()
        log, store = make_store(tmp_path, SYNC, disk, max_wait_ack_ms=1_000, tick_ms=5)
        await log.start(store.log_user)
        store.start()
        await writable(store)
        disk.hang("sync *")
        (answer,) = await put_all(store, [b"late"])
        assert answer == (PutStatus.FLUSH_TIMEOUT, 0, 0)
        assert store.reader.max_offset("t", 0) == 0
        disk.heal()
        store._commit_log._max_wait_ms = 60_000  # a real disk may take a second now and then
        assert await put_all(store, [b"in time"]) == [(PutStatus.OK, 1, log.written.last_start)]
        assert store.reader.max_offset("t", 0) == 2
        await store.stop()
        await log.stop()

    run(main)


@pytest.mark.parametrize("at", [88, 5])
def test_damage_long_ago_is_not_served_and_does_not_hold_up_what_follows(tmp_path, at):
    """A body is counted in its queue all the same; anything worse is a refusal with its place."""

    async def main():
        log, store = make_store(tmp_path)
        await log.start(store.log_user)
        store.start()
        await writable(store)
        answers = await put_all(store, [b"%d." % number * 400 for number in range(60)])
        await store.stop()
        await log.stop()
        damaged = answers[1][2]
        flip(tmp_path / "commitlog" / f"{0:020}", damaged + at)
        shutil.rmtree(tmp_path / "consumequeue")
        log, store = make_store(tmp_path, fatal=(fatal := []))
        log.open(clean=True)
        assert log.recovered.walked_from > damaged
        await log.start(store.log_user)
        if at == 5:
            with pytest.raises(FatalError, match=f"{0:020} offset={damaged}: no magic"):
                store.start()
        else:
            store.start()
            await writable(store)
            assert store.reader.max_offset("t", 0) == 60
            counts = [store.reader.get("t", 0, n, 5, 1 << 20, None).count for n in (0, 1, 2)]
            assert counts == [1, 0, 5]
            assert store.reader.get("t", 0, 1, 5, 1 << 20, None).status is GetStatus.LOST
            assert fatal == []
        await store.stop()
        await log.stop()

    run(main)

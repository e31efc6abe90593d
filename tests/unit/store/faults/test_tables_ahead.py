"""A loss of power under asynchronous flush: tables on disk include nothing that the log lost."""

import asyncio
import json

from dledger.codec.snapshot import decode_head
from mutants.patches import BY_TESTS
from mutants.planting import planted
from sim.inode import PowerLossMode
from store.results import PutStatus
from tests.unit.store.faults.damage import disk_of, image
from tests.unit.store.faults.stores import propose_offset
from tests.unit.store.faults.test_lost_end import offset
from tests.unit.store.faults.world import ROOT, Cluster

SNAPSHOT_MS = 6000
LATE = b'{"late@g":{"0":7}}'


def after_a_loss_of_power():
    """Return the index that the tables on disk include then, and the last one of the log."""
    cluster = Cluster({"n0": disk_of({})}, flush="ASYNC_FLUSH")
    try:
        assert cluster.start() is None
        cluster.run_for(1000)
        cluster.log()._flusher._flush_interval_ms = 1 << 60
        for _ in range(5):
            assert propose_offset(cluster) is PutStatus.OK
        cluster.run_for(SNAPSHOT_MS)
        cluster.kill()
        disk = cluster.disks["n0"]
        disk.power_loss(PowerLossMode.LOST)
        saved = json.loads(disk.read(f"{ROOT}/config/appliedIndex.json"))["appliedIndex"]
        assert cluster.start() is None
        end = cluster.log().end_index - 1  # the new term's own entry
        return saved, end
    finally:
        cluster.kill()
        cluster.close()


def test_tables_are_written_behind_the_log():
    saved, end = after_a_loss_of_power()
    assert 5 <= saved <= end


def test_planted_tables_before_the_log_are_found_here():
    with planted(BY_TESTS["tables-ahead-of-the-log"]):
        saved, end = after_a_loss_of_power()
    assert saved > end


def late_offset():
    """Return what a broker says of an offset that its tables have, and that its log has lost."""
    cluster = Cluster({"n0": disk_of({})})
    assert cluster.start() is None
    propose_offset(cluster)
    assert cluster.stop() is None
    early = image(cluster.disks["n0"])
    assert cluster.start() is None
    assert cluster.propose(LATE, "offset") is PutStatus.OK
    for _ in range(5):
        propose_offset(cluster)
    assert cluster.stop() is None
    late = image(cluster.disks["n0"])
    cluster.close()
    tables = f"{ROOT}/config/"
    mixed = {path: data for path, data in early.items() if not path.startswith(tables)}
    mixed |= {path: data for path, data in late.items() if path.startswith(tables)}
    again = Cluster({"n0": disk_of(mixed)})
    try:
        assert again.start() is None
        assert offset(again) == 0
        return again.brokers["n0"].tables.offsets.query("g", "late", 0)
    finally:
        again.kill()
        again.close()


def test_tables_of_a_version_that_wrote_them_first_are_made_again_from_the_log():
    assert late_offset() is None


def test_planted_tables_that_outlive_the_log_are_found_here():
    with planted(BY_TESTS["tables-outlive-the-log"]):
        assert late_offset() == 7


def after_a_trim_and_a_loss_of_power():
    """Return the index that the state in a snapshot includes then, and the last one of the log."""
    cluster = Cluster({"n0": disk_of({})}, flush="ASYNC_FLUSH")
    try:
        assert cluster.start() is None
        for number in range(60):
            cluster.put("t0", 0, b"%d " % number * 100)
        cluster.run_for(SNAPSHOT_MS)
        cluster.log()._flusher._flush_interval_ms = 1 << 60
        compactor = cluster.brokers["n0"]._mode.compactor
        save, is_saved, done = compactor._save, [], []

        async def save_slowly():
            await save()
            is_saved.append(True)
            await asyncio.sleep(1)  # the queues and where they begin are looked at meanwhile

        async def compact():
            done.append(await compactor.compact())

        compactor._save = save_slowly
        cluster.loop.spawn(cluster.hosts["n0"].process, compact())
        assert cluster.loop.run_until_true(lambda: is_saved, 5_000)
        for _ in range(5):
            assert propose_offset(cluster) is PutStatus.OK
        assert cluster.loop.run_until_true(lambda: done, 5_000)
        assert done[0]["dropped_entries"] > 0, done[0]["reason"]
        cluster.kill()
        disk = cluster.disks["n0"]
        disk.power_loss(PowerLossMode.LOST)
        (path,) = [one for one in image(disk) if one.endswith("/snapshot")]
        state_index = decode_head(disk.read(path))[0].state_index
        assert cluster.start() is None
        return state_index, cluster.log().end_index - 1  # the new term's own entry
    finally:
        cluster.kill()
        cluster.close()


def test_a_snapshot_is_written_behind_the_log():
    """It will take the place of another member's state, and say what that need not apply."""
    state_index, end = after_a_trim_and_a_loss_of_power()
    assert state_index <= end


def test_the_planted_snapshot_before_the_log_is_found_here():
    with planted(BY_TESTS["snapshot-ahead-of-the-log"]):
        state_index, end = after_a_trim_and_a_loss_of_power()
    assert state_index > end

"""Queries for messages that are corrupted while a plain broker runs are refused as damaged."""

import pytest

from dledger.errors import DamagedEntry
from store.results import Boundary, GetStatus
from tests.unit.store.faults.damage import disk_of
from tests.unit.store.faults.stores import built
from tests.unit.store.faults.world import ROOT, SEGMENT, Cluster

SIZE, MAGIC, CRC, PLACE, BODY = 0, 4, 8, 28, 90


def corrupt(cluster, position):
    path = f"{ROOT}/commitlog/{position // SEGMENT * SEGMENT:020}"
    file = cluster.disks["n0"].open(path, size=SEGMENT)
    byte = file.pread(position % SEGMENT, 1)[0]
    file.pwrite(position % SEGMENT, (bytes((byte ^ 0x10,)),))


@pytest.mark.parametrize("at", [SIZE, MAGIC, CRC, PLACE, BODY])
def test_times_of_a_damaged_message(at):
    files, sent = built(raft=False)
    cluster = Cluster({"n0": disk_of(files)}, raft=False)
    try:
        assert cluster.start() is None
        store = cluster.store()
        physical, _ = sent.acknowledged["t0", 0, 0]
        corrupt(cluster, physical + at)
        for ask in (
            lambda: store.reader.earliest_store_time("t0", 0),
            lambda: store.reader.offset_by_time("t0", 0, 1),
            lambda: store.reader.offset_by_time("t0", 0, 1, Boundary.LOWER),
        ):
            with pytest.raises(DamagedEntry):
                ask()
        assert store.reader.get("t0", 0, 0, 32, 1 << 20, None).status is GetStatus.LOST
    finally:
        cluster.close()

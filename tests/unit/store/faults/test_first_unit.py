"""A plain store without a checkpoint of ours, of whose queue the first unit left is damaged."""

import pytest

from store.results import GetStatus, PutStatus
from tests.unit.store.faults.damage import disk_of, image
from tests.unit.store.faults.world import QUEUE_FILE, ROOT, SEGMENT, Cluster

MESSAGES = 160


def trimmed():
    """Return the files of a broker whose log has lost its beginning, and where its queue begins."""
    cluster = Cluster({"n0": disk_of({})}, raft=False)
    try:
        assert cluster.start() is None
        for number in range(MESSAGES):
            assert cluster.put("t0", 0, b"%d" % number * 30) is PutStatus.OK
        cluster.run_for(1_000)
        retained = cluster.brokers["n0"]._mode.retained
        cluster.do(lambda: cluster.loop.create_task(retained.drop_before(2 * SEGMENT)))
        cluster.run_for(3_000)
        first = cluster.store().reader.min_offset("t0", 0)
        assert cluster.stop() is None
        return image(cluster.disks["n0"]), first
    finally:
        cluster.close()


@pytest.mark.parametrize("damage", [b"\xff" * 20, bytes(QUEUE_FILE)], ids=["a unit", "all"])
@pytest.mark.parametrize("clean", [True, False])
def test_the_queue_is_made_anew_from_where_the_log_begins(damage, clean):
    files, first = trimmed()
    for name in ("consumequeue.checkpoint", "consumequeue.clean"):
        del files[f"{ROOT}/{name}"]
    if not clean:
        files[f"{ROOT}/abort"] = b""
    path = min(name for name in files if name.startswith(f"{ROOT}/consumequeue/t0/0/"))
    assert not path.endswith("0" * 20)
    files[path] = damage + files[path][len(damage) :]
    cluster = Cluster({"n0": disk_of(files)}, raft=False)
    try:
        assert cluster.start() is None
        reader = cluster.store().reader
        assert (reader.min_offset("t0", 0), reader.max_offset("t0", 0)) == (first, MESSAGES)
        assert reader.get("t0", 0, first, 32, 1 << 20, None).status is GetStatus.FOUND
        assert cluster.put("t0", 0, b"more") is PutStatus.OK
        assert reader.max_offset("t0", 0) == MESSAGES + 1
    finally:
        cluster.close()

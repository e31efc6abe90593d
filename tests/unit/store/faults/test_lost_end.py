"""A group of one whose log lost its end, while its tables on disk are as of that end."""

from store.results import PutStatus
from tests.unit.store.faults.damage import disk_of, image
from tests.unit.store.faults.stores import propose_offset
from tests.unit.store.faults.world import ROOT, Cluster


def work(cluster, count):
    for _ in range(count):
        propose_offset(cluster)


def offset(cluster):
    return cluster.brokers["n0"].tables.offsets.query("TOOLS_CONSUMER", "OFFSET_MOVED_EVENT", 0)


def test_what_a_log_gets_in_place_of_its_lost_end_is_applied_after_a_crash_too():
    cluster = Cluster({"n0": disk_of({})})
    assert cluster.start() is None
    work(cluster, 10)
    assert cluster.stop() is None
    early = image(cluster.disks["n0"])
    assert cluster.start() is None
    work(cluster, 20)
    assert cluster.stop() is None
    late = image(cluster.disks["n0"])
    cluster.close()
    tables = f"{ROOT}/config/"
    mixed = {path: data for path, data in early.items() if not path.startswith(tables)}
    mixed |= {path: data for path, data in late.items() if path.startswith(tables)}
    again = Cluster({"n0": disk_of(mixed)})
    again.sent.proposed = 100
    try:
        assert again.start() is None
        assert again.log().end_index < 20
        assert offset(again) == 9, "the log is what counts"
        work(again, 10)
        for _ in range(20):
            assert again.propose(b'{"t1@g":{"0":5}}', "offset") is PutStatus.OK
        assert offset(again) == 109
        again.kill()
        assert again.start() is None
        assert offset(again) == 109
    finally:
        again.close()

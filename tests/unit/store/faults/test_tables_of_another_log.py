"""A plain broker whose tables were copied from another one, or whose log is not theirs any more."""

import re

import pytest

from tests.unit.store.faults.damage import disk_of, image
from tests.unit.store.faults.stores import built, propose_offset
from tests.unit.store.faults.world import ROOT, Cluster, check

APPLIED = re.compile(rb'(ledgerIndex"|appliedIndex"|[a-zA-Z]+\.json")(\s*:\s*)(\d+)')


@pytest.mark.parametrize("shift", [-1, -7, -300, 100_000])
def test_a_start_does_not_begin_in_the_middle_of_a_message(shift):
    files, sent = built(raft=False)
    moved = {
        path: APPLIED.sub(lambda m: m[1] + m[2] + b"%d" % max(0, int(m[3]) + shift), data)
        if path.startswith(f"{ROOT}/config/")
        else data
        for path, data in files.items()
    }
    assert moved != files
    cluster = Cluster({"n0": disk_of(moved)}, raft=False)
    cluster.sent.proposed = sent.proposed
    try:
        assert cluster.start() is None
        check(cluster.read(), sent)
        assert (
            cluster.brokers["n0"].tables.offsets.query("TOOLS_CONSUMER", "OFFSET_MOVED_EVENT", 0)
            == sent.proposed - 1
        )
        propose_offset(cluster)
        assert cluster.stop() is None
        later = Cluster({"n0": disk_of(image(cluster.disks["n0"]))}, raft=False)
        assert later.start() is None
        assert (
            later.brokers["n0"].tables.offsets.query("TOOLS_CONSUMER", "OFFSET_MOVED_EVENT", 0)
            == sent.proposed
        )
        later.close()
    finally:
        cluster.close()

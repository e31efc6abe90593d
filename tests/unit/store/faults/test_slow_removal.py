"""A log that loses many segments at once, on a disk that takes its time for each."""

from mutants.patches import BY_TESTS
from mutants.planting import planted
from sim.disk_rules import Action, Latency, Op, Rule
from tests.unit.store.faults.damage import disk_of, image
from tests.unit.store.faults.world import ROOT, Cluster

REMOVAL_NS = 100_000_000


def told_while_segments_go(caplog):
    """Return what the watch of the disk says while a log of sixty segments is compacted."""
    caplog.clear()
    cluster = Cluster({"n0": disk_of({})})
    try:
        assert cluster.start() is None
        for number in range(60):
            cluster.put("t0", 0, b"%d " % number * 1_000)
        cluster.run_for(6_000)
        disk = cluster.disks["n0"]
        disk.add_rule(
            Rule(
                action=Action.SLOW, ops=frozenset({Op.REMOVE}), glob="*/data/*",
                latency=Latency(REMOVAL_NS, REMOVAL_NS),
            )
        )  # fmt: skip
        done = []

        async def compact():
            done.append(await cluster.brokers["n0"]._mode.compactor.compact())

        cluster.loop.spawn(cluster.hosts["n0"].process, compact())
        assert cluster.loop.run_until_true(lambda: done, 20_000)
        left = [path for path in image(disk) if path.startswith(f"{ROOT}/dledger-n0/data/")]
        assert len(left) == 1, left
        assert done[0]["first_position"] == cluster.log().first_position > 0
        return [one.message.split()[0] for one in caplog.records if "event=disk" in one.message]
    finally:
        cluster.kill()
        cluster.close()


def test_a_leader_that_removes_many_segments_leads_on(caplog):
    assert told_while_segments_go(caplog) == []


def test_the_planted_removal_in_one_go_is_found_here(caplog):
    with planted(BY_TESTS["all-segments-removed-in-one-go"]):
        assert "event=disk_hung" in told_while_segments_go(caplog)

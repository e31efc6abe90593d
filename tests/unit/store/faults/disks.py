"""The script of `crashes` on a disk that fills up, or fails, at one step."""

import errno

from ledgermq.runtime.errors import FatalError
from sim.disk_rules import CHANGING, Action, Op, Rule
from sim.inode import PowerLossMode
from store.results import PutStatus
from tests.unit.store.faults.crashes import check_service, live
from tests.unit.store.faults.damage import disk_of
from tests.unit.store.faults.world import Cluster, check, no_hang


class FillUp(Rule):
    """No rule at all: from one step on there is no space left."""

    def __init__(self, disk, step):
        super().__init__(action=Action.SLOW)
        self.disk = disk
        self.step = step

    def meets(self, op, path, random):
        if op in CHANGING:
            self.step -= 1
            if self.step == -1:
                self.disk.limit(0)
        return False


class Fail(Rule):
    """One step fails, or all from it on; but not the sync of a size that was just given.

    (The simulated disk would lose the size for good, which no file system does that goes on.)
    """

    sized = ""

    def meets(self, op, path, random):
        is_sized = op is Op.SYNC and path == self.sized
        self.sized = path if op is Op.TRUNCATE else ""
        return not is_sized and super().meets(op, path, random)


def full_from(step, **options):
    """Let the disk be full from one step on, and have space again in the end."""
    disk = disk_of({})
    cluster = Cluster({"n0": disk}, **options)
    with no_hang():
        try:
            disk.add_rule(FillUp(disk, step))
            cluster.start()
            live(cluster)
            if cluster.is_alive():
                check(cluster.read(), cluster.sent, acknowledged=False)
                disk.heal()
                cluster.run_for(1_500)
            else:
                error = cluster.error()
                assert is_refusal(error), error
                assert not cluster.sent.acknowledged, "ends although it had started once"
                disk.heal()
                assert cluster.start() is None
            assert cluster.is_writable()
            assert cluster.put("t0", 0, b"there is space again") is PutStatus.OK
            cluster.run_for(6_000)
            check_service(cluster)
            assert cluster.stop() is None
            assert cluster.start() is None
            check_service(cluster)
        finally:
            cluster.close()


def fails_at(step, *, for_good=False, **options):
    """Let a step of the disk fail; returns whether the process ended of it."""
    disk = disk_of({})
    cluster = Cluster({"n0": disk}, **options)
    count = None if for_good else 1
    with no_hang():
        try:
            disk.add_rule(Fail(action=Action.FAIL, skip=step, error=errno.EIO, count=count))
            cluster.start()
            live(cluster)
            has_ended = not cluster.is_alive()
            if has_ended:
                error = cluster.error()
                assert is_refusal(error), error
                at_start = not cluster.brokers["n0"]._started
                assert error.exit_code == 3 or at_start, error
            disk.heal()
            if has_ended:
                assert cluster.start() is None
            check_service(cluster)
            cluster.put("t0", 0, b"afterwards")
            cluster.kill()
            disk.power_loss(PowerLossMode.LOST)
            assert cluster.start() is None
            check_service(cluster)
            return has_ended
        finally:
            cluster.close()


def is_refusal(error):
    return isinstance(error, FatalError) and "a bug" not in error.message

"""What verify says, and what a broker then does: a crash is no damage; what is sound starts.

`tests.unit.store.faults` has the broker, the disk, and what befalls them.
"""

import tempfile
from functools import cache
from pathlib import Path
from random import Random

import pytest

from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from sim.disk_rules import Action, Rule
from sim.inode import PowerLossMode
from store.offline.findings import Health
from store.offline.folder import UnusableError, open_folder
from store.offline.rebuild import Rebuild
from store.offline.verify import verify
from tests.unit.store.faults.crashes import live, reference
from tests.unit.store.faults.damage import CONTENT, NAMES, Damage, disk_of, image
from tests.unit.store.faults.stores import built
from tests.unit.store.faults.world import Cluster
from tests.unit.store.offline.stores import QUEUE_FILE, write

CASES = 50
REBUILDS = 25
MODES = [pytest.param(True, id="raft"), pytest.param(False, id="plain")]

steps_of = cache(reference)


def checked(files):
    """What verify finds in these files of a broker; None where there is no store yet."""
    with tempfile.TemporaryDirectory() as root:
        write(Path(root), {path.removeprefix("/store/"): data for path, data in files.items()})
        try:
            return verify(open_folder(root)).findings
        except UnusableError:
            return None


def crashed(step, random, *, raft):
    """The files of a broker whose process ends at one step of its disk, mostly with the power."""
    disk = disk_of({})
    action = random.choice((Action.CRASH_BEFORE, Action.CRASH_AFTER))
    disk.add_rule(Rule(action=action, skip=step, count=1))
    cluster = Cluster({"n0": disk}, raft=raft)
    cluster.start()
    live(cluster)
    cluster.kill()
    if random.random() < 0.75:
        disk.power_loss(random.choice(list(PowerLossMode)), random.randrange(1 << 30))
    files = image(disk)  # before the stop that was cut short is unwound: that writes, too
    cluster.close()
    return files


@pytest.mark.parametrize("raft", MODES)
def test_what_a_crash_leaves_is_never_called_damage(raft):
    steps, _ = steps_of(raft=raft)
    seen = set()
    for number in range(CASES):
        step = number * steps // CASES
        findings = checked(crashed(step, Random(number), raft=raft))
        if findings is not None:
            worst = [found for found in findings.listed if found.severity == "damage"]
            assert not worst, (step, number, worst)
            seen.add(findings.health)
    assert Health.HARMLESS in seen


@pytest.mark.parametrize("raft", MODES)
def test_a_broker_starts_on_whatever_is_not_damaged(raft):
    files, _ = built(raft=raft)
    refused = 0
    for number in range(CASES):
        random = Random(number)
        places = tuple(sorted(random.random() for _ in range(2)))
        kind = random.choice(CONTENT + NAMES)
        befallen = Damage(kind, random.random(), places, random.randrange(1 << 30))
        damaged = dict(files)
        changed = befallen.befall(damaged)
        if any("raft_event" in path for path in changed):
            continue
        findings = checked(damaged)
        cluster = Cluster({"n0": disk_of(damaged)}, raft=raft)
        error = cluster.start()
        cluster.kill()
        cluster.close()
        if error is not None:
            refused += 1
            assert findings is None or findings.health is Health.DAMAGED, (number, kind, error)
    assert refused


def restarted(files, *, raft):
    """What a broker gives that starts on these files."""
    cluster = Cluster({"n0": disk_of(files)}, raft=raft)
    error = cluster.start()
    assert error is None, error
    cluster.run_for(500)
    found = cluster.read()
    assert cluster.stop() is None
    cluster.close()
    return found


@pytest.mark.parametrize("raft", MODES)
def test_after_a_crash_a_rebuild_makes_no_difference_to_what_a_broker_gives(raft):
    steps, _ = steps_of(raft=raft)
    rebuilt = 0
    for number in range(REBUILDS):
        files = crashed(number * steps // REBUILDS, Random(number), raft=raft)
        with tempfile.TemporaryDirectory() as root:
            write(Path(root), {path.removeprefix("/store/"): data for path, data in files.items()})
            try:
                work = Rebuild(
                    open_folder(root), RealDisk(), SystemClock(), queue_file_bytes=QUEUE_FILE
                )
                work.run(work.survey())
            except (UnusableError, FatalError):
                continue  # no store yet, or torn in the middle of what was not synced
            made = {
                f"/store/{path.relative_to(root)}": path.read_bytes()
                for path in Path(root).rglob("*")
                if path.is_file() and ".replaced" not in str(path) and path.name != "lock"
            }
        assert restarted(made, raft=raft) == restarted(files, raft=raft), number
        rebuilt += 1
    assert rebuilt > REBUILDS // 2

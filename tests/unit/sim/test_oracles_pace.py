"""What must have happened after some time: syncs, and the end of a leadership with a hung disk."""

from types import SimpleNamespace

import pytest

from dledger.core.model import Role
from sim.disk import SimDisk
from sim.disk_rules import Action, Rule
from sim.oracles.base import Violation
from sim.oracles.pace import FAILED_TICKS, FLUSH_TICKS, HANG_TICKS, FatalFailure, FlushLag, HungDisk
from sim.oracles.replica import Change, Mark, Replica
from sim.rng import SplitRng

SEGMENT = 4096


def replica(*, synced_index=-1):
    disk = SimDisk(SplitRng(1))
    disk.make_directories("/d/data")
    file = disk.open("/d/data/00000000000000000000", size=SEGMENT)
    file.pwrite(0, [b"x" * 500])
    config = SimpleNamespace(directory="/d", data_segment_bytes=SEGMENT)
    driver = SimpleNamespace(synced_index=synced_index)
    made = Replica("n0", 1)
    made.node = SimpleNamespace(_disk=disk, config=config, _driver=driver)
    made.controller = SimpleNamespace(node=made.node)
    made.state = SimpleNamespace(tick=0, term=3)
    made.disk = disk
    made.marks = [Mark(1, 100 * index, 100, 7) for index in range(5)]
    return made, file


def change(kept=4):
    key = (Role.LEADER, 1, 4, 4, 1, 3, 3)
    return Change(key, key, kept, 4)


def look(validator, one, tick, kept=4):
    one.state.tick = tick
    validator.on_change(one, change(kept))


@pytest.mark.parametrize("synced", [True, False])
def test_an_entry_is_synced_in_time(synced):
    one, file = replica()
    validator = FlushLag()
    validator.on_boot(one)
    look(validator, one, 1)
    look(validator, one, FLUSH_TICKS)
    if synced:
        file.fdatasync()
        look(validator, one, FLUSH_TICKS + 1)
    else:
        with pytest.raises(Violation, match="written entry 4 before tick 1"):
            look(validator, one, FLUSH_TICKS + 1)


@pytest.mark.parametrize("why", ["rule", "cut", "corruption"])
def test_a_disk_that_is_blocked_has_more_time(why):
    one, _ = replica()
    validator = FlushLag()
    validator.on_boot(one)
    look(validator, one, 1)
    if why == "rule":
        rule = one.disk.add_rule(Rule(action=Action.SLOW))
    one.is_corrupt = why == "corruption"
    look(validator, one, 2, kept=3 if why == "cut" else 4)
    if why == "rule":
        one.disk.drop_rule(rule)
    one.is_corrupt = False
    look(validator, one, FLUSH_TICKS + 1)
    with pytest.raises(Violation):
        look(validator, one, 2 * FLUSH_TICKS + 1)


@pytest.mark.parametrize(
    ("hangs", "synced_index", "is_fine"), [(True, 3, False), (False, 3, True), (True, 4, True)]
)
def test_a_leader_whose_disk_hangs_gives_up_leadership(hangs, synced_index, is_fine):
    one, _ = replica(synced_index=synced_index)
    one.process = SimpleNamespace(gate_shut=hangs)
    validator = HungDisk()
    validator.on_boot(one)
    for tick in (1, HANG_TICKS + 1):
        one.state.tick = tick
        validator.on_tick(one)
    one.state.tick += 1
    if is_fine:
        validator.on_tick(one)
    else:
        with pytest.raises(Violation, match="has not answered since tick 1"):
            validator.on_tick(one)


def test_a_disk_that_has_answered_is_counted_anew():
    one, _ = replica(synced_index=3)
    one.process = SimpleNamespace(gate_shut=True)
    validator = HungDisk()
    validator.on_boot(one)
    for tick, hangs in ((1, True), (HANG_TICKS, False), (HANG_TICKS + 2, True)):
        one.state.tick, one.process.gate_shut = tick, hangs
        validator.on_tick(one)


@pytest.mark.parametrize(
    ("path", "is_fine"),
    [
        ("/store/dledger-n0/data/00000000000000000000", False),
        ("/store/dledger-n0/currterm", False),
        ("/store/config/topics.json", True),
        ("/store/index/20260101", True),
    ],
)
def test_a_failure_of_the_log_is_the_end_of_the_process(path, is_fine):
    one, _ = replica()
    one.disk.failures.append(path)  # of a life before
    validator = FatalFailure()
    validator.on_boot(one)
    look(validator, one, 1)
    one.disk.failures.append(path)
    for tick in (2, 2 + FAILED_TICKS):
        look(validator, one, tick)
    if is_fine:
        look(validator, one, 3 + FAILED_TICKS)
    else:
        with pytest.raises(Violation, match="could not be written or synced before tick 2"):
            look(validator, one, 3 + FAILED_TICKS)

"""Members are those of the last configuration in a replica's log, or of its snapshot."""

from types import SimpleNamespace

import pytest

from dledger.core.configuration import ConfigEntry, Configuration
from dledger.core.model import SnapshotId
from dledger.core.snapshot import SnapshotMeta
from sim.oracles.base import Violation
from sim.oracles.in_force import InForce
from sim.oracles.replica import Mark
from sim.oracles.truth import Truth

FIRST = ("n0", "n1", "n2")
AFTER = ("n0", "n1", "n3")


def truth():
    known = Truth(FIRST)
    known.configurations[4, 1] = AFTER
    known.committed = [Mark(1, 100 * index, 10, index) for index in range(6)]
    return known


def snapshot(*, last=5, index=4, voters=AFTER):
    entry = ConfigEntry(index, 1, Configuration(dict.fromkeys(voters, "")))
    return SnapshotMeta(SnapshotId(last, 1, 10, 0), 0, last, entry)


def replica(*, last=5, base=0, voters=AFTER, disk_last=None, is_busy=False, meta=None, **more):
    marks = {index: Mark(1, 100 * index, 10, index) for index in range(base, last + 1)}
    log = SimpleNamespace(last_index=last, has_work=lambda: is_busy)
    return SimpleNamespace(
        name="n0", base=base, is_corrupt=False, mark=marks.get,
        state=SimpleNamespace(voters=dict.fromkeys(voters, ""), log=log),
        store=SimpleNamespace(
            last_index=last if disk_last is None else disk_last,
            snapshots=SimpleNamespace(meta=meta),
        ),
        node=SimpleNamespace(_in_flight=None),
        **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    "sound",
    [
        replica(),
        replica(base=5),
        replica(last=3, voters=FIRST),
        replica(last=3, voters=(*FIRST, "n4")),
        replica(voters=FIRST, is_busy=True),
        replica(voters=FIRST, disk_last=3),
    ],
    ids=["its log", "its snapshot", "none yet", "none, and it joins", "on its way", "not written"],
)
def test_who_counts_the_members_of_its_log_is_sound(sound):
    validator = InForce(truth())
    validator.on_boot(sound)
    validator.on_change(sound, None)


@pytest.mark.parametrize("base", [0, 5], ids=["its log", "its snapshot"])
def test_who_counts_others_is_found(base):
    validator = InForce(truth())
    with pytest.raises(Violation, match="A30 configuration"):
        validator.on_change(replica(base=base, voters=FIRST), None)


def test_a_group_that_never_changed_has_nothing_to_compare():
    InForce(Truth(FIRST)).on_boot(replica(voters=AFTER))


@pytest.mark.parametrize(
    ("meta", "is_sound"),
    [
        (snapshot(), True),
        (snapshot(last=3, index=-1, voters=FIRST), True),
        (snapshot(last=3, index=4), False),
        (snapshot(index=-1, voters=FIRST), False),
        (snapshot(voters=FIRST), False),
    ],
    ids=["behind it", "before it", "of what follows", "of before", "other members"],
)
def test_a_snapshot_has_the_members_of_its_place(meta, is_sound):
    validator, one = InForce(truth()), replica(meta=meta)
    if is_sound:
        validator.on_change(one, None)
    else:
        with pytest.raises(Violation, match=InForce.snapshot_name):
            validator.on_change(one, None)
    validator.on_change(one, None)  # it is judged once

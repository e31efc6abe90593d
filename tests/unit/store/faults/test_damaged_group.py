"""A replica of three whose files are damaged: the others give it back what it lost.

The model: with a majority of sound replicas nothing is ever missing. The damaged one either refuses
to start, with file and place, or ends up with exactly what the others have; and whoever leads, all
that was acknowledged is read, and no replica ever shows anything else.
"""

from contextlib import suppress
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.repair import Repairer
from ledgermq.runtime.errors import FatalError
from tests.unit.store.faults.damage import CONTENT, NAMES, Damage, damages, disk_of, image
from tests.unit.store.faults.promises import check_refusal
from tests.unit.store.faults.stores import fill
from tests.unit.store.faults.world import ROOT, Cluster, check, no_hang

REPLICAS = ("n0", "n1", "n2")
FAULTS = settings(settings.get_profile("faults"))
if FAULTS.max_examples == 150:
    FAULTS = settings(FAULTS, max_examples=60)
ELECT_MS = 10_000
REPAIR_MS = 20_000


@cache
def built():
    """Return the files of three replicas that were stopped cleanly, and what was sent."""
    cluster = Cluster({name: disk_of({}) for name in REPLICAS})
    for name in REPLICAS:
        cluster.boot(name)
    assert cluster.loop.run_until_true(lambda: cluster.writable() is not None, ELECT_MS)
    leader = cluster.writable()
    fill(cluster, rounds=20, name=leader)
    cluster.run_for(6_000)
    for name in sorted(REPLICAS, key=lambda name: name == leader):
        assert cluster.stop(name) is None
    cluster.close()
    return {name: image(cluster.disks[name]) for name in REPLICAS}, cluster.sent


def check_start(found, victim):
    """Damage one replica, start all; returns what became of it."""
    files, sent = built()
    files = {name: dict(files[name]) for name in REPLICAS}
    for damage in found:
        if files[victim]:
            damage.befall(files[victim])
    with no_hang():
        cluster = Cluster({name: disk_of(files[name]) for name in REPLICAS})
        try:
            for name in REPLICAS:
                cluster.boot(name)
            assert cluster.loop.run_until_true(lambda: cluster.writable() is not None, ELECT_MS)
            cluster.sent = sent
            leader = cluster.writable()
            status = cluster.put("t9", 0, b"%d" % len(sent.bodies.get(("t9", 0), [])), name=leader)
            assert status.value == "ok"
            cluster.loop.run_until_true(lambda: is_settled(cluster), REPAIR_MS)
            for name in REPLICAS:
                if name != victim:
                    assert cluster.is_alive(name), cluster.error(name)
            if not cluster.is_alive(victim):
                return check_refusal(cluster.error(victim))
            cluster.read(victim)  # some damage is noticed by whoever meets it
            cluster.loop.run_until_true(lambda: is_settled(cluster), REPAIR_MS)
            assert is_settled(cluster), cluster.log(victim).status()
            for name in REPLICAS:
                read = cluster.read(name)
                read.pop(("t9", 0), None)
                check(read, sent, acknowledged=False)
                seen = {(*place, offset) for place, queue in read.items() for offset in queue}
                assert seen == {key for key in sent.acknowledged if key[0] != "t9"}, name
                assert all(m for queue in read.values() for m in queue.values()), name
            return "repaired"
        finally:
            forget_extra(sent)
            with suppress(FatalError):
                cluster.close()


def forget_extra(sent):
    """Let the next case begin with what was built."""
    for key in [key for key in sent.acknowledged if key[0] == "t9"]:
        del sent.acknowledged[key]
    sent.bodies.pop(("t9", 0), None)


def is_settled(cluster):
    """Whether all that live hold the same, with nothing damaged that was read."""
    live = [name for name in REPLICAS if cluster.is_alive(name) and name in cluster.brokers]
    ends = {cluster.store(name).applied for name in live}
    return len(ends) == 1 and not any(cluster.log(name)._store.corruption.damaged for name in live)


@FAULTS
@given(damages(CONTENT, max_size=2), st.sampled_from(REPLICAS))
def test_a_replica_with_damaged_files_is_repaired_or_refuses(found, victim):
    check_start(found, victim)


@FAULTS
@given(damages(NAMES, max_size=3), st.sampled_from(REPLICAS))
def test_a_replica_without_some_of_its_files_is_repaired_or_refuses(found, victim):
    check_start(found, victim)


def test_a_group_that_repairs_nothing_would_be_found(monkeypatch):
    monkeypatch.setattr(Repairer, "_restore", lambda *_: False)
    path = f"{ROOT}/dledger-n1/data/00000000000000008192"
    with pytest.raises(AssertionError):
        check_start([Damage("flip", path, (0.3, 0.5, 0.7), 1)], "n1")

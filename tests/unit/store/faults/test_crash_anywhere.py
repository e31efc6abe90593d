"""A broker that ends at any step of its disk, and again while it recovers, has lost nothing.

Every case ends the script of `crashes` at one step, mostly with a loss of power; the restarts are
cut short too. ``STORE_FAULT_CASES=5000`` plays so many cases, at every step in many ways.
"""

from functools import cache

import pytest

from broker.state.snapshot import Capture, Snapshot
from dledger.codec.snapshot import decode_snapshot
from dledger.driver import Driver
from dledger.storage.snapshot_files import SnapshotFiles
from ledgermq.runtime.errors import FatalError
from store.plain import PlainLog
from tests.unit.store.faults.conftest import CASES
from tests.unit.store.faults.crashes import Case, reference

CI_CASES = 100

played = cache(reference)


MODES = [pytest.param(True, id="raft"), pytest.param(False, id="plain")]


def cases(count, *, raft=True):
    """Return steps and seeds, spread over the whole script."""
    steps, _ = played(raft=raft)
    stride = max(1, steps // count)
    found = [
        (step, seed)
        for seed in range(-(-count * stride // steps))
        for step in range(seed % stride, steps, stride)
    ]
    return found[:count]


def play(count, *, raft=True):
    _, begins = played(raft=raft)
    for step, seed in cases(count, raft=raft):
        Case(step, seed, {"raft": raft}).run(begins)


@pytest.mark.parametrize("raft", MODES)
def test_a_crash_at_any_step_loses_nothing_that_was_acknowledged(raft):
    assert played(raft=raft)[0] > 700
    play(CASES or CI_CASES, raft=raft)


def no_sync_before_the_answer(patch):
    patch.setattr(Driver, "needs_sync", lambda _: False)
    patch.setattr(
        Driver, "_is_sync", property(lambda _: False, lambda _, value: None), raising=False
    )


def tables_saved_behind_their_index(patch):
    write = Snapshot.write

    def write_index_first(snapshot, capture):
        for name in reversed(capture.files):
            part = {name: capture.files[name]}
            write(snapshot, Capture(capture.applied_index, part, capture.revisions))

    patch.setattr(Snapshot, "write", write_index_first)


def segments_removed_before_the_snapshot_is_saved(patch):
    def save(snapshots, data):
        snapshots.newest = decode_snapshot(data)[0]
        return True

    patch.setattr(SnapshotFiles, "save", save)


def no_sync_of_the_plain_log_before_the_answer(patch):
    patch.setattr(PlainLog, "_is_sync", property(lambda _: False, lambda *_: None), raising=False)


@pytest.mark.parametrize(
    ("plant", "raft"),
    [
        (no_sync_before_the_answer, True),
        (tables_saved_behind_their_index, True),
        (segments_removed_before_the_snapshot_is_saved, True),
        (no_sync_of_the_plain_log_before_the_answer, False),
    ],
)
def test_a_planted_bug_is_found(plant, raft, monkeypatch):
    played(raft=raft)
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError, FatalError)):
        play(CI_CASES, raft=raft)

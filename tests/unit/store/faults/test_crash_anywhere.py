"""A broker that ends at any step of its disk, and again while it recovers, has lost nothing.

Every case ends the script of `crashes` at one step, mostly with a loss of power; the restarts are
cut short too. ``STORE_FAULT_CASES=5000`` plays so many cases, at every step in many ways.
"""

from functools import cache

import pytest

from broker.snapshot import Capture, Snapshot
from dledger.codec.snapshot import decode_snapshot
from dledger.driver import Driver
from dledger.storage.snapshot_files import SnapshotFiles
from runtime.errors import FatalError
from store import message_store
from tests.unit.store.faults.conftest import CASES
from tests.unit.store.faults.crashes import Case, reference

CI_CASES = 120

played = cache(reference)


def cases(count):
    """Return steps and seeds, spread over the whole script."""
    steps, _ = played()
    stride = max(1, steps // count)
    found = [
        (step, seed)
        for seed in range(-(-count * stride // steps))
        for step in range(seed % stride, steps, stride)
    ]
    return found[:count]


def play(count):
    _, begins = played()
    for step, seed in cases(count):
        Case(step, seed, {}).run(begins)


def test_a_crash_at_any_step_loses_nothing_that_was_acknowledged():
    assert played()[0] > 700
    play(CASES or CI_CASES)


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
        snapshots.meta = decode_snapshot(data)[0]
        return True

    patch.setattr(SnapshotFiles, "save", save)


def a_start_that_skips_an_entry(patch):
    agree = message_store.agree_with_log
    patch.setattr(message_store, "agree_with_log", lambda *arguments: agree(*arguments) + 1)


@pytest.mark.parametrize(
    "plant",
    [
        no_sync_before_the_answer,
        tables_saved_behind_their_index,
        segments_removed_before_the_snapshot_is_saved,
        a_start_that_skips_an_entry,
    ],
)
def test_a_planted_bug_is_found(plant, monkeypatch):
    played()
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError, FatalError)):
        play(CI_CASES)

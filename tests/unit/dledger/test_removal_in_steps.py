"""A trim removes its segments a few at a time; whatever comes between, a start finds one row."""

import pytest

from dledger.codec.entry import encode_span
from dledger.codec.properties import Checkpoint
from dledger.codec.snapshot import decode_snapshot, encode_snapshot
from dledger.core.snapshot import StageWork
from dledger.storage import log_store
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.dledger.test_snapshot import GROUP, SEGMENT, make_log, open_store, snapshot


@pytest.fixture(autouse=True)
def _one_at_a_time(monkeypatch):
    monkeypatch.setattr(log_store, "REMOVED_AT_ONCE", 1)


def trimmed(store, limit):
    """Begin the log behind an entry; return the steps that remove what was before."""
    plan = store.plan_trim(limit)
    last = (plan.first_index - 1, plan.base_term, plan.position)
    assert store.snapshots.save(encode_snapshot(last, limit, GROUP, b"state"))
    steps = store.trim(plan)
    assert len(steps) > 2
    return steps


def bases(path):
    return sorted(int(file.name) for file in (path / "data").iterdir())


def installed_amid_a_trim(path):
    """Return the first entry of a log that was opened again."""
    make_log(path, 200).close()
    store = open_store(path, RealDisk(), Checkpoint(199, 199))
    trimmed(store, 150)[0]()
    data = snapshot(1_000, 2, 1_000 * SEGMENT)
    meta, _ = decode_snapshot(data)
    assert store.stage(StageWork(meta.id, 0, data, install=True)).installed == meta
    store.restart(meta)
    store.append([encode_span(1_001, 9, store.place(store.end_position, 52), [b"next"])])
    store.close()  # what is left of the steps is not done
    again = open_store(path, RealDisk(), Checkpoint(199, 199))
    again.close()
    return again.first_index, again.last_index


def test_a_snapshot_takes_the_place_of_a_log_that_is_being_trimmed(tmp_path):
    assert installed_amid_a_trim(tmp_path / "n") == (1_001, 1_001)


def test_the_planted_gap_behind_an_install_is_noticed(tmp_path):
    with planted(BY_TESTS["installed-amid-a-removal"]), pytest.raises(FatalError):
        installed_amid_a_trim(tmp_path / "n")


def test_two_trims_at_a_time_leave_no_gap(tmp_path):
    """One is a peer's snapshot, which is adopted, the other the own one."""
    path = tmp_path / "n"
    make_log(path, 200).close()
    store = open_store(path, RealDisk(), Checkpoint(199, 199))
    first, second = trimmed(store, 80), trimmed(store, 150)
    for step in (first[0], second[0], *first[1:], *second[1:]):
        step()
        found = bases(path)
        assert found == list(range(found[0], found[-1] + 1, SEGMENT)), "a gap"
    assert found[0] == store.first_position // SEGMENT * SEGMENT
    store.close()

"""A trim removes its segments a few at a time; whatever comes between, a start finds one row."""

import errno

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


class Full(RealDisk):
    """One on which no more files may be opened, which a removal needs, while it is so."""

    __slots__ = ("is_full",)

    def __init__(self):
        super().__init__()
        self.is_full = False

    def remove(self, path):
        self.check(path)
        super().remove(path)

    def replace(self, path, data):
        if not path.endswith("install"):
            self.check(path)
        super().replace(path, data)

    def open(self, path, *, size):
        self.check(path)
        return super().open(path, size=size)

    def check(self, path):
        if self.is_full:
            raise OSError(errno.EMFILE, "Too many open files", path)


def test_segments_that_cannot_be_removed_wait_for_the_next_trim(tmp_path):
    path, disk = tmp_path / "n", Full()
    make_log(path, 200).close()
    store = open_store(path, disk, Checkpoint(199, 199))
    steps = trimmed(store, 80)
    disk.is_full = True
    for step in steps:
        step()
    assert bases(path)[0] == 0
    disk.is_full = False
    for step in trimmed(store, 150):
        step()
    assert bases(path)[0] == store.first_position // SEGMENT * SEGMENT
    store.close()


def test_a_snapshot_waits_for_segments_that_cannot_be_removed(tmp_path):
    path, disk = tmp_path / "n", Full()
    make_log(path, 200).close()
    store = open_store(path, disk, Checkpoint(199, 199))
    trimmed(store, 150)
    data = snapshot(1_000, 2, 1_000 * SEGMENT)
    meta, _ = decode_snapshot(data)
    disk.is_full = True
    assert not store.stage(StageWork(meta.id, 0, data, install=True)).kept
    disk.is_full = False
    assert store.stage(StageWork(meta.id, 0, data, install=True)).installed == meta
    store.restart(meta)
    assert bases(path) == []
    store.close()


def log_of_a_snapshot_that_was_refused_before(path):
    """Install a snapshot in vain, trim to where it begins, and open the log again."""
    disk = Full()
    make_log(path, 200).close()
    store = open_store(path, disk, Checkpoint(199, 199))
    plan = store.plan_trim(80)
    last = (plan.first_index - 1, plan.base_term, plan.position)
    data = encode_snapshot(last, 80, GROUP, b"state")
    meta, _ = decode_snapshot(data)
    store.snapshots.stage(StageWork(meta.id, 0, data, install=True))
    disk.is_full = True  # just as it was kept aside
    with pytest.raises(OSError, match="open files"):
        store.snapshots.install(meta.id)
    assert (path / "snapshot.install").exists()
    disk.is_full = False
    assert store.snapshots.save(data)
    store.trim(plan)
    store.close()
    again = open_store(path, RealDisk(), Checkpoint(199, 199))
    again.close()
    return again.last_index


def test_a_marker_that_could_not_be_removed_voids_no_log(tmp_path):
    assert log_of_a_snapshot_that_was_refused_before(tmp_path / "n") == 199
    with planted(BY_TESTS["marker-left-behind"]), pytest.raises(FatalError, match="nothing there"):
        log_of_a_snapshot_that_was_refused_before(tmp_path / "m")


def test_a_snapshot_that_cannot_be_opened_is_read_later(tmp_path):
    path, disk = tmp_path / "n", Full()
    make_log(path, 200).close()
    store = open_store(path, disk, Checkpoint(199, 199))
    trimmed(store, 80)
    disk.is_full = True
    assert store.read_snapshot(0, 10) == b""
    disk.is_full = False
    assert store.read_snapshot(0, 10) == (path / "snapshot").read_bytes()[:10]
    trimmed(store, 150)
    disk.is_full = True
    assert [store.read_snapshot(0, 10), store.read_snapshot(0, 10)] == [b"", b""]
    disk.is_full = False
    assert store.read_snapshot(0, 10) == (path / "snapshot").read_bytes()[:10]
    store.close()

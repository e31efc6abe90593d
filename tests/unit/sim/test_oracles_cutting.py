"""What is cut off a log is gone for good; what a queue remembers of its files is what they hold."""

from types import SimpleNamespace
from zlib import crc32

import pytest

from sim.oracles.base import Findings, Violation
from sim.oracles.cutting import LOOK_STEP, Cutting, QueueSums

SEGMENT, FILE = 64, 40
CHANGE = None


class Disk:
    """A disk that holds the same in all files, and says what is durable."""

    is_watched = False

    def __init__(self, *, durable=True, failed=False, blocked=False):
        self.durable, self.failed, self.blocked = durable, failed, blocked
        self.asked = []

    def has_failed_syncs(self):
        return self.failed

    def is_durable(self, path, offset, size):
        self.asked.append((path, offset, size))
        return self.durable

    def look(self, path):
        return memoryview(path.encode().ljust(FILE, b"u"))


def row(start=0, end=2 * SEGMENT):
    return SimpleNamespace(
        start=start, end=end, segment_bytes=SEGMENT, cut=lambda _at: None, path=lambda at: f"f{at}"
    )


def cut_at(position, disk, data):
    """Cut a log there; return the oracle that reported, and what the disk was asked."""
    findings, completed = Findings(), []
    driver = SimpleNamespace(complete=lambda ready: completed.append(ready) or True)
    store = SimpleNamespace(_data=data, _index=row())
    node = SimpleNamespace(_driver=driver)
    one = SimpleNamespace(name="n0", disk=disk, store=store, node=node)
    Cutting(findings).on_boot(one)
    store._data.cut(position)
    assert not disk.asked  # the thread that cuts has not returned yet
    assert driver.complete("ready") is True
    assert completed == ["ready"]
    return None if findings.first is None else findings.first.oracle


@pytest.mark.parametrize(
    ("disk", "data", "found"),
    [
        (Disk(), row(), None),
        (Disk(durable=False), row(), Cutting.name),
        (Disk(durable=False, failed=True), row(), None),
        (Disk(durable=False, blocked=True), row(), None),  # the sync of the cut hangs
        (Disk(durable=False), row(end=SEGMENT), None),
    ],
)
def test_what_is_behind_a_cut_is_zero_for_good(disk, data, found):
    assert cut_at(70, disk, data) == found


def test_the_rest_of_the_segment_is_looked_at():
    disk = Disk()
    cut_at(70, disk, row())
    assert disk.asked == [("f70", 6, SEGMENT - 6)]


def queue(first_file, written, sums):
    files = SimpleNamespace(file_bytes=FILE, file_blocks=1, block_bytes=4_096)
    return SimpleNamespace(
        _files=files, topic="T", queue_id=0, first_file=first_file, written=written,
        crcs=b"".join(one.to_bytes(4, "big") for one in sums), unchecked=0,
        block_range=lambda block: (first_file + block * FILE, first_file + (block + 1) * FILE),
        path=lambda start: f"f{start}",
    )  # fmt: skip


def sum_of(start):
    return crc32(bytes(Disk().look(f"f{start}")))


def looked_at(*queues, is_corrupt=False):
    """Look at a replica whose queue is one after the other."""
    oracle = QueueSums()
    for one in queues:
        store = SimpleNamespace(_queues=SimpleNamespace(by_name={("T", 0): one}))
        replica = SimpleNamespace(
            name="n0", disk=Disk(), is_corrupt=is_corrupt, controller=SimpleNamespace(store=store)
        )
        oracle.on_boot(replica)
        for _ in range(LOOK_STEP):
            oracle.on_change(replica, CHANGE)


def test_a_queue_has_the_sums_of_its_files():
    looked_at(queue(0, 90, [sum_of(0), sum_of(40)]), queue(40, 90, [sum_of(40)]))


def test_a_sum_of_a_file_that_is_gone_is_found():
    with pytest.raises(Violation, match="2 sums of 1 blocks"):
        looked_at(queue(40, 90, [sum_of(0), sum_of(40)]))


def test_a_sum_of_another_file_is_found_once_files_have_moved_on():
    begun, other = queue(0, 90, [sum_of(0), sum_of(40)]), queue(40, 90, [sum_of(0)])
    looked_at(other)
    with pytest.raises(Violation, match="another sum of block 0"):
        looked_at(begun, other)
    looked_at(begun, other, is_corrupt=True)

"""A checkpoint of queues is judged at the moment at which it gets its name."""

import pytest

from dledger.mark import LogMark
from sim.disk import SimDisk
from sim.oracles.base import Findings
from sim.oracles.queue_files import BEHIND_NAME, CLEAN_NAME, NAME, UNIT_BYTES, QueueFiles
from sim.rng import SplitRng
from store.recovery.checkpoint import CheckpointHead, QueueMark, encode_queues, join_checkpoint

FILE_BYTES = 4 * UNIT_BYTES
FOLDER = "/store/consumequeue/orders/0"


class Machine:
    """A disk with one queue, in files of four units."""

    def __init__(self, ends=()):
        self.findings = Findings()
        self.disk = SimDisk(SplitRng(1), host="n0")
        self.disk.make_directories(FOLDER)
        self.asked = []
        QueueFiles(self.disk, self.findings, lambda *mark: self.asked.append(mark) or ends)

    def write(self, start, units, *, synced=True):
        path = f"{FOLDER}/{start:020d}"
        file = self.disk.open(path, size=FILE_BYTES)
        file.pwrite(0, [bytes(range(units * UNIT_BYTES))])
        if synced:
            file.fdatasync()

    def note(self, low, high, first=0):
        """Write the checkpoint; return which oracle has found something."""
        head = CheckpointHead(FILE_BYTES, 4096, 0, (LogMark(12, 3, 1_000),))
        queues = encode_queues([QueueMark("orders", 0, low, high, first, b"", 0)])
        content = join_checkpoint(head, [queues])
        self.disk.replace("/store/consumequeue.checkpoint", content)
        found = self.findings.first
        return None if found is None else found.oracle


def test_what_is_synced_may_be_said():
    machine = Machine()
    machine.write(0, 4)
    machine.write(FILE_BYTES, 1)
    assert machine.note(0, 5) is None


@pytest.mark.parametrize("start", [0, FILE_BYTES])
def test_what_is_not_synced_may_not_be_said(start):
    machine = Machine()
    machine.write(0, 4, synced=start != 0)
    machine.write(FILE_BYTES, 1, synced=start == 0)
    assert machine.note(0, 5) == NAME


def test_a_file_that_is_not_there_may_not_be_said():
    machine = Machine()
    machine.write(0, 4)
    assert machine.note(0, 5) == NAME


def test_what_lies_before_the_beginning_need_not_be_there():
    machine = Machine()
    machine.write(FILE_BYTES, 1)
    assert machine.note(4, 5, first=FILE_BYTES) is None


def test_other_files_say_nothing():
    machine = Machine()
    machine.disk.replace("/store/checkpoint", b"anything")
    assert machine.findings.first is None


def test_the_note_of_a_good_end_comes_behind_the_last_checkpoint_and_goes_with_the_next_start():
    machine = Machine()
    machine.write(0, 4)
    assert machine.note(0, 4) is None
    machine.disk.replace("/store/consumequeue.clean", b"4")
    assert machine.findings.first is None
    machine.disk.remove("/store/consumequeue.clean")
    assert machine.note(0, 4) is None
    machine.disk.replace("/store/consumequeue.clean", b"4")
    assert machine.note(0, 4) == CLEAN_NAME


@pytest.mark.parametrize(
    ("ends", "oracle"),
    [
        ((("orders", 0, 4),), None),
        ((("orders", 0, 5),), BEHIND_NAME),
        ((("other", 0, 1),), BEHIND_NAME),
    ],
)
def test_queues_reach_as_far_as_the_entry_that_is_named(ends, oracle):
    machine = Machine(ends)
    machine.write(0, 4)
    assert machine.note(0, 4) == oracle
    assert machine.asked == [(12, 3)]

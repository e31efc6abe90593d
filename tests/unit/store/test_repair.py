"""Blocks of a queue are told apart by where they begin: their numbers shift as files go."""

import pytest

from dledger.errors import DamagedEntry
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.config import StoreConfig
from store.layout import UNIT, UNIT_BYTES
from store.queues.consume_queue import ConsumeQueues, DamagedUnits
from store.recovery.repair import Repairer
from tests.unit.store.fakes import HOST, FakeDisk
from tests.unit.store.test_quarantine import record

BLOCK = 3
"""Units in a block."""
FILE = 6
COUNT = 20


class Log:
    """Messages of one queue side by side, of which some may be damaged."""

    first_position = 0

    def __init__(self):
        self.places = []
        self.data = b""
        for offset in range(COUNT):
            self.places.append(len(self.data))
            self.data += record("t", offset, len(self.data))
        self.damaged = set()

    def walk(self, start, end, limit):
        for place, behind in zip(self.places, [*self.places[1:], len(self.data)], strict=True):
            if start <= place < end and limit > 0:
                if place in self.damaged:
                    raise DamagedEntry(place, "damaged")
                limit -= 1
                yield place, self.data, place, behind - place

    def maybe_size(self, place):
        return len(self.data) // COUNT if place in self.places else None


def begun():
    """Return a queue of several files, its log, and what repairs it."""
    log = Log()
    size = FILE * UNIT_BYTES
    config = StoreConfig(
        directory="/s", store_host=HOST, queue_file_bytes=size, is_replicated=False
    )
    queues = ConsumeQueues(config, FakeDisk())
    queues.files.block_bytes = BLOCK * UNIT_BYTES
    queue = queues.maybe_make(b"t", 0)
    size = len(log.data) // COUNT
    for place in log.places:
        queues.take(queue, UNIT.pack(place, size, 0), 1)
    assert queues.flush()
    return queue, log, Repairer(config, queues, log)


def damage(queue, offset):
    """Damage the block of a unit, and have that noticed."""
    files, position = queue._files, offset * UNIT_BYTES
    at = position % files.file_bytes
    files.write(queue.path(position - at), at, b"?")
    queue.distrust(offset)
    with pytest.raises(DamagedUnits):
        queue.read(offset, 1)


def drop_a_file(queue):
    queue.min_offset += FILE
    assert queue.drop_files() == 1


def is_repaired_after_another_one_was_given_up():
    queue, log, repairer = begun()
    log.damaged = {log.places[4]}
    damage(queue, BLOCK)
    repairer.step(len(log.data))
    assert not repairer.is_at_work, "it is given up"
    drop_a_file(queue)
    damage(queue, FILE + BLOCK)
    log.damaged.clear()
    repairer.step(len(log.data))
    return not queue._files.damaged


def is_repaired_in_the_place_of_another_one(monkeypatch):
    queue, log, repairer = begun()
    monkeypatch.setattr("store.recovery.repair.STEP_ENTRIES", 1)
    damage(queue, BLOCK)
    repairer.step(len(log.data))
    drop_a_file(queue)
    damage(queue, FILE + BLOCK)
    for _ in range(COUNT):
        repairer.step(len(log.data))
    return not queue._files.damaged


def test_what_was_given_up_is_no_other_block():
    assert is_repaired_after_another_one_was_given_up()
    with planted(BY_TESTS["given-up-by-number"]):
        assert not is_repaired_after_another_one_was_given_up()


def test_a_repair_does_not_go_on_with_another_block(monkeypatch):
    assert is_repaired_in_the_place_of_another_one(monkeypatch)

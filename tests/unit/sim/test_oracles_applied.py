"""What a consume queue says of an entry, where its file is damaged: by a fault, or by nobody."""

from types import SimpleNamespace

import pytest

from sim.oracles.applied import Applied
from sim.oracles.base import Violation
from store.queues.consume_queue import DamagedUnits


class DamagedQueue:
    """A queue of one message that cannot be read."""

    topic, queue_id, min_offset, max_offset = "orders", 0, 0, 1

    def read(self, _offset, _count):
        raise DamagedUnits(self, 0)


def replica(*, damages):
    queues = SimpleNamespace(by_name={("orders", 0): DamagedQueue()})
    return SimpleNamespace(
        name="n0", base=0, disk=SimpleNamespace(damages=damages),
        controller=SimpleNamespace(store=SimpleNamespace(_queues=queues)),
    )  # fmt: skip


def oracle():
    mark = SimpleNamespace(term=1, position=0)
    row = SimpleNamespace(type="message", topic="orders", queue_id=0, queue_offset=0, size=100)
    return Applied(SimpleNamespace(committed=[mark], rows={(0, 1): row}, tags={}, times={}))


def test_damage_that_no_fault_has_done_is_found():
    with pytest.raises(Violation, match="damage that no fault has done"):
        oracle()._check_units(replica(damages=0), 0, 0)


def test_damage_that_a_fault_has_done_is_the_brokers_to_repair():
    oracle()._check_units(replica(damages=1), 0, 0)

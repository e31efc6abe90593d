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


def holder(*, queues=(), topics=("orders",), applied=9, damages=0):
    """A replica whose log begins with entry 8, and which has these queues."""
    tables = SimpleNamespace(topics=SimpleNamespace(configs=lambda: dict.fromkeys(topics)))
    store = SimpleNamespace(_queues=SimpleNamespace(by_name=dict.fromkeys(queues, DamagedQueue())))
    return SimpleNamespace(
        name="n0", base=8, is_corrupt=True, disk=SimpleNamespace(damages=damages),
        applied_index=applied, controller=SimpleNamespace(store=store, tables=tables),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "is_sound"),
    [
        ({}, False),
        ({"queues": [("orders", 0)]}, True),
        ({"topics": ()}, True),  # it was removed
        ({"applied": 3}, True),  # it has come no further
        ({"damages": 1}, True),
    ],
)
def test_a_queue_all_of_whose_messages_were_dropped_is_there(changes, is_sound):
    rows = [SimpleNamespace(entry_index=index) for index in (2, 5)]
    judge = Applied(SimpleNamespace(queues={("orders", 0): rows}))
    judge._check_begins(holder(**changes), is_late=False)
    if is_sound:
        judge._check_begins(holder(**changes), is_late=True)
    else:
        with pytest.raises(Violation, match="had 2 messages before entry 8"):
            judge._check_begins(holder(**changes), is_late=True)

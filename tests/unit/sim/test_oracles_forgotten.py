"""Offsets go with their topic, queue or group, and no sooner."""

from types import SimpleNamespace

import pytest

from sim.oracles.base import Violation
from sim.oracles.forgotten import NAME, Forgotten


def topic(read, write):
    config = {"topicName": "T", "readQueueNums": read, "writeQueueNums": write}
    return ("topic", {"config": config})


GROUP = ("group", {"config": {"groupName": "g"}})
GONE = ("forget-offsets", {"offsets": {"T@g": [1]}})


def judged(*records):
    """Return what is found of records of state, as the log has them."""
    oracle = Forgotten()
    try:
        for entry, (kind, content) in enumerate(records):
            oracle.on_statement(SimpleNamespace(entry=entry, kind=kind, content=content))
    except Violation as found:
        return found.oracle
    return None


@pytest.mark.parametrize(
    ("records", "oracle"),
    [
        ([topic(2, 2), GROUP, GONE], NAME),
        ([topic(2, 1), GROUP, GONE], NAME),
        ([topic(1, 1), GROUP, GONE], None),
        ([topic(2, 2), topic(1, 1), GROUP, GONE], None),
        ([topic(2, 2), GONE], None),
        ([GROUP, GONE], None),
        ([topic(2, 2), GROUP, ("forget-topic", {"topic": "T"}), GONE], None),
        ([topic(2, 2), GROUP, ("forget-group", {"group": "g"}), GONE], None),
        ([topic(2, 2), GROUP, ("lock", ["no object"]), GONE], NAME),
    ],
)
def test_an_offset_that_can_be_read_from_stays(records, oracle):
    assert judged(*records) == oracle

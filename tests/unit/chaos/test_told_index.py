"""A35: at the index that a producer was told lies its message, and nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from chaos.checker import History, check_history
from tests.unit.chaos.histories import clean, entry, replica, send

NODES = ("n0", "n1", "n2")


def told(index: int, **more: Any) -> list[dict[str, Any]]:
    """Return sends of which the second was told an index."""
    return [send(1), send(2, raft_index=index, **more), send(3)]


def found(history: History) -> list[int]:
    return [row["msg_key"] for row in check_history(history).results["A35"].evidence]


@pytest.mark.parametrize(
    ("index", "keys"),
    [
        (2, []),
        (3, [2]),  # another message
        (0, [2]),  # no message
        (9, []),  # nobody has committed it yet
        (1 << 62, []),
    ],
)
def test_another_entry_at_the_index_that_was_told(index, keys):
    assert found(clean(sends=told(index))) == keys


def test_each_message_is_named_once():
    twice = [*told(3), send(2, raft_index=3, op_id=7)]
    assert found(clean(sends=twice)) == [2]


@pytest.mark.parametrize("kind", ["delay", "txn"])
def test_what_waits_lies_there_in_another_form(kind):
    assert found(clean(sends=told(0, kind=kind))) == []


def test_a_message_without_a_key_may_be_the_one_that_was_sent():
    logs = [replica(node, [None, 1, 2, 3]) for node in NODES]
    bare = entry(4, None, type="message", queue_offset=9)
    logs = [replace(log, rows=[*log.rows, bare], commit_index=4, end_index=4) for log in logs]
    assert found(clean(sends=told(4), replicas=logs)) == []


def test_sends_name_the_group_by_its_number():
    others = [replace(replica(f"m{n}", [None, 7, 8, 9]), group="b", number=1) for n in range(3)]
    logs = [replace(replica(node, [None, 1, 2, 3]), group="a") for node in NODES]
    history = clean(sends=told(2, raft_group=1), replicas=[*logs, *others], promised={"": 2})
    assert found(history) == [2]
    assert found(replace(history, sends=told(2, raft_group=0))) == []
    assert found(replace(history, sends=told(2, raft_group=5))) == []

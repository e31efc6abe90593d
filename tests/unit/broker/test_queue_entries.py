"""Entries of a consume queue as tools are shown them (321)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.processor.query import QueryProcessor
from tests.unit.broker.fakes import FakeConnection, request
from tests.unit.broker.test_processors import Bench, FakeQueues, is_there


@pytest.fixture
def bench() -> Bench:
    return Bench()


class FiveEntries(FakeQueues):
    """The store of the other tests, with entries."""

    def units(
        self, _topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]] | None:
        units = [(48 * number, 48, 0) for number in range(5)]
        return units[offset : offset + count] if queue_id == 0 else None


def test_entries_of_a_queue_come_with_what_a_connected_group_wants(bench: Bench) -> None:
    made = QueryProcessor(FiveEntries(), is_there, subscribed=bench.tables.consumers.subscription)

    def ask(**more: object) -> dict[str, Any]:
        answer = made.handle_units(
            None, request(321, topic="T", queueId=0, index=3, count=9, **more)
        )
        body: dict[str, Any] = json.loads(answer.body)
        assert [one["physicOffset"] for one in body.pop("queueData")] == [144, 192]
        assert (body.pop("minQueueIndex"), body.pop("maxQueueIndex")) == (2, 5)
        return body

    assert ask() == {}
    assert ask(consumerGroup="g") == {"filterData": "g@T is not online!"}
    bench.beat(FakeConnection())
    known = ask(consumerGroup="g")
    assert known["filterData"] == "null"
    assert known["subscriptionData"]["topic"] == "T"


def test_a_removed_topic_has_no_entries() -> None:
    made = QueryProcessor(FiveEntries(), is_there)
    asked = request(321, topic="gone", queueId=0, index=3, count=9)
    answer = made.handle_units(None, asked)
    assert (answer.code, answer.remark) == (1, "0@gone is not exist!")

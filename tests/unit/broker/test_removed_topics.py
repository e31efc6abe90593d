"""The removal of a topic, and what is told of its queues and keys then: nothing."""

from __future__ import annotations

import asyncio

import pytest

from broker.processor.query import QueryProcessor
from broker.processor.topics import TopicsProcessor
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.broker.fakes import is_there, request
from tests.unit.broker.test_processors import Bench, FakeKeys, FakeQueues, key_request


@pytest.mark.parametrize(
    ("topic", "code", "word"),
    [
        ("T", 0, ""),
        ("nosuch", 0, ""),
        ("TBW102", 1, "conflict with system topic"),
        ("bad!", 1, "illegal characters"),
        (" ", 1, "The specified topic is blank."),
        ("t" * 128, 1, "The specified topic is longer than topic max length."),
    ],
)
def test_a_topic_is_removed_that_is_here_or_could_be(topic: str, code: int, word: str) -> None:
    """As by RocketMQ, which says so of a name that is mistyped."""
    bench = Bench()
    topics = TopicsProcessor(bench.tables.topics, bench.admin._creator, lambda: True)
    answer = asyncio.run(topics.handle_delete(None, request(215, topic=topic)))
    assert answer.code == code
    assert word in (answer.remark or "")


def test_a_topic_of_an_adopted_directory_is_removed_whatever_its_name() -> None:
    bench = Bench()
    bench.put_topic("%RETRY%" + "g" * 200)
    topics = TopicsProcessor(bench.tables.topics, bench.admin._creator, lambda: True)
    answer = asyncio.run(topics.handle_delete(None, request(215, topic="%RETRY%" + "g" * 200)))
    assert answer.code == 0
    assert bench.tables.topics.get("%RETRY%" + "g" * 200) is None


def test_nothing_is_told_of_queues_and_keys_of_a_removed_topic() -> None:
    made = QueryProcessor(FakeQueues(), is_there)
    queue = {"topic": "gone", "queueId": 0}

    def told() -> list[dict[str, str]]:
        return [
            handle(None, request(code, timestamp=7, **queue)).ext_fields
            for code, handle in (
                (30, made.handle_max_offset), (31, made.handle_min_offset),
                (29, made.handle_by_time), (32, made.handle_earliest),
            )
        ]  # fmt: skip

    assert told() == [{"offset": "0"}] * 3 + [{"timestamp": "-1"}]
    by_key = QueryProcessor(FakeKeys([memoryview(b"record")]), is_there)
    assert by_key.handle_by_key(None, key_request(topic="gone")).code == 22
    with planted(BY_TESTS["removed-topic-still-read"]):
        assert told()[0] == {"offset": "5"}

"""What is told of the queues and keys of a topic that was removed: nothing."""

from __future__ import annotations

from broker.processor.query import QueryProcessor
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.broker.fakes import is_there, request
from tests.unit.broker.test_processors import FakeKeys, FakeQueues, key_request


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

"""What tools are told of queues and groups is what the log says."""

from collections import defaultdict
from types import SimpleNamespace

import pytest

from sim.oracles.base import Violation
from sim.oracles.stats_answers import GROUP_STATS, TOPIC_STATS, StatsAnswers
from sim.oracles.wire import Said
from tests.unit.sim.logs import Log, parts

QUEUE = b'{"brokerName":"b","queueId":0,"topic":"orders"}'


class Broker:
    """One whose queue has five messages; the first one was gone when it was asked."""

    def __init__(self):
        log = Log()
        for key in range(1, 6):
            log.add("orders", 0, key, parts())
        offered = defaultdict(set, {("g", "orders", 0): {3}})
        self.stats = StatsAnswers(log.truth, offered)
        self.replica = SimpleNamespace(name="n0", store=SimpleNamespace(first_index=2))
        self.note = SimpleNamespace(first_index=1, applied=3)

    def says(self, code, row, answer_code=0):
        request = Said(code, {"topic": "orders", "consumerGroup": "g"}, b"", 0, b"")
        request.note = self.note
        body = b'{"consumeTps":0.0,"offsetTable":{' + QUEUE + b":" + row + b"}}"
        try:
            self.stats.judges[code](self.replica, request, Said(answer_code, {}, body, 0, b""))
        except Violation:
            return False
        return True


@pytest.mark.parametrize(
    ("least", "most", "is_sound"),
    [(1, 4, True), (2, 5, True), (0, 4, False), (3, 4, False), (1, 3, False), (1, 6, False)],
)
def test_where_a_queue_begins_and_ends(least, most, is_sound):
    row = b'{"lastUpdateTimestamp":7,"maxOffset":%d,"minOffset":%d}' % (most, least)
    assert Broker().says(TOPIC_STATS, row) == is_sound


@pytest.mark.parametrize(
    ("end", "offset", "is_sound"), [(4, 3, True), (5, 0, True), (3, 3, False), (4, 2, False)]
)
def test_where_a_group_is(end, offset, is_sound):
    row = b'{"brokerOffset":%d,"consumerOffset":%d,"lastTimestamp":0}' % (end, offset)
    assert Broker().says(GROUP_STATS, row) == is_sound


def test_who_is_refused_is_told_nothing():
    assert Broker().says(TOPIC_STATS, b'{"maxOffset":99,"minOffset":99}', answer_code=1)

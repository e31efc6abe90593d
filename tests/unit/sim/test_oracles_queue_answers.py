"""Answers about where a queue was at a time, and where its messages lie, are those of the log."""

import json
from types import SimpleNamespace

import pytest

from sim.oracles.base import Violation
from sim.oracles.queue_answers import BY_TIME, EARLIEST, RESET, UNITS, QueueAnswers
from sim.oracles.wire import Said
from tests.unit.sim.logs import Log, parts

TIMES = (100, 200, 200, 300, 410)
FILE_UNITS = 3


class Broker:
    """One whose queue has messages of these times, of which it has dropped the first ones."""

    def __init__(self, begin=0):
        log = Log()
        for key, time in enumerate(TIMES, 1):
            log.add("orders", 0, key, parts(stored_ms=time))
        self.begin = begin
        self.answers = QueueAnswers(log.truth)
        self.replica = SimpleNamespace(
            name="n0",
            store=SimpleNamespace(first_index=begin),
            controller=SimpleNamespace(_config=SimpleNamespace(queue_file_bytes=20 * FILE_UNITS)),
        )

    def says(self, code, asked, body=b"", **told):
        request = Said(code, {"topic": "orders", "queueId": "0", **asked}, b"", 0, b"")
        answer = Said(0, {name: str(value) for name, value in told.items()}, body, 0, b"")
        request.note = SimpleNamespace(first_index=self.begin)
        span = (self.begin, len(TIMES))
        try:
            self.answers.judges[code](self.replica, request, answer, span)
        except Violation:
            return False
        return True


@pytest.mark.parametrize(
    ("begin", "told", "is_sound"), [(0, 100, True), (0, 410, False), (1, 200, True), (0, -1, False)]
)
def test_the_time_of_the_first_message_is_told(begin, told, is_sound):
    assert Broker(begin).says(EARLIEST, {}, timestamp=told) == is_sound


@pytest.mark.parametrize(
    ("boundary", "wanted", "told", "is_sound"),
    [
        ("LOWER", 200, 1, True),
        ("LOWER", 200, 2, False),
        ("LOWER", 200, 0, False),
        ("LOWER", 500, 5, True),
        ("UPPER", 200, 2, True),
        ("UPPER", 200, 1, False),
        ("UPPER", 200, 3, False),
        ("UPPER", 50, 0, True),
        ("", 140, 0, True),
        ("", 160, 1, True),
        ("", 160, 0, False),
        ("", 290, 3, True),
        ("", 400, 4, True),
        ("", 400, 3, False),
        ("", 200, 3, False),
        ("", 250, 2, False),
    ],
)
def test_the_message_of_a_time_is_told(boundary, wanted, told, is_sound):
    asked = {"timestamp": str(wanted)} | ({"boundaryType": boundary} if boundary else {})
    assert Broker().says(BY_TIME, asked, offset=told) == is_sound


@pytest.mark.parametrize(
    ("index", "place", "code", "is_sound"),
    [(1, 148, 0, True), (1, 248, 0, False), (1, 148, 7, False), (9, 148, 0, False)],
)
def test_the_entries_of_a_queue_name_its_messages(index, place, code, is_sound):
    table = {
        "minQueueIndex": 0, "maxQueueIndex": len(TIMES),
        "queueData": [{"physicOffset": place, "physicSize": 52, "tagsCode": code}],
    }  # fmt: skip
    body = json.dumps(table).encode()
    assert Broker().says(UNITS, {"index": str(index)}, body) == is_sound


def test_a_queue_does_not_begin_behind_its_first_message():
    table = {"minQueueIndex": 1, "maxQueueIndex": len(TIMES), "queueData": []}
    assert not Broker().says(UNITS, {"index": "0"}, json.dumps(table).encode())


@pytest.mark.parametrize(
    ("time", "force", "told", "is_sound"),
    [
        (0, "true", 0, True),
        (0, "false", 0, True),
        (0, "false", 3, False),
        (-1, "true", 5, True),
        (-1, "true", 6, False),
    ],
)
def test_a_group_goes_on_at_the_beginning_or_at_the_end(time, force, told, is_sound):
    row = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"orders"}:%d}}' % told
    asked = {"timestamp": str(time), "isForce": force, "group": "g"}
    assert Broker().says(RESET, asked, row) == is_sound

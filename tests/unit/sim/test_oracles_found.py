"""What a search by key must find, and when a full disk excuses that it does not."""

import pytest

from sim.oracles.answers import Answers
from sim.oracles.base import Findings
from tests.unit.sim.logs import Log, parts


def judged(*, before, dropped=0, lacks_room=False):
    log = Log()
    log.add("orders", 0, 1, parts(stored_ms=100))
    findings = Findings()
    answers = Answers(log.truth, findings, {("orders", 0): dropped}, lambda: lacks_room)
    answers.on_found("key 1", before, [], 64)
    return [found.oracle for found in findings.all]


PLACE = ("orders", 0, 0)


@pytest.mark.parametrize(
    ("asked", "oracles"),
    [
        ({"before": [PLACE]}, ["A39 query"]),
        ({"before": []}, []),
        ({"before": [PLACE], "dropped": 1}, []),
        ({"before": [PLACE], "lacks_room": True}, []),
    ],
    ids=["committed", "not yet", "dropped", "no room to index it"],
)
def test_what_was_committed_is_found_unless_it_is_gone_or_not_indexed(asked, oracles):
    assert judged(**asked) == oracles

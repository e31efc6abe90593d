"""A group that committed 0 is told from one that committed nothing, where it asks."""

from __future__ import annotations

from tests.unit.broker.fakes import FakeConnection, frame, request
from tests.unit.broker.test_processors import QUEUE, Bench


def test_a_committed_zero_is_told_from_none() -> None:
    bench = Bench()
    bench.offset.handle_update(FakeConnection(), frame(15, commitOffset=0, **QUEUE))
    bench.work()
    for more, wanted in (({}, {}), ({"setZeroIfNotFound": "false"}, {"stored": "true"})):
        answer = bench.offset.handle_query(FakeConnection(), request(14, **more, **QUEUE))
        assert answer is not None
        assert answer.ext_fields == {"offset": "0"} | wanted

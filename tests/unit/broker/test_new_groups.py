"""A group that is being created counts once among the new ones, whatever is asked of it."""

from __future__ import annotations

from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.broker.fakes import FakeConnection, frame
from tests.unit.broker.test_processors import QUEUE, Bench


def codes_beside_a_slow_creation(bench: Bench) -> tuple[int, int]:
    """Return how many commits of a new group were taken, and the answer to one of another group."""
    connection = FakeConnection()
    for number in range(2_000):
        fields = {**QUEUE, "consumerGroup": "slow"}
        bench.offset.handle_update(connection, frame(15, commitOffset=number, **fields))
    taken = [answer.code for answer in connection.answers].count(0)
    fields = {**QUEUE, "consumerGroup": "other"}
    bench.offset.handle_update(connection, frame(15, commitOffset=8, **fields))
    return taken, connection.answers[-1].code


def test_requests_of_a_group_under_way_take_nothing_from_others() -> None:
    bench = Bench()
    assert codes_beside_a_slow_creation(bench) == (2_000, 0)
    assert len(bench.spawned) == 2, "a creation each"
    bench.work()
    assert bench.tables.groups.get("slow") is not None
    assert bench.tables.groups.get("other") is not None


def test_a_planted_stock_for_each_request_is_found() -> None:
    with planted(BY_TESTS["new-group-counted-by-its-requests"]):
        bench = Bench()
        assert codes_beside_a_slow_creation(bench) == (1_000, 2)
    bench.work()


def test_a_creation_that_ended_may_be_tried_again() -> None:
    bench = Bench()
    bench.proposer.writable = False
    codes_beside_a_slow_creation(bench)
    assert bench.spawned == [], "nothing is created here"
    bench.proposer.writable = True
    bench.clock.now_ms += 1_000_000
    for _ in range(2):
        codes_beside_a_slow_creation(bench)
        bench.work()
        assert bench.spawned == []


def test_members_of_a_group_that_may_not_be_made_are_known() -> None:
    """As to RocketMQ: they share the queues out, and each pull tells them what is missing (26)."""
    bench, connection = Bench(), FakeConnection()
    bench.tables.groups._auto_create = False
    bench.beat(connection)
    assert [answer.code for answer in connection.answers] == [0]
    assert [command.code for command in connection.sent] == [40]
    assert bench.tables.groups.get("g") is None
    assert bench.tables.topics.get("%RETRY%g") is None
    assert bench.tables.consumers.client_ids("g") == ["c1"]
    bench.beat(FakeConnection(2), "c2", groupName="no/group")
    assert bench.tables.consumers.get("no/group") is None, "no client has such a name"

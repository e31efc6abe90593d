"""Held pulls: woken, expired, and each handed out exactly once."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.pulls.long_polling import TAG_BYTES, HeldPull, HoldTable
from broker.serving_limits import HELD_OF_CONNECTION_MAX, HELD_TAGS_BYTES_MAX
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.results import RecordTest
from tests.unit.broker.fakes import FakeConnection


def pull(
    offset: int = 0, deadline_ms: int = 1_000, topic: str = "T", queue_id: int = 0
) -> HeldPull:
    return HeldPull(FakeConnection(), 1, 0, topic, queue_id, offset, 32, None, deadline_ms)


def test_arrival_wakes_only_pulls_that_can_read_something() -> None:
    table = HoldTable()
    behind, at_end, other = pull(3), pull(5), pull(0, topic="U")
    for one in (behind, at_end, other):
        assert table.hold(one)
    assert table.arrived("T", 0, 5) == [behind]
    assert table.arrived("T", 0, 6) == [at_end]
    assert len(table) == 1
    assert table.arrived("T", 1, 9) == []


def test_expiry_is_at_most_one_bucket_late_and_never_early() -> None:
    table = HoldTable(resolution_ms=100)
    one = pull(deadline_ms=1_050)
    table.hold(one)
    assert table.expire(1_050) == []
    assert table.expire(1_099) == []
    assert table.expire(1_100) == [one]
    assert len(table) == 0


def test_a_deadline_in_the_past_expires_at_the_next_bucket() -> None:
    table = HoldTable(resolution_ms=100)
    table.expire(10_000)
    late = pull(deadline_ms=500)
    table.hold(late)
    assert table.expire(10_100) == [late]


def test_a_full_table_refuses() -> None:
    table = HoldTable(limit=5)
    assert table.hold(pull())
    assert not table.hold(pull())
    assert len(table.drain()) == 1
    assert len(table) == 0
    assert table.hold(pull())


def test_waits_tells_whether_a_queue_has_pulls() -> None:
    table = HoldTable()
    assert not table.waits("T", 0)
    table.hold(pull())
    assert table.waits("T", 0)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("hold"), st.integers(0, 3), st.integers(0, 3_000)),
            st.tuples(st.just("arrive"), st.integers(0, 3), st.integers(0, 3)),
            st.tuples(st.just("expire"), st.integers(0, 3_000), st.just(0)),
        ),
        max_size=60,
    )
)
def test_every_pull_comes_out_exactly_once(steps: list[tuple[str, Any, Any]]) -> None:
    table, inside, now = HoldTable(), set[int](), 0
    for action, first, second in steps:
        out: list[HeldPull] = []
        if action == "hold":
            one = pull(offset=first, deadline_ms=second)
            table.hold(one)
            inside.add(one.token)
        elif action == "arrive":
            out = table.arrived("T", 0, second)
            assert all(one.offset < second for one in out)
        else:
            now = max(now, first)
            out = table.expire(now)
            assert all(one.deadline_ms <= now for one in out)
        for one in out:
            inside.remove(one.token)
        assert len(table) == len(inside)
    assert {one.token for one in table.drain()} == inside


def test_pulls_come_out_in_slices_those_first_that_waited_longest() -> None:
    table = HoldTable()
    pulls = [pull() for _ in range(10)]
    for one in pulls:
        table.hold(one)
    assert table.arrived("T", 0, 1, 4) == pulls[:4]
    assert table.expire(10_000, 3) == pulls[4:7]
    assert table.next_due_ms() == 1_100
    assert table.expire(10_000, 3) == pulls[7:]
    assert table.expire(10_000, 3) == []


def test_the_pulls_of_a_closed_connection_are_forgotten() -> None:
    table = HoldTable()
    pulls = [pull() for _ in range(3)]
    for number, one in enumerate(pulls):
        one.connection.id = number
        table.hold(one)
    table.close(1)
    table.close(9)
    assert table.drain() == [pulls[0], pulls[2]]


def test_one_address_leaves_room_for_others() -> None:
    table = HoldTable(limit=100)
    crowd = [pull() for _ in range(100)]
    assert sum(table.hold(one) for one in crowd) == 20
    with planted(BY_TESTS["one-address-holds-all-pulls"]):
        unfair = HoldTable(limit=100)
        assert sum(unfair.hold(pull()) for _ in range(101)) == 100
    other = pull()
    other.holder = "192.0.2.1"
    assert table.hold(other)


def tagged(number: int, count: int = 1_000, holder: str = "") -> HeldPull:
    one = pull()
    one.wanted = frozenset(range(number * count, (number + 1) * count))
    one.connection.id, one.holder = number, holder
    return one


def test_the_tags_of_held_pulls_are_weighed_and_one_address_leaves_room_for_others() -> None:
    table = HoldTable()
    held = [one for one in map(tagged, range(1_000)) if table.hold(one)]
    fifth = HELD_TAGS_BYTES_MAX // 5 // (1_000 * TAG_BYTES)
    assert len(held) in {fifth - 1, fifth}
    assert table.filters_bytes == len(held) * 1_000 * TAG_BYTES
    assert not table.hold(tagged(2_000))
    assert table.hold(pull()), "without tags there is room"
    assert table.hold(tagged(2_000, holder="192.0.2.1"))
    table.close(5)
    table.close(6)
    assert table.hold(tagged(2_001))
    table.drain()
    assert (table.filters_bytes, table._filters, table._by_connection) == (0, {}, {})


def test_sql_filters_of_held_pulls_are_weighed_too() -> None:
    def filtered(number: int) -> HeldPull:
        one = pull()
        one.wanted = RecordTest(lambda _record: True, 1, 1, HELD_TAGS_BYTES_MAX // 100)
        one.connection.id = number
        return one

    table = HoldTable()
    held = [one for one in map(filtered, range(100)) if table.hold(one)]
    assert 19 <= len(held) <= 20
    assert table.filters_bytes == len(held) * (HELD_TAGS_BYTES_MAX // 100)
    table.drain()
    assert (table.filters_bytes, table._filters) == (0, {})


def test_without_that_they_take_any_amount_of_memory() -> None:
    table = HoldTable()
    with planted(BY_TESTS["held-tags-unweighed"]):
        assert all(table.hold(tagged(number)) for number in range(1_000))


def test_pulls_for_the_same_tags_share_them() -> None:
    table = HoldTable()
    pulls = [tagged(1) for _ in range(1_000)]
    assert all(table.hold(one) for one in pulls)
    assert table.filters_bytes == 1_000 * TAG_BYTES
    assert len({id(one.wanted) for one in pulls}) == 1
    table.arrived("T", 0, 1, 999)
    assert table.filters_bytes == 1_000 * TAG_BYTES
    table.arrived("T", 0, 1)
    assert table.filters_bytes == 0


def holds_of_one_connection(table: HoldTable) -> int:
    return sum(table.hold(pull()) for _ in range(HELD_OF_CONNECTION_MAX + 10))


def test_one_connection_holds_so_many_pulls() -> None:
    table = HoldTable()
    assert holds_of_one_connection(table) == HELD_OF_CONNECTION_MAX
    other = pull()
    other.connection.id += 1
    assert table.hold(other)


def test_without_that_it_holds_all_of_its_address() -> None:
    with planted(BY_TESTS["one-connection-holds-all"]):
        assert holds_of_one_connection(HoldTable()) > HELD_OF_CONNECTION_MAX

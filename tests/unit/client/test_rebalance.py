"""Allocation: every queue goes to exactly one consumer, as RocketMQ's strategies give them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.client.message import MessageQueue
from ledgermq.client.rebalance import allocate_averagely, allocate_by_circle


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("t", "b", i) for i in range(count)]


def ids_of(allocated: list[MessageQueue]) -> list[int]:
    return [queue.queue_id for queue in allocated]


@pytest.mark.parametrize(
    ("consumer", "expected"), [("c0", [0, 1, 2]), ("c1", [3, 4, 5]), ("c2", [6, 7])]
)
def test_average_gives_the_first_consumers_one_more(consumer, expected):
    assert ids_of(allocate_averagely(consumer, queues(8), ["c2", "c0", "c1"])) == expected


@pytest.mark.parametrize(("consumer", "expected"), [("c0", [0, 3]), ("c1", [1, 4]), ("c2", [2])])
def test_circle_deals_queues_round(consumer, expected):
    assert ids_of(allocate_by_circle(consumer, queues(5), ["c0", "c1", "c2"])) == expected


@pytest.mark.parametrize("allocate", [allocate_averagely, allocate_by_circle])
def test_more_consumers_than_queues_leaves_the_last_without(allocate):
    members = [f"c{i}" for i in range(5)]
    shares = [allocate(member, queues(3), members) for member in members]
    assert [len(share) for share in shares] == [1, 1, 1, 0, 0]


@pytest.mark.parametrize("allocate", [allocate_averagely, allocate_by_circle])
def test_a_consumer_that_is_no_member_gets_nothing(allocate):
    assert allocate("other", queues(3), ["c0"]) == []
    assert allocate("other", queues(3), []) == []


@pytest.mark.parametrize("allocate", [allocate_averagely, allocate_by_circle])
@given(
    queue_ids=st.sets(st.integers(0, 200), max_size=40),
    members=st.sets(st.text("abc123", min_size=1, max_size=4), min_size=1, max_size=9),
    data=st.data(),
)
def test_every_queue_has_one_owner_whatever_the_order_of_the_lists(
    allocate, queue_ids, members, data
):
    listed = [MessageQueue("t", "b", i) for i in queue_ids]
    shares = []
    for member in members:
        order = data.draw(st.permutations(listed))
        shares += allocate(member, order, data.draw(st.permutations(sorted(members))))
    assert sorted(shares) == sorted(listed)

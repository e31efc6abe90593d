"""Addresses have their turns one after the other, whatever waits of each."""

import pytest

from ledgermq.remoting.transport.flows import Flows


def flows(*waiting: tuple[str, int]) -> Flows[int]:
    made = Flows[int]()
    for address, one in waiting:
        made.add(address, one)
    return made


def test_one_address_is_served_in_order():
    made = flows(("a", 1), ("a", 2), ("a", 3))
    assert [made.pop() for _ in range(3)] == [1, 2, 3]
    assert len(made) == 0


def test_a_late_address_comes_next():
    made = flows(*(("a", one) for one in range(5)), ("b", 10), ("c", 20), ("b", 11))
    assert [made.pop() for _ in range(8)] == [0, 10, 20, 1, 11, 2, 3, 4]


def test_what_waits_is_counted_by_address():
    made = flows(("a", 1), ("b", 2), ("a", 3))
    assert (len(made), made.of_address("a"), made.of_address("b")) == (3, 2, 1)
    made.pop()
    assert (len(made), made.of_address("a"), made.of_address("nobody")) == (2, 1, 0)


def test_the_last_that_is_meant_is_taken():
    made = flows(("a", 1), ("a", 2), ("a", 3), ("b", 4))
    assert made.take_last("a", lambda one: one != 3) == 2
    assert made.take_last("a", lambda one: one > 3) is None
    assert made.take_last("b", lambda _one: True) == 4
    assert made.take_last("b", lambda _one: True) is None
    assert (len(made), [made.pop(), made.pop()]) == (2, [1, 3])


def test_nobody_waits():
    with pytest.raises(StopIteration):
        flows().pop()


def test_what_was_taken_in_vain_comes_first():
    made = flows(("a", 1), ("a", 2), ("a", 3), ("b", 10), ("c", 20))
    assert [made.pop() for _ in range(4)] == [1, 10, 20, 2]
    made.add("d", 30)
    made.put_back([("b", 10), ("c", 20), ("a", 2)])  # what was 1 had its turn
    assert (len(made), made.of_address("a")) == (5, 2)
    assert [made.pop() for _ in range(5)] == [10, 20, 2, 30, 3]


def test_what_was_taken_in_vain_keeps_its_order_within_its_address():
    made = flows(*(("a", one) for one in range(4)))
    made.put_back([("a", made.pop()), ("a", made.pop())])
    assert [made.pop() for _ in range(4)] == [0, 1, 2, 3]

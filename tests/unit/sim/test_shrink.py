"""Delta debugging leaves what a failure needs, and nothing else."""

from sim.shrink import ddmin


def test_parts_that_are_not_needed_go():
    tried: list[list[int]] = []

    def fails(parts: list[int]) -> bool:
        tried.append(parts)
        return {3, 17} <= set(parts)

    assert ddmin(list(range(20)), fails) == [3, 17]
    assert len(tried) < 80


def test_a_failure_that_needs_nothing_is_left_with_nothing():
    assert ddmin([1, 2, 3], lambda _parts: True) == []


def test_a_failure_that_needs_everything_keeps_everything():
    parts = list(range(6))
    assert ddmin(parts, lambda some: some == parts) == parts


def test_order_is_kept():
    assert ddmin([5, 1, 4, 2], lambda parts: {5, 2} <= set(parts)) == [5, 2]


def test_nothing_stays_nothing():
    assert ddmin([], lambda _parts: False) == []

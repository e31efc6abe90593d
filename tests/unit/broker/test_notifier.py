"""Members of a group are told that it changed: at once, in slices, and not for each change."""

from __future__ import annotations

from collections import Counter

from broker.groups.notifier import MEMBER_MS, SLICE, Notifier
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.broker.fakes import FakeClock, FakeConnection


class Bench:
    """Groups of fake members; `pass_time` runs the notifier whenever it asked for it."""

    def __init__(self, **sizes: int) -> None:
        self.groups = {name: [FakeConnection() for _ in range(n)] for name, n in sizes.items()}
        self.clock = FakeClock()
        self.due_ms: float | None = None
        self.notifier = Notifier(self.groups.__getitem__, self.clock, self.wake)

    def wake(self, delay_ms: float) -> None:
        self.due_ms = self.clock.monotonic_ms() + delay_ms

    def pass_time(self, milliseconds: int) -> list[int]:
        """Return how many were told in each turn."""
        told = []
        end = self.clock.monotonic_ms() + milliseconds
        while self.due_ms is not None and self.due_ms <= end:
            self.clock.now_ms = max(self.clock.now_ms, int(self.due_ms))
            self.due_ms = None
            before = self.told()
            self.notifier.run()
            told.append(self.told() - before)
        self.clock.now_ms = end
        return told

    def told(self) -> int:
        return sum(len(one.sent) for members in self.groups.values() for one in members)


def test_a_small_group_is_told_at_once_each_time() -> None:
    bench = Bench(g=3)
    for _ in range(3):
        bench.notifier.notify("g")
    assert bench.told() == 9
    assert bench.due_ms is None
    sent = bench.groups["g"][0].sent[0]
    assert (sent.code, sent.flag, sent.ext_fields) == (40, 2, {"consumerGroup": "g"})


def test_a_large_group_is_told_in_slices() -> None:
    bench = Bench(g=5 * SLICE)
    bench.notifier.notify("g")
    assert bench.told() == SLICE
    assert bench.pass_time(10) == [SLICE] * 4
    assert {len(one.sent) for one in bench.groups["g"]} == {1}


def churn(bench: Bench) -> int:
    for _ in range(500):
        bench.notifier.notify("g")
        bench.pass_time(10)
    bench.pass_time(10_000)
    return bench.told()


def test_members_that_come_and_go_do_not_cost_their_number_squared() -> None:
    bench = Bench(g=1_000)
    told = churn(bench)
    assert told <= 7 * 1_000
    counts = Counter(len(one.sent) for one in bench.groups["g"])
    assert len(counts) == 1, "everybody hears of the last change"
    with planted(BY_TESTS["each-change-told-to-all"]):
        assert churn(Bench(g=1_000)) == 500 * 1_000


def test_a_small_group_does_not_wait_for_the_rest_of_a_large_one_for_long() -> None:
    bench = Bench(large=3 * SLICE, small=2)
    bench.notifier.notify("large")
    bench.notifier.notify("small")
    bench.notifier.notify("small")
    bench.pass_time(5)
    assert [len(one.sent) for one in bench.groups["small"]] == [1, 1]


def hear_beside_a_larger_group() -> list[int]:
    """Two large groups change while they rest; the smaller one's rest is over first."""
    bench = Bench(large=5 * SLICE, larger=50 * SLICE)
    for group in ("large", "larger"):
        bench.notifier.notify(group)
        bench.pass_time(60)
    bench.notifier.notify("large")
    bench.notifier.notify("larger")
    bench.pass_time(5 * SLICE * MEMBER_MS)
    return [len(one.sent) for one in bench.groups["large"]]


def test_a_group_does_not_wait_for_the_rest_of_a_larger_one() -> None:
    assert hear_beside_a_larger_group() == [2] * 5 * SLICE
    with planted(BY_TESTS["alarm-of-the-last-group"]):
        assert hear_beside_a_larger_group() == [1] * 5 * SLICE

"""Chance splits into streams of its own; the trace tells runs apart; delays are what they say."""

from statistics import mean

import pytest

from sim.link import Delay, Link
from sim.rng import SplitRng
from sim.trace import Trace

GOLDEN = [26060, 540475, 731039, 460905]
"""What the stream "golden" begins with, on every machine."""


def test_a_stream_depends_on_seed_and_name_only():
    one, other = SplitRng(5), SplitRng(5)
    one.random()
    one.split("disk").random()
    assert one.split("network").random() == other.split("network").random()
    assert one.split("a").random() != one.split("b").random()
    assert SplitRng(5).random() != SplitRng(6).random()


def test_known_draws_stay_as_they_are():
    rng = SplitRng("golden")
    draws = [rng.randint(0, 10**6) for _ in range(3)]
    draws.append(int(rng.exponential(10**6)))
    assert draws == GOLDEN


def test_draws_are_within_their_bounds_and_of_their_mean():
    rng = SplitRng(1)
    assert {rng.randint(3, 5) for _ in range(100)} == {3, 4, 5}
    assert mean(rng.exponential(10) for _ in range(20_000)) == pytest.approx(10, rel=0.05)
    assert 200 < sum(rng.chance(0.3) for _ in range(1000)) < 400
    assert {rng.choice("abc") for _ in range(100)} == set("abc")
    assert {rng.weighted("abc", [1, 0, 3]) for _ in range(100)} == set("ac")
    items = list(range(20))
    rng.shuffle(items)
    assert sorted(items) == list(range(20)) != items
    assert len(set(rng.sample(range(10), 4))) == 4


def test_delays_have_a_base_and_a_mean():
    link = Link("a", "b", Delay(100, 50), SplitRng(1))
    draws = [link.draw_ns() for _ in range(20_000)]
    assert min(draws) >= 100_000
    assert mean(draws) == pytest.approx(150_000, rel=0.05)


def filled(*events):
    trace = Trace()
    for kind, host, columns in events:
        trace.event(kind, host, **columns)
    return trace.digest()


def test_a_trace_differs_with_everything_that_differs():
    first = ("cut", "a", {"target": "b"})
    second = ("heal", "a", {"target": "b"})
    digests = [
        filled(first, second), filled(second, first), filled(first), filled(),
        filled(("cut", "b", {"target": "b"})), filled(("cut", "a", {"target": "c"})),
    ]  # fmt: skip
    assert len(set(digests)) == len(digests)
    assert filled(first, second) == digests[0]


def test_a_trace_keeps_lines_when_asked_and_its_digest_is_the_same():
    silent, telling = Trace(), Trace(keep_lines=True)
    for trace in (silent, telling):
        trace.now_ns = 17
        trace.event("kill", "n0", ending="close")
        trace.note(5)
        trace.now_ns = 18
        trace.event("stop", "")
    assert silent.digest() == telling.digest()
    assert silent.lines == []
    assert telling.lines == ["17 kill n0 ending=close", "18 stop -"]


STEP = ("n0", "write", 3, 512, 10, 77)


@pytest.mark.parametrize("column", range(len(STEP)))
def test_every_column_of_a_step_of_a_disk_is_in_the_digest(column):
    other = list(STEP)
    other[column] = "other" if isinstance(STEP[column], str) else STEP[column] + 1
    one, again, changed = Trace(), Trace(keep_lines=True), Trace()
    one.disk(*STEP)
    again.disk(*STEP)
    changed.disk(*other)
    assert one.digest() == again.digest() != changed.digest()
    assert again.lines == ["0 disk n0 op=write path=3 offset=512 size=10 crc=77"]


@pytest.mark.parametrize("other", [("n1", 5, 2), ("n0", 6, 2), ("n0", 5, 3)])
def test_every_column_of_a_commit_is_in_the_digest(other):
    one, again, changed = Trace(), Trace(keep_lines=True), Trace()
    one.commit("n0", 5, 2)
    again.commit("n0", 5, 2)
    changed.commit(*other)
    assert one.digest() == again.digest() != changed.digest()
    assert again.lines == ["0 commit n0 index=5 term=2"]

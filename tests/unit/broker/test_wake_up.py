"""What waking one held pull raises is its own failure: the others are woken, now and later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.pulls.wake_up import WakeUp
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.results import GetStatus
from tests.unit.broker.fakes import found, nothing
from tests.unit.broker.test_pull import SUBSCRIBED, WAIT, Bench

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.results import GetResult

UNSPEAKABLE = "\ud800"
"""No text that an answer can hold."""


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    told: list[BaseException] = []
    for module in ("broker.pulls.wake_up", "broker.processor.pull", "ledgermq.runtime.tasks"):
        monkeypatch.setattr(f"{module}.report_serving_failure", lambda _, error: told.append(error))
    return told


def woken_after_a_failure(bench: Bench) -> list[tuple[str, int, int]]:
    """Return what is woken when waking a queue has raised: beside it, and with its next message."""
    woken: list[tuple[str, int, int]] = []
    turns: list[Callable[[], None]] = []

    def wake(topic: str, queue_id: int, max_offset: int, work: int) -> int:
        if (queue_id, max_offset) == (0, 4):
            raise OSError("once")
        woken.append((topic, queue_id, max_offset))
        return work

    waker = WakeUp(bench.held, wake, turns.append, {})
    bench.store.results = [nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3)] * 2
    bench.pull(SUBSCRIBED | WAIT)
    bench.pull(SUBSCRIBED | WAIT, queueId=1)

    def message(queue_id: int, max_offset: int) -> None:
        waker.on_message("T", queue_id, max_offset)

    message(0, 4)
    message(1, 4)
    for turn in (1, 2):
        while turns:
            try:
                turns.pop(0)()
            except OSError:
                assert turn == 1
        message(0, 5)
    return woken


def test_others_are_woken_and_so_is_the_next_message(
    bench: Bench, told: list[BaseException]
) -> None:
    assert woken_after_a_failure(bench) == [("T", 1, 4), ("T", 0, 5)]
    assert [str(error) for error in told] == ["once"]


def test_a_planted_waker_that_stops_for_good_is_found(bench: Bench) -> None:
    with planted(BY_TESTS["nobody-woken-since-a-failure"]):
        assert woken_after_a_failure(bench) == []


def test_an_answer_that_cannot_be_written_leaves_the_others_theirs(
    bench: Bench, told: list[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.store.results = [nothing(GetStatus.OFFSET_OVERFLOW_ONE, 3)] * 2
    bench.pull(SUBSCRIBED | WAIT)
    bench.pull(SUBSCRIBED | WAIT)
    results = iter([OSError(UNSPEAKABLE), found(b"x")])

    def get(*_: object) -> GetResult:
        result = next(results)
        if isinstance(result, OSError):
            raise result
        return result

    monkeypatch.setattr(bench.store, "get", get)
    bench.processor.wake("T", 0, 4)
    assert [answer.code for answer in bench.connection.answers] == [0]
    assert len(told) == 2, "what it raised, and what its answer did"

"""What counts as a reason why nothing arrives, since when, and how often it is said."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest

from ledgermq.client import MessageQueue, NotTaken, Unfinished
from ledgermq.client.hindrances import LASTING_MS, TWIN_MS, Hindrances
from ledgermq.client.puller import Puller
from ledgermq.remoting.protocol.errors import ConnectFailed, for_code
from mutants.patches import BY_TESTS
from mutants.planting import planted

QUEUES = [MessageQueue("orders", "b", number) for number in range(2)]
REFUSED = for_code(16, "subscription group no permission, g")


class Clock:
    now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hindrances(clock: Clock) -> Hindrances:
    return Hindrances(clock, "%RETRY%g")


def test_a_refused_pull_is_a_reason_at_once_and_until_one_succeeds(hindrances: Hindrances) -> None:
    hindrances.on_pull_failed(QUEUES[0], REFUSED)
    assert hindrances.problems(QUEUES) == {"orders": REFUSED}
    assert hindrances.problems(QUEUES[1:]) == {}, "the queue has gone to another member"
    hindrances.on_pulled(QUEUES[0])
    assert hindrances.problems(QUEUES) == {}


def test_a_share_without_queues_is_said_once_and_blocks_nothing(
    hindrances: Hindrances, caplog: pytest.LogCaptureFixture
) -> None:
    for empty in (True, True, False, True):
        hindrances.on_share("orders", taken=True, empty=empty)
    hindrances.on_share("%RETRY%g", taken=True, empty=True)
    warned = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert warned == ["topic=orders event=no_queue_for_this_member"] * 2
    assert hindrances.problems(QUEUES) == {}


def test_a_twin_is_a_warning_once_it_outlasts_any_connection_that_broke(
    hindrances: Hindrances, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    def listed(after_ms: int, *ids: str) -> int:
        clock.now_ms += after_ms
        hindrances.on_listed("a", ids)
        return caplog.text.count("event=duplicate_instance")

    assert listed(0, "a", "a", "b") == 0
    assert listed(TWIN_MS - 1, "a", "a") == 0
    assert listed(0, "a", "b", "b") == 0, "the old connection is forgotten"
    assert listed(TWIN_MS, "a", "a") == 0
    assert [listed(after_ms, "a", "a") for after_ms in (TWIN_MS - 1, 1, TWIN_MS)] == [0, 1, 1]
    assert listed(0, "a") == 1
    assert [listed(after_ms, "a", "a") for after_ms in (0, TWIN_MS)] == [1, 2], "another one"


def test_a_queue_whose_listener_finishes_nothing_is_a_reason_after_a_while(
    hindrances: Hindrances, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for late_ms in (0, LASTING_MS - 1):
        clock.now_ms = 1_000 + late_ms
        hindrances.on_full(QUEUES[0], "offset span 2001")
        assert hindrances.problems(QUEUES) == {}
    for span in (2001, 2002):
        clock.now_ms += 1
        hindrances.on_full(QUEUES[0], f"offset span {span}")
        error = hindrances.problems(QUEUES)["orders"]
        assert isinstance(error, Unfinished)
        assert f"offset span {span}, and" in str(error)
    assert caplog.text.count("event=not_consumed") == 1
    hindrances.on_pulled(QUEUES[0])
    assert hindrances.problems(QUEUES) == {}


def is_forgotten_with_the_queue() -> bool:
    """It is pulled by another task then, which may never see it fail."""
    hindrances = Hindrances(Clock(), "%RETRY%g")
    hindrances.on_pull_failed(QUEUES[0], REFUSED)
    held = SimpleNamespace(queue=QUEUES[0], dropped=True)
    asyncio.run(Puller(SimpleNamespace(hindrances=hindrances), held).run())
    return not hindrances.problems(QUEUES)


def test_a_queue_that_is_held_again_begins_without_a_reason() -> None:
    assert is_forgotten_with_the_queue()
    with planted(BY_TESTS["reason-of-an-earlier-holding"]):
        assert not is_forgotten_with_the_queue()


@pytest.mark.parametrize("error", [ConnectFailed("refused"), for_code(14, ""), for_code(25, "")])
def test_what_a_change_of_leader_brings_is_a_reason_once_it_lasts(
    hindrances: Hindrances, clock: Clock, error: Exception
) -> None:
    hindrances.on_pull_failed(QUEUES[0], error)
    clock.now_ms += LASTING_MS - 1
    hindrances.on_pull_failed(QUEUES[0], error)
    assert hindrances.problems(QUEUES) == {}
    clock.now_ms += 1
    hindrances.on_pull_failed(QUEUES[0], error)
    assert hindrances.problems(QUEUES) == {"orders": error}


def test_queues_that_are_not_had_are_a_reason_once_it_lasts(
    hindrances: Hindrances, clock: Clock
) -> None:
    hindrances.on_share("orders", taken=False)
    assert not hindrances
    clock.now_ms += LASTING_MS
    hindrances.on_share("orders", taken=False)
    assert isinstance(hindrances.problems([])["orders"], NotTaken)
    hindrances.on_share("orders", taken=True)
    assert not hindrances
    hindrances.on_share("orders", taken=False)
    assert not hindrances, "it counts anew"


def test_a_reason_is_a_warning_once_for_all_queues(
    hindrances: Hindrances, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for queue in QUEUES * 3:
            hindrances.on_pull_failed(queue, REFUSED)
        assert len(caplog.records) == 1
        hindrances.on_blocked("%RETRY%g", REFUSED)
        assert len(caplog.records) == 1, "its broker makes the retry topic"
    with planted(BY_TESTS["refused-pull-unsaid"]):
        other = Hindrances(Clock(), "%RETRY%g")
        other.on_pull_failed(QUEUES[0], REFUSED)
        assert other.problems(QUEUES) == {}

"""Planted bugs that few plans of the simulator show, each in the smallest case that shows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from broker import retention_policy
from broker.offsets.replication import OffsetReplicator
from broker.processor.pull import PullProcessor
from broker.retention_policy import Level, RetentionConfig, Segment, Situation
from broker.state.consumer_offset import ConsumerOffsetTable
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.results import GetResult, GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from mutants.planting import Mutant

PLACE = ("g", "orders", 0)


def told_while_an_older_one_is_applied() -> int | None:
    table = ConsumerOffsetTable()
    table.commit(*PLACE, 5)
    (older,) = table.take_proposals()
    table.commit(*PLACE, 7)
    table.apply(older)
    return table.query(*PLACE)


def proposed_before_a_hand_over() -> int:
    table, proposed = ConsumerOffsetTable(), []
    log: Any = SimpleNamespace(writable=True, propose_state=lambda *what: proposed.append(what))
    table.commit(*PLACE, 5)
    OffsetReplicator(
        table, log, lambda _name, _function: SimpleNamespace(set=None)
    ).before_hand_over()
    return len(proposed)


def kept_from() -> int | None:
    segments = [Segment(0, 100, 1_000), Segment(100, 200, 9_000), Segment(200, 300, None)]
    situation = Situation(12_000, 0, Level.OK)
    config = RetentionConfig(reserved_ms=10_000, hours=(0,))
    return retention_policy.expired_before(segments, 300, situation, config)


def answered_where_a_read_has_not_seen_all() -> bool:
    """Ask of a pull that was woken; its filter has refused five messages, and there are nine."""
    result = GetResult(GetStatus.NO_MATCHED_MESSAGE, 5, 0, 9, [], 0, 0)
    answered: list[object] = []
    pull: Any = SimpleNamespace(offset=0, wanted=frozenset({1}))
    processor: Any = SimpleNamespace(
        _read=lambda _pull: result,
        _held=SimpleNamespace(hold=lambda _pull: True),
        _answer=lambda *what: answered.append(what),
    )
    PullProcessor._rerun(processor, pull)
    return bool(answered)


@pytest.mark.parametrize(
    ("mutant", "ask", "right"),
    [
        (BY_TESTS["newer-offset-dropped"], told_while_an_older_one_is_applied, 7),
        (BY_TESTS["hand-over-without-offsets"], proposed_before_a_hand_over, 1),
        (BY_TESTS["closed-with-the-one-before"], kept_from, 100),
        (BY_TESTS["woken-and-not-at-the-end"], answered_where_a_read_has_not_seen_all, True),
    ],
)
def test_the_bug_shows_where_it_is_planted(
    mutant: Mutant, ask: Callable[[], object], right: object
) -> None:
    assert ask() == right
    with planted(mutant):
        assert ask() != right

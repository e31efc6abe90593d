"""Bugs planted in transactions, and the tests that find them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mutants.patches import ALL
from mutants.planting import planted
from tests.unit.broker.test_transaction_checks import (
    ended_before_it_is_saved,
    lost_while_parking,
    parked,
    postponed_and_finished,
)
from tests.unit.broker.test_transaction_checks import (
    test_a_count_that_is_late_is_asked_for as asked_though_late,
)
from tests.unit.broker.test_transaction_checks import (
    test_what_is_finished_during_the_take_over_stays_so as finished_amid_a_take_over,
)
from tests.unit.broker.test_transaction_checks import (
    test_who_does_not_read_is_not_asked as asked_who_reads,
)
from tests.unit.broker.test_transactions import (
    answered_before_it_is_applied,
    answered_when_its_row_is_open,
    finished_at_two_leaders,
    finished_twice,
    half_then_another_leader,
    invented_groups_are_bounded,
    looked_at_before_it_is_read,
    lost_between_copy_and_op,
    shared_fairly,
)
from tests.unit.broker.transactions import Replica

if TYPE_CHECKING:
    from collections.abc import Callable

    from mutants.planting import Mutant

FOUND_BY: list[tuple[Mutant, Callable[[Replica], None]]] = [
    (ALL["half-committed-twice-in-a-turn"], finished_twice),
    (ALL["end-forgotten-before-it-is-applied"], answered_before_it_is_applied),
    (ALL["copy-unknown-to-followers"], finished_at_two_leaders),
    (ALL["copied-half-taken-again"], lost_between_copy_and_op),
    (ALL["op-message-left-out-for-good"], lost_between_copy_and_op),
    (ALL["half-unknown-to-followers"], half_then_another_leader),
    (ALL["questions-not-counted"], parked),
    (ALL["parked-copy-closes-nothing"], lost_while_parking),
    (ALL["opened-again-by-a-take-over"], finished_amid_a_take_over),
    (ALL["late-counts-ask-nobody"], asked_though_late),
    (ALL["slow-producers-are-asked"], asked_who_reads),
    (ALL["half-answered-before-its-row"], answered_when_its_row_is_open),
    (ALL["postponed-half-opened-again"], postponed_and_finished),
    (ALL["ended-before-it-is-saved"], ended_before_it_is_saved),
    (ALL["halves-without-shares"], shared_fairly),
    (ALL["halves-by-group-alone"], invented_groups_are_bounded),
    (ALL["half-read-for-anybody"], looked_at_before_it_is_read),
    (ALL["half-copied-for-anybody"], looked_at_before_it_is_read),
]


@pytest.mark.parametrize(("bug", "check"), FOUND_BY, ids=lambda value: getattr(value, "name", ""))
def test_a_planted_bug_is_found(bug: Mutant, check: Callable[[Replica], None]) -> None:
    with planted(bug):
        replica = Replica().begin()
        replica.lead()
        with pytest.raises((AssertionError, KeyError)):
            check(replica)

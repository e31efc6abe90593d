"""A leader with something to do later has a timer set, or awaits an answer."""

from types import SimpleNamespace

import pytest

from sim.oracles.base import Violation
from sim.oracles.comes_back import LOOKS, NAME, ComesBack

SET = SimpleNamespace(_handle="a timer")
UNSET = SimpleNamespace(_handle=None)


def halves(**differences):
    """Transactions of a leader with a half that is open, and no timer."""
    known = {
        "_leads": True, "taken_over_before": 0, "table": SimpleNamespace(rows=["a half"]),
        "_counted": 0, "_pass": None, "_is_parking_full": lambda: False, "_alarm": UNSET,
    }  # fmt: skip
    return SimpleNamespace(**(known | differences))


def levels(due_ms, *, alarm=UNSET, is_full=False):
    """The delivery of a leader with one level."""
    agenda = SimpleNamespace(levels={0: SimpleNamespace(due_ms=due_ms)})
    return SimpleNamespace(_agenda=agenda, _alarm=alarm, _is_full=lambda: is_full)


FOLLOWER = SimpleNamespace(_agenda=None, _alarm=UNSET)
NO_HALVES = halves(table=SimpleNamespace(rows=[]))


def look(transactions, delays, times=LOOKS):
    """Look at a leader so often; return what is found."""
    services = SimpleNamespace(transactions=transactions, delays=delays)
    leader = SimpleNamespace(
        name="n0", incarnation=1, state=SimpleNamespace(term=3),
        controller=SimpleNamespace(_services=services),
    )  # fmt: skip
    oracle = ComesBack()
    try:
        for _ in range(times):
            oracle.on_tick(leader)
    except Violation as found:
        return found.oracle
    return None


@pytest.mark.parametrize(
    ("transactions", "delays"),
    [(halves(), FOLLOWER), (NO_HALVES, levels(0)), (halves(), levels(9))],
)
def test_who_does_not_come_back_is_found(transactions, delays):
    assert look(transactions, delays) == NAME
    assert look(transactions, delays, LOOKS - 1) is None


@pytest.mark.parametrize(
    "transactions",
    [
        NO_HALVES, halves(_leads=False), halves(taken_over_before=7), halves(_alarm=SET),
        halves(_counted=1), halves(_pass="a pass", _is_parking_full=lambda: True),
    ],
)  # fmt: skip
def test_halves_may_wait_for_a_timer_or_for_puts(transactions):
    assert look(transactions, FOLLOWER) is None


@pytest.mark.parametrize(
    "delays", [FOLLOWER, levels(None), levels(0, alarm=SET), levels(0, is_full=True)]
)
def test_messages_may_wait_likewise(delays):
    assert look(NO_HALVES, delays) is None

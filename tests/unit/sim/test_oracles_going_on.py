"""Where a pull is told to go on lies behind nothing that it wants."""

from types import SimpleNamespace

import pytest

from sim.oracles.base import Violation
from sim.oracles.going_on import HAS_SUBSCRIPTION, MOVED, NOT_FOUND, RETRY, SUCCESS, GoingOn

TAGS = {4: "a", 5: "b", 6: "a", 7: ""}


class Log:
    """A queue of eight messages, the first three of which are gone; six were there at first."""

    def __init__(self):
        rows = [SimpleNamespace(entry_index=at, term=1) for at in range(8)]
        self.queues = {("orders", 0): rows}
        self.tags = {(at, 1): tag for at, tag in TAGS.items()}

    def end_of(self, *_):
        return 6


def check(code, asked, told, subscription="*", handed=(), sys_flag=HAS_SUBSCRIPTION, **more):
    fields = {"topic": "orders", "subscription": subscription, **more}
    numbers = {"queueOffset": asked, "queueId": 0, "sysFlag": sys_flag}
    request = SimpleNamespace(
        number=lambda name, default=-1: numbers.get(name, default),
        text=lambda name: fields.get(name, ""),
        note=SimpleNamespace(applied=5, first_index=2),
    )
    answer = SimpleNamespace(code=code, number=lambda _name, _default=-1: told)
    replica = SimpleNamespace(name="n0", store=SimpleNamespace(first_index=3))
    GoingOn(Log()).check(replica, request, answer, handed)


@pytest.mark.parametrize(
    ("code", "asked", "told", "more"),
    [
        (NOT_FOUND, 8, 8, {}),
        (NOT_FOUND, 6, 7, {"subscription": "b"}),
        (NOT_FOUND, 6, 7, {"expressionType": "SQL92"}),
        (NOT_FOUND, 6, 7, {"sys_flag": 0}),
        (RETRY, 1, 3, {}),
        (RETRY, 4, 8, {"subscription": "c || d"}),
        (SUCCESS, 4, 7, {"subscription": "a", "handed": {4, 6}}),
        (MOVED, 0, 2, {}),
        (MOVED, 2, 3, {}),
        (MOVED, 7, 6, {}),
        (MOVED, 9, 8, {}),
        (MOVED, 5, 9, {"topic": "unmade"}),
        (1, 5, -1, {}),
    ],
)
def test_what_is_told_behind_nothing_that_is_wanted_is_sound(code, asked, told, more):
    if more.get("topic") == "unmade":
        told = 0
    check(code, asked, told, **more)


@pytest.mark.parametrize(
    ("code", "asked", "told", "more"),
    [
        (NOT_FOUND, 6, 7, {}),
        (NOT_FOUND, 6, 5, {}),
        (NOT_FOUND, 8, 9, {"subscription": "b"}),
        (RETRY, 4, 7, {"subscription": "a"}),
        (SUCCESS, 4, 7, {"subscription": "a", "handed": {4}}),
        (MOVED, 0, 6, {}),
        (MOVED, 4, 6, {}),
        (MOVED, 9, 3, {}),
    ],
)
def test_what_is_passed_over_and_wanted_is_a_violation(code, asked, told, more):
    with pytest.raises(Violation, match="go on at"):
        check(code, asked, told, **more)
